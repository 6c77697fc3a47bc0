"""From what callers draw over another stream's picture to an overlay frame (`splatview_ipc.kinds.overlay`)."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters import checks
from splatview.adapters.detections import with_result
from splatview.adapters.masks import extents, masks
from splatview.adapters.values import floats, integers, number_tensor, short_repr, texts
from splatview_ipc.kinds.overlay import OVERLAY_MOST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Tensors = dict[str, torch.Tensor]
    Meta = dict[str, Any]

COCO_SKELETON = (
    (15, 13),
    (13, 11),
    (16, 14),
    (14, 12),
    (11, 12),
    (5, 11),
    (6, 12),
    (5, 6),
    (5, 7),
    (6, 8),
    (7, 9),
    (8, 10),
    (1, 2),
    (0, 1),
    (0, 2),
    (1, 3),
    (2, 4),
    (3, 5),
    (4, 6),
)
"""Which of COCO's 17 points of a person are joined."""
_FORMATS = {"xyxy": 4, "xywh": 4, "cxcywh": 4, "xywhr": 5, "xyxyxyxy": 8}
"""Legal forms of boxes, with the numbers of each box."""
_ORDERED = ("boxes", "labels", "scores", "classes", "points", "masks")
"""Legal names within `order`."""
_MAX_TEXT = {"by": 100, "trouble": 400}
"""Characters of these texts that are kept."""
_MAX_CLASSES = 10_000
"""Classes that may have a name or a colour."""
_MAX_REMEMBERED = 4096
_remembered: dict[str, int] = {}
"""The class of each text that was used as a label without one, so that it keeps its colour."""


def adapted(given: Mapping[str, Any]) -> tuple[Tensors, Meta]:
    """Return the tensors of an overlay frame, on the CPU and on GPUs, and its metadata but for what it was computed on.

    `given`: the arguments of `annotate`, by name. Raises TypeError, ValueError.
    """
    if given.get("order") is not None:
        given = _in_order(given)
    given = with_result(given)
    get = given.get
    tensors: Tensors = {}
    meta: Meta = {"width": 0, "height": 0}
    size = get("size")
    if size is not None:
        try:
            width, height = size
        except (TypeError, ValueError):
            raise TypeError(
                f"size is {short_repr(size)}, not (width, height)"
            ) from None
        most = OVERLAY_MOST["side"]
        size = (
            checks.integer("width of size", width, 1, most),
            checks.integer("height of size", height, 1, most),
        )
        meta["width"], meta["height"] = size
    if get("boxes") is not None:
        boxes, corners = _boxes(get("boxes"), get("format"))
        tensors["boxes"] = boxes
        if corners is not None:
            tensors["corners"] = corners
        _tell_not_finite(boxes, meta)
    if get("masks") is not None:
        found, picture = masks(get("masks"), size)
        if "boxes" not in tensors:
            meta["width"], meta["height"] = size or picture
            tensors["boxes"] = extents(found, size or picture)
        if len(found) or len(tensors["boxes"]):
            tensors["masks"] = found
    _describe_boxes(tensors, get)
    tensors |= _points(get("points"), get("skeleton"), get("point_classes"))
    if (
        "points" in tensors
        and "point_classes" not in tensors
        and "classes" in tensors
        and (0 < len(tensors["points"]) == len(tensors["boxes"]))
    ):
        tensors["point_classes"] = tensors["classes"].clone()
    tensors |= _lines(get("lines"), get("line_classes"))
    tensors |= _notes(get("notes"))
    _add_words(meta, get)
    return tensors, meta


def _in_order(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the parts of `boxes`, a detector's result, under the names that `order` gives."""
    order = given["order"]
    parts = given.get("boxes")
    names = order.replace(" ", "").split(",") if isinstance(order, str) else ()
    if (
        not names
        or len(set(names)) < len(names)
        or not {"boxes"} <= set(names) <= set(_ORDERED)
    ):
        raise ValueError(
            f"order is {short_repr(order)}; legal are boxes and any of {', '.join(_ORDERED[1:])}, each once, "
            'such as "boxes,scores,classes"'
        )
    if not isinstance(parts, (list, tuple)) or len(parts) != len(names):
        raise ValueError(
            f"boxes is {short_repr(parts)}, not a tuple of {len(names)}: {', '.join(names)}, as order says"
        )
    twice = [name for name in names if name != "boxes" and given.get(name) is not None]
    if twice:
        raise ValueError(
            f"{twice[0]} twice: as an argument, and within boxes as order says"
        )
    return {**given, **dict(zip(names, parts, strict=True))}


# ---- boxes


def _boxes(value: Any, form: str | None) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (N, 4) x0 y0 x1 y1 and, of boxes that may be turned, (N, 4, 2) their corners."""
    if form is not None and (not isinstance(form, str) or form not in _FORMATS):
        raise ValueError(
            f"format is {short_repr(form)}, not one of {', '.join(map(repr, _FORMATS))}"
        )
    found = floats(value, "boxes", empty=(0, _FORMATS[form or "xyxy"]))
    corners = _corners(found, form)
    if corners is not None:
        if not len(corners):
            return torch.empty(0, 4), None
        return torch.cat((corners.amin(1), corners.amax(1)), 1), corners
    if found.shape == (4,):
        found = found[None]
    if found.ndim != 2 or found.shape[1] != 4:
        advice = ""
        if found.ndim == 2 and found.shape[1] > 4:
            advice = ": the first four columns are boxes[:, :4]"
        if found.ndim == 2 and found.shape[1] == 5:
            advice += (
                ', and five are a middle, extents and an angle with format="xywhr"'
            )
        raise ValueError(
            f"boxes have shape {tuple(found.shape)}, not (N, 4), or (N, 4, 2) for corners"
            f"{advice}"
        )
    if form in (None, "xyxy"):
        return found, None
    first = found[:, :2]
    extent = found[:, 2:]
    if form == "cxcywh":
        first = first - extent / 2
    return torch.cat((first, first + extent), 1), None


def _corners(boxes: torch.Tensor, form: str | None) -> torch.Tensor | None:
    """Return the corners (N, 4, 2) of boxes that may be turned, in their order around it; None for others.

    Such boxes are "xywhr", (N, 5), or their corners themselves, (N, 4, 2), or "xyxyxyxy", (N, 8).
    """
    if form == "xywhr":
        if boxes.shape == (5,):
            boxes = boxes[None]
        if boxes.ndim != 2 or boxes.shape[1] != 5:
            raise ValueError(
                f'boxes have shape {tuple(boxes.shape)}, not (N, 5), as format="xywhr" says'
            )
        middle, extent, angle = boxes.split((2, 2, 1), 1)
        cos = angle.cos()
        sin = angle.sin()
        across = torch.cat((cos, sin), 1) * extent[:, :1] / 2
        down = torch.cat((-sin, cos), 1) * extent[:, 1:] / 2
        turned = (-across - down, across - down, across + down, down - across)
        return torch.stack([middle + corner for corner in turned], 1)
    if form == "xyxyxyxy" and boxes.shape[-1:] == (8,):
        boxes = boxes.reshape(-1, 4, 2)
    if form in (None, "xyxyxyxy") and boxes.shape[-2:] == (4, 2) and boxes.ndim < 4:
        return boxes.reshape(-1, 4, 2)
    if form == "xyxyxyxy":
        raise ValueError(
            f'boxes have shape {tuple(boxes.shape)}, not (N, 8) or (N, 4, 2), as format="xyxyxyxy" says'
        )
    return None


def _tell_not_finite(boxes: torch.Tensor, meta: Meta) -> None:
    """Note how many boxes are not drawn. Those on a GPU are not looked at."""
    # The sum is not finite if one of them is not.
    if boxes.device.type != "cpu" or isfinite(boxes.sum(dtype=torch.float64)):
        return
    lost = int((~boxes.isfinite()).any(1).sum())
    if lost:
        meta["trouble"] = f"{lost} of {len(boxes)} boxes are not finite, and not drawn"


def are_fractions(tensors: Tensors, meta: Meta) -> bool:
    """Return whether all boxes, of a picture of pixels, lie within its first pixel: then they are fractions.

    Boxes on a GPU are not looked at.
    """
    boxes = tensors["boxes"]
    if boxes.device.type != "cpu" or not len(boxes) or float(boxes.max()) > 1:
        return False
    is_of_pixels = meta["width"] != 1 and meta["height"] != 1
    is_within = float(boxes.min()) >= 0 and bool((boxes % 1 != 0).any())
    return is_of_pixels and is_within


def _describe_boxes(tensors: Tensors, get: Callable[[str], Any]) -> None:
    """Add classes, scores, labels and colours."""
    names = _class_names(get("names"))
    if "boxes" not in tensors:
        wrong = [
            what
            for what in ("labels", "scores", "classes", "colors")
            if get(what) is not None
        ]
        if wrong:
            raise ValueError(
                f"{' and '.join(wrong)} without boxes or masks: there is nothing that they belong to"
            )
        tensors["boxes"] = torch.empty(0, 4)
        return
    numbered = {text: number for number, text in reversed(names.items())}
    count = len(tensors["boxes"])
    labels = get("labels")
    classes = get("classes")
    what = "classes"
    if isinstance(labels, str):
        labels = [labels] * count
    if labels is not None and not (
        labels.dtype.kind in "UO" and labels.ndim == 1
        if isinstance(labels, np.ndarray)
        else isinstance(labels, (list, tuple))
        and (not labels or any(isinstance(text, str) for text in labels))
    ):
        if classes is not None:
            raise ValueError(
                "labels are class numbers, and classes as well; give texts as labels, or no classes"
            )
        classes = labels
        labels = None
        what = "labels"
    if classes is not None:
        tensors["classes"] = _each(classes, what)
    if labels is not None:
        labels = ["" if t is None else t for t in labels]
        if len(labels) != count:
            raise ValueError(
                f"labels are {len(labels)}, not {count}: one for each of the boxes"
            )
        tensors["labels"] = texts(labels, "labels")
        if classes is None:
            tensors["classes"] = torch.tensor(
                [_class_of(text, numbered) for text in labels], dtype=torch.int32
            )
    elif classes is not None and tensors["classes"].device.type == "cpu":
        said = [
            names.get(c, str(c)) if c >= 0 else ""
            for c in tensors["classes"].reshape(-1).tolist()
        ]
        tensors["labels"] = texts(said, "labels")
    elif classes is not None and names:
        tensors["names"] = texts(
            [names.get(n, "") for n in range(max(names) + 1)], "names"
        )
    if get("scores") is not None:
        tensors["scores"] = _flat(floats(get("scores"), "scores"))
    if (
        get("colors") is not None
        and (found := _colors(get("colors"), tensors, numbered)) is not None
    ):
        tensors["colors"] = found


def _class_names(value: Sequence[str] | Mapping[int, str] | None) -> dict[int, str]:
    """Return the names of classes, from a list or a mapping from numbers."""
    if value is None:
        return {}
    try:
        if isinstance(value, str):
            raise TypeError("it is one text")
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        names = {index(number): text for number, text in pairs}
        checks.check_text("".join(names.values()), "names")
    except TypeError as e:
        raise TypeError(
            f"names is {short_repr(value)}, not a list of texts or a mapping from class numbers to texts: {e}"
        ) from None
    if names and not 0 <= min(names) <= max(names) < _MAX_CLASSES:
        raise ValueError(
            f"names has the classes {min(names)} to {max(names)}; legal are 0 to {_MAX_CLASSES - 1}"
        )
    return names


def _class_of(text: str, numbered: Mapping[str, int]) -> int:
    """Return the class of a label: that of its name, or else a number in the order in which texts come; -1 of none."""
    if text in numbered or not text:
        return numbered.get(text, -1)
    if text not in _remembered and len(_remembered) < _MAX_REMEMBERED:
        _remembered[text] = len(_remembered)
    return _remembered.get(text, _MAX_REMEMBERED)


def _each(value: Any, what: str) -> torch.Tensor:
    """Return one whole number of each."""
    return _flat(integers(value, what))


def _flat(found: torch.Tensor) -> torch.Tensor:
    """Return one number of each, which detectors also give as (N, 1), and for a single one as a number."""
    if found.ndim == 2 and found.shape[1] == 1:
        return found[:, 0]
    if found.ndim == 0:
        return found.reshape(1)
    return found


def _colors(
    value: Any, tensors: Tensors, numbered: Mapping[str, int]
) -> torch.Tensor | None:
    """Return (N, 4) uint8 RGBA, from one colour for all, one for each box, or a mapping from classes or their names;
    None if there are no boxes.
    """
    count = len(tensors["boxes"])
    classes = tensors.get("classes")
    if not isinstance(value, Mapping):
        found = _rgba(value)
        return (found.expand(count, 4) if found.ndim == 1 else found).contiguous()
    if classes is None:
        if count:
            raise ValueError(
                "colors is a mapping from classes, and the boxes have none: give labels or classes"
            )
        return None
    known: dict[int, torch.Tensor] = {}
    for key, color in value.items():
        number = _class_of(key, numbered) if isinstance(key, str) else key
        known[checks.integer("a class in colors", number, 0, _MAX_CLASSES - 1)] = _rgba(
            color
        )
    last = max(known, default=-1) + 1
    table = torch.zeros(last + 1, 4, dtype=torch.uint8)  # the last: by class
    for number, color in known.items():
        if color.shape != (4,):
            raise ValueError(
                f"colors has {tuple(color.shape)} numbers for one class; legal are 3 or 4, or '#rrggbb'"
            )
        table[number] = color
    if classes.device.type != "cpu":
        table = table.pin_memory().to(classes.device, non_blocking=True)
    return table[torch.where((classes >= 0) & (classes < last), classes, last).long()]


def _rgba(value: Any) -> torch.Tensor:
    """Return (4,) or (N, 4) uint8 of "#rrggbb", integers from 0 to 255, or floating point from 0 to 1."""
    if isinstance(value, str):
        try:
            if len(value) not in (7, 9) or value[0] != "#":
                raise ValueError
            value = tuple(bytes.fromhex(value[1:]))
        except ValueError:
            raise ValueError(
                f"colors holds {short_repr(value)}; legal are '#rrggbb', '#rrggbbaa', or 3 or 4 numbers"
            ) from None
    elif isinstance(value, (list, tuple)) and any(
        isinstance(color, str) for color in value
    ):
        return torch.stack([_rgba(color) for color in value])
    found = number_tensor(value, "colors", empty=(0, 4))
    if found.is_floating_point():
        found = (found * 255).round().clamp(0, 255).nan_to_num(0)
    elif (
        found.dtype is torch.bool
        or found.is_complex()
        or (
            found.device.type == "cpu"
            and found.numel()
            and not 0 <= int(found.min()) <= int(found.max()) <= 255
        )
    ):
        raise ValueError(
            f"colors hold {short_repr(found.tolist())}; legal are integers from 0 to 255 and floating point "
            "from 0 to 1"
        )
    if found.ndim not in (1, 2) or found.shape[-1] not in (3, 4):
        raise ValueError(
            f"colors have shape {tuple(found.shape)}; legal are (3|4,) and (N, 3|4)"
        )
    found = found.to(torch.uint8)
    if found.shape[-1] == 3:
        return torch.nn.functional.pad(found, (0, 1), value=255)
    return found


# ---- points, lines and notes


def _points(value: Any, skeleton: Any, classes: Any) -> Tensors:
    """Return "points" (M, K, 3), and their "skeleton" and "point_classes" where they are given."""
    if value is None:
        if skeleton is not None or classes is not None:
            raise ValueError(
                f"{'skeleton' if skeleton is not None else 'point_classes'} without points"
            )
        return {}
    found = floats(value, "points", empty=(0, 0, 3))
    if found.ndim == 2:
        found = found[None]
    if found.ndim != 3 or found.shape[2] not in (2, 3):
        raise ValueError(
            f"points have shape {tuple(found.shape)}; legal are (K, 2|3) and (M, K, 2|3): x, y and, if "
            "you like, a confidence or visibility, over 0: seen"
        )
    if found.shape[2] == 2:
        found = torch.nn.functional.pad(found, (0, 1), value=1.0)
    out = {"points": found}
    each = found.shape[1]
    if skeleton is not None and len(found):
        if isinstance(skeleton, str):
            if skeleton != "coco" or each != 17:
                raise ValueError(
                    f"skeleton is {short_repr(skeleton)}, for groups of {each} points; legal are 'coco', for "
                    "17, and pairs of point numbers"
                )
            skeleton = COCO_SKELETON
        pairs = integers(skeleton, "skeleton", 0, empty=(0, 2))
        out["skeleton"] = pairs
        if pairs.device.type == "cpu" and pairs.numel() and int(pairs.max()) >= each:
            raise ValueError(
                f"skeleton names point {int(pairs.max())}; legal are 0 to {each - 1}"
            )
    if classes is not None:
        out["point_classes"] = _each(classes, "point_classes")
    return out


def _lines(value: Any, classes: Any) -> Tensors:
    """Return "lines" (V, 2) with "line_ends" (L,), and "line_classes" where they are given."""
    if value is None:
        if classes is not None:
            raise ValueError("line_classes without lines")
        return {}
    first = value[0] if isinstance(value, (list, tuple)) and len(value) else None
    if first is None or (
        isinstance(first, (list, tuple)) and first and not hasattr(first[0], "__len__")
    ):
        whole = floats(
            value, "lines", empty=(0, 0, 2)
        )  # an array, or one line as a list of points
        whole = whole[None] if whole.ndim == 2 else whole
        if whole.ndim != 3:
            raise ValueError(
                f"lines have shape {tuple(whole.shape)}; legal are (V, 2), (L, V, 2) and lists of (V, 2)"
            )
        found = list(whole)
    else:
        found = [floats(line, f"lines[{n}]") for n, line in enumerate(value)]
    for n, line in enumerate(found):
        if line.ndim != 2 or line.shape[1] != 2 or line.device != found[0].device:
            raise ValueError(
                f"lines[{n}] has shape {tuple(line.shape)} on {line.device}; legal is (V, 2), all on one "
                "device"
            )
    out = {
        "lines": torch.cat(found) if found else torch.empty(0, 2),
        "line_ends": torch.tensor(
            np.cumsum([len(line) for line in found]), dtype=torch.int32
        ),
    }
    if classes is not None:
        out["line_classes"] = _each(classes, "line_classes")
    return out


def _notes(value: Any) -> Tensors:
    """Return "notes_at" (T, 2) with the texts of "notes"."""
    if value is None:
        return {}
    if isinstance(value, str):
        value = [(0.0, 0.0, value)]
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"notes is a {type(value).__name__}, not a text or a list of (x, y, text)"
        )
    places = []
    found = []
    for n, note in enumerate(value):
        try:
            x, y, text = note
            places.append((float(x), float(y)))
        except (TypeError, ValueError):
            raise ValueError(
                f"notes[{n}] is {short_repr(note)}, not (x, y, text)"
            ) from None
        found.append(text)
    return {
        "notes_at": torch.tensor(places, dtype=torch.float32).reshape(-1, 2),
        "notes": texts(found, "notes"),
    }


def _add_words(meta: Meta, get: Callable[[str], Any]) -> None:
    """Add what is shown of the whole."""
    for what, most in _MAX_TEXT.items():
        text = get(what)
        if text is None:
            continue
        if not isinstance(text, str):
            raise TypeError(f"{what} is a {type(text).__name__}, not a text")
        checks.check_text(text, what)
        meta[what] = text if len(text) <= most else text[: most - 3] + "..."
    for what in ("rate_hz", "work_ms"):
        if get(what) is not None:
            meta[what] = checks.real(what, get(what), 0, 2**53)
    if get("skipped") is not None:
        meta["skipped"] = checks.integer("skipped", get("skipped"), 0, 2**53)


def on_one_device(tensors: Tensors, otherwise: str = "cpu") -> tuple[Tensors, str]:
    """Return all on the GPU of some of them, or `otherwise`, and which that is. Waits for no GPU. Raises ValueError."""
    gpus = sorted({str(t.device) for t in tensors.values() if t.is_cuda})
    if len(gpus) > 1:
        raise ValueError(
            f"tensors on several GPUs ({', '.join(gpus)}): put all on one, or on the CPU"
        )
    device = gpus[0] if gpus else otherwise
    if device != "cpu":
        tensors = {
            name: t
            if t.is_cuda
            else t.contiguous().pin_memory().to(device, non_blocking=True)
            for name, t in tensors.items()
        }
    return tensors, device
