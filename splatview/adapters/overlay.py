"""What is drawn over another stream's picture: from what callers say to an overlay frame."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch

from splatview.adapters.overlay_masks import masks as adapted_masks
from splatview.adapters.overlay_values import (
    Names,
    boxes,
    colors,
    floats,
    is_texts,
    named,
    numbers,
    per_box,
    shown,
    texts,
)
from splatview.adapters.tensors import shape_text
from splatview_ipc.kinds.overlay import OVERLAY_MOST
from splatview_ipc.shm.segment import round_up
from splatview_ipc.shm.slot_layout import ALIGN
from splatview_ipc.system.terminal import check_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    Tensors = dict[str, torch.Tensor]
    Meta = dict[str, Any]

OPTIONS = ("classes", "names", "colors", "point_classes", "skeleton", "lines", "line_classes", "notes", "size",
           "format", "motion", "run", "by", "rate_hz", "work_ms", "skipped", "trouble")
"""What `annotate` takes beside its parameters."""
_BY, _TROUBLE = 100, 400
"""Characters of these texts that are kept."""
COCO_SKELETON = ((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9),
                 (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6))
"""Which of COCO's 17 points of a person are joined."""


def adapted(given: Mapping[str, Any]) -> tuple[Tensors, Meta]:
    """The tensors of an overlay frame, on the CPU and on GPUs, and its metadata but for what it was computed on.

    `given`: what `annotate` was called with, by name. Raises TypeError, ValueError.
    """
    get = given.get
    tensors: Tensors = {}
    meta: Meta = {"width": 0, "height": 0, "mask_width": 0, "mask_height": 0, "motion": False}
    size = _size(get("size"))
    if size is not None:
        meta["width"], meta["height"] = size
    names = named(get("names"))
    masks = get("masks")
    if get("boxes") is not None:
        found = tensors["boxes"] = boxes(get("boxes"), get("format"))
        if lost := _not_finite(found):
            meta["trouble"] = f"{lost} of {len(found)} boxes are not finite, and not drawn"
    if masks is not None:
        found = adapted_masks(masks, size)
        if "boxes" in tensors and len(tensors["boxes"]) != found.count:
            raise ValueError(f"masks are {found.count}, not {len(tensors['boxes'])}: one for each of the boxes")
        if "boxes" not in tensors:
            around = tensors["boxes"] = found.extents()
            if size is None:
                meta["width"], meta["height"] = found.width, found.height
            elif found.count:
                around *= _factors(size, found.width, found.height, around.device)
        if "runs" in found.tensors:
            meta["mask_width"], meta["mask_height"] = found.width, found.height
        tensors |= found.tensors
    _describe_boxes(tensors, get, names, meta)
    _add_points(tensors, get)
    _add_lines(tensors, get)
    _add_notes(tensors, get)
    _add_words(meta, get)
    return tensors, meta


def _not_finite(found: torch.Tensor) -> int:
    """How many boxes on the CPU are not finite. Those on a GPU are not looked at."""
    if found.device.type != "cpu" or isfinite(found.sum(dtype=torch.float64)):  # which is not if one of them is not
        return 0
    return int((~found.isfinite()).any(1).sum())


def _describe_boxes(tensors: Tensors, get: Any, names: Names, meta: Meta) -> None:
    """Classes, scores, labels and colours."""
    if "boxes" not in tensors:
        if wrong := [what for what in ("labels", "scores", "classes", "colors") if get(what) is not None]:
            raise ValueError(f"{' and '.join(wrong)} without boxes or masks: there is nothing that they belong to")
        tensors["boxes"] = torch.empty(0, 4)
        return
    count = len(tensors["boxes"])
    if count > OVERLAY_MOST["boxes"]:
        raise ValueError(f"an overlay of {count} boxes; at most {OVERLAY_MOST['boxes']}")
    labels, classes = get("labels"), get("classes")
    if isinstance(labels, str):
        labels = [labels] * count
    if labels is not None and not is_texts(labels):
        if classes is not None:
            raise ValueError("labels are class numbers, and classes as well; give texts as labels, or no classes")
        labels, classes = None, labels
    if classes is not None:
        tensors["classes"] = per_box(numbers(classes, "labels" if get("classes") is None else "classes"), count,
                                     "labels" if get("classes") is None else "classes")
    if labels is not None:
        labels = ["" if t is None else t for t in labels]
        if len(labels) != count:
            raise ValueError(f"labels are {len(labels)}, not {count}: one for each of the boxes")
        tensors["labels"] = texts(labels, "labels")
        if classes is None:
            tensors["classes"] = torch.tensor([names.number(t) for t in labels], dtype=torch.int32)
    elif classes is not None:
        on_cpu = tensors["classes"].device.type == "cpu"
        if on_cpu:
            tensors["labels"] = texts([names.text(c) for c in tensors["classes"].tolist()], "labels")
        elif names.by_number:
            tensors["names"] = names.packed()
    if get("scores") is not None:
        tensors["scores"] = per_box(floats(get("scores"), "scores"), count, "scores")
    if get("colors") is not None:
        found = colors(get("colors"), count, tensors.get("classes"), names)
        if found is not None:
            tensors["colors"] = found


def _add_points(tensors: Tensors, get: Any) -> None:
    value, skeleton, classes = get("points"), get("skeleton"), get("point_classes")
    if value is None:
        if skeleton is not None or classes is not None:
            raise ValueError(f"{'skeleton' if skeleton is not None else 'point_classes'} without points")
        return
    found = floats(value, "points")
    if found.ndim == 2:
        found = found[None]
    if found.ndim == 1 and not found.numel():
        found = found.reshape(0, 0, 3)
    if found.ndim != 3 or found.shape[2] not in (2, 3):
        raise ValueError(f"points have shape {shape_text(found)}; legal are (K, 2|3) and (M, K, 2|3): x, y and, if you "
                         "like, a confidence or visibility, over 0: seen")
    if found.shape[2] == 2:
        found = torch.nn.functional.pad(found, (0, 1), value=1.0)
    tensors["points"] = found
    groups, each = found.shape[:2]
    if skeleton is not None and groups:
        tensors["skeleton"] = _skeleton(skeleton, each)
    if classes is not None:
        tensors["point_classes"] = per_box(numbers(classes, "point_classes"), groups, "point_classes",
                                           "groups of points")
    elif groups and "classes" in tensors and groups == len(tensors["boxes"]):
        tensors["point_classes"] = tensors["classes"].clone()


def _skeleton(value: Any, each: int) -> torch.Tensor:
    if isinstance(value, str):
        if value != "coco":
            raise ValueError(f"skeleton is {shown(value)}; legal are 'coco' and pairs of point numbers from 0 on")
        if each != 17:
            raise ValueError(f"skeleton 'coco' joins 17 points, and there are {each} in a group")
        value = COCO_SKELETON
    found = numbers(value, "skeleton", 0)
    if found.ndim != 2 or found.shape[1] != 2:
        if not found.numel():
            return torch.empty(0, 2, dtype=torch.int32)
        raise ValueError(f"skeleton has shape {shape_text(found)}, not (E, 2): pairs of point numbers")
    if found.device.type == "cpu" and found.numel() and int(found.max()) >= each:
        raise ValueError(f"skeleton names point {int(found.max())}; legal are 0 to {each - 1}")
    return found


def _add_lines(tensors: Tensors, get: Any) -> None:
    value, classes = get("lines"), get("line_classes")
    if value is None:
        if classes is not None:
            raise ValueError("line_classes without lines")
        return
    whole = _one_array(value)
    if whole is not None:
        if not whole.numel():
            whole = torch.empty(0, 0, 2)
        if whole.ndim == 2:
            whole = whole[None]
        if whole.ndim != 3 or whole.shape[2] != 2:
            raise ValueError(f"lines have shape {shape_text(whole)}; legal are (V, 2), (L, V, 2) and lists of (V, 2)")
        count, each = whole.shape[:2]
        tensors["lines"] = whole.reshape(-1, 2)
        tensors["line_ends"] = torch.arange(1, count + 1, dtype=torch.int32) * each
    else:
        found = [floats(line, f"lines[{n}]") for n, line in enumerate(value)]
        for n, line in enumerate(found):
            if line.ndim != 2 or line.shape[1] != 2:
                raise ValueError(f"lines[{n}] has shape {shape_text(line)}, not (V, 2)")
        if len({line.device for line in found}) > 1:
            raise ValueError(f"lines lie on {', '.join(sorted({str(t.device) for t in found}))}; put all on one")
        count = len(found)
        tensors["lines"] = torch.cat(found)
        tensors["line_ends"] = torch.tensor(np.cumsum([len(line) for line in found]), dtype=torch.int32)
    if classes is not None:
        tensors["line_classes"] = per_box(numbers(classes, "line_classes"), count, "line_classes", "lines")


def _one_array(value: Any) -> torch.Tensor | None:
    """Lines that are one array; None if they are of different lengths, or an array each."""
    if not isinstance(value, (list, tuple)):
        return floats(value, "lines")
    if not len(value):
        return torch.empty(0, 2)
    first = value[0]
    if isinstance(first, (list, tuple)) and first and not hasattr(first[0], "__len__"):
        return floats(value, "lines")  # one line, as a list of points
    return None


def _add_notes(tensors: Tensors, get: Any) -> None:
    value = get("notes")
    if value is None:
        return
    if isinstance(value, str):
        value = [(0.0, 0.0, value)]
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"notes is a {type(value).__name__}, not a text or a list of (x, y, text)")
    places, found = [], []
    for n, note in enumerate(value):
        try:
            x, y, text = note
            places.append((float(x), float(y)))
        except (TypeError, ValueError):
            raise ValueError(f"notes[{n}] is {shown(note)}, not (x, y, text)") from None
        found.append(text)
    tensors["notes_at"] = torch.tensor(places, dtype=torch.float32).reshape(-1, 2)
    tensors["notes"] = texts(found, "notes")


def _add_words(meta: Meta, get: Any) -> None:
    """What is said of the whole."""
    motion = get("motion")
    if motion is not None:
        if not isinstance(motion, (bool, np.bool_)):
            raise TypeError(f"motion is {shown(motion)}, not True or False")
        meta["motion"] = bool(motion)
    for what, most in (("by", _BY), ("trouble", _TROUBLE)):
        text = get(what)
        if text is None:
            continue
        if not isinstance(text, str):
            raise TypeError(f"{what} is a {type(text).__name__}, not a text")
        check_text(text, what)
        meta[what] = text if len(text) <= most else text[: most - 3] + "..."
    for what in ("rate_hz", "work_ms", "skipped"):
        value = get(what)
        if value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"{what} is a {type(value).__name__}, not a number") from None
        if not 0 <= number < 2**53:
            raise ValueError(f"{what} is {number}; legal are numbers from 0 on")
        meta[what] = int(number) if what == "skipped" else number


def _size(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    most = OVERLAY_MOST["side"]
    try:
        width, height = (int(side) for side in value)
    except (TypeError, ValueError):
        raise TypeError(f"size is {shown(value)}, not (width, height)") from None
    if not (1 <= width <= most and 1 <= height <= most):
        raise ValueError(f"size is {(width, height)}; legal are 1 to {most}, and (1, 1) for coordinates from 0 to 1")
    return width, height


def _factors(size: tuple[int, int], width: int, height: int, device: torch.device) -> torch.Tensor:
    found = torch.tensor((size[0] / width, size[1] / height) * 2, dtype=torch.float32)
    return found if device.type == "cpu" else found.pin_memory().to(device, non_blocking=True)


def together(tensors: Tensors, device: torch.device) -> Tensors:
    """All on one GPU, without waiting for it: what lies on the CPU goes there in one piece. Raises ValueError."""
    here = {name: t for name, t in tensors.items() if t.device.type == "cpu"}
    for name, t in tensors.items():
        if name not in here and t.device != device:
            _refuse_devices(tensors)
    offsets, end = [], 0
    for t in here.values():
        offsets.append(end)
        end = round_up(end + t.nbytes, ALIGN)
    if not end:
        return {name: t.to(device) for name, t in tensors.items()}
    buffer = torch.empty(end, dtype=torch.uint8, pin_memory=True)
    for offset, t in zip(offsets, here.values(), strict=True):
        buffer[offset : offset + t.nbytes].copy_(t.contiguous().view(-1).view(torch.uint8))
    there = buffer.to(device, non_blocking=True)
    return tensors | {name: there[offset : offset + t.nbytes].view(t.dtype).view(t.shape)
                      for offset, (name, t) in zip(offsets, here.items(), strict=True)}


def _refuse_devices(tensors: Tensors) -> NoReturn:
    places = "; ".join(f"{name} on {t.device}" for name, t in tensors.items())
    raise ValueError(f"what is drawn over one picture lies on several GPUs ({places}): put all on one, or on the CPU")


def device_of(tensors: Tensors) -> torch.device | None:
    """The GPU that some of them lie on; None: all on the CPU."""
    return next((t.device for t in tensors.values() if t.device.type != "cpu"), None)
