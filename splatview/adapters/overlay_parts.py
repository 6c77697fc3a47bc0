"""The parts of an overlay frame. All raise TypeError, ValueError for what cannot be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from splatview.adapters.metadata import check_text
from splatview.adapters.tensors import shape_text
from splatview.adapters.values import array, floats, numbers, shown, texts
from splatview_ipc.kinds.overlay import OVERLAY_MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

COCO_SKELETON = ((15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9),
                 (8, 10), (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6))
"""Which of COCO's 17 points of a person are joined."""
BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
_MAX_CLASSES = 10_000
"""Classes that may have a name or a colour."""
_MAX_REMEMBERED = 4096
_MASKS = ("a tensor (N, h, w) of bool, uint8 or floating point, a list of COCO's {'size': [h, w], 'counts': ...}, or a "
          "list of run lengths for each box")
_DECODED_BYTES = 1 << 26
"""Masks that come as runs are sampled where all of them together would take more."""
_LONGEST = 7
"""Characters of one number of compressed counts: 35 bits."""


def boxes(value: Any, form: str | None) -> torch.Tensor:
    """Return (N, 4) x0 y0 x1 y1."""
    if form is not None and (not isinstance(form, str) or form not in BOX_FORMATS):
        raise ValueError(f"format is {shown(form)}, not one of {', '.join(map(repr, BOX_FORMATS))}")
    found = floats(value, "boxes")
    if found.ndim == 1 and found.shape[0] in (0, 4):
        found = found.reshape(-1, 4)
    if found.ndim != 2 or found.shape[1] != 4:
        mend = ": the first four columns are boxes[:, :4]" if found.ndim == 2 and found.shape[1] > 4 else ""
        raise ValueError(f"boxes have shape {shape_text(found)}, not (N, 4){mend}")
    if form in (None, "xyxy"):
        return found
    first, extent = found[:, :2], found[:, 2:]
    if form == "cxcywh":
        first = first - extent / 2
    return torch.cat((first, first + extent), 1)


def flat(found: torch.Tensor) -> torch.Tensor:
    """Return one number of each, which detectors also give as (N, 1), and for a single one as a number."""
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found.reshape(1) if found.ndim == 0 else found


# ---- masks


def masks(value: Any, size: tuple[int, int] | None) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return masks in any of the forms as (N, h, w) uint8, and the width and height of the picture that they are of.

    `size`: the picture's width and height, if the caller gave it. A tensor of bytes or bools is not copied.
    """
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, (list, tuple)) and len(value):
        if any(isinstance(mask, Mapping) for mask in value):
            for n, mask in enumerate(value):
                if not isinstance(mask, Mapping) or "counts" not in mask or "size" not in mask:
                    raise ValueError(f"masks[{n}] is no mapping with 'size' and 'counts', as others are")
                try:
                    height, width = map(index, mask["size"])
                except (TypeError, ValueError):
                    raise ValueError(f"masks[{n}]['size'] is {shown(mask['size'])}, not [height, width]") from None
                if n and (width, height) != size:
                    raise ValueError(f"masks[{n}] is of size {shown(mask['size'])}, and masks[0] of "
                                     f"{shown(value[0]['size'])}; all are of one size")
                size = width, height
            assert size is not None
            return _decoded([mask["counts"] for mask in value], *size), size
        if all(isinstance(mask, (list, tuple, np.ndarray)) and np.ndim(mask[:1]) == 1 for mask in value):
            if size is None:
                raise ValueError("masks are lists of runs: size=(width, height) says of which picture")
            return _decoded(list(value), *size), size
    found = array(value, "masks")
    if found.ndim == 4 and found.shape[1] == 1:  # as torchvision's models give them
        found = found[:, 0]
    if found.ndim == 2:
        found = found[None]
    if found.ndim == 1 and not found.numel():
        found = found.reshape(0, 0, 0)
    if found.ndim != 3 or (len(found) and not found.numel()):
        raise ValueError(f"masks have shape {shape_text(found)}; legal are {_MASKS}")
    if found.is_complex():
        raise TypeError(f"masks are complex; legal are {_MASKS}")
    size = found.shape[2], found.shape[1]
    if found.numel() > OVERLAY_MOST["mask_bytes"]:
        raise ValueError(f"an overlay of {found.numel()} bytes of masks; at most {OVERLAY_MOST['mask_bytes']}")
    if found.dtype is torch.bool:
        return found.contiguous().view(torch.uint8), size
    if found.dtype is not torch.uint8:
        found = (found > 0.5 if found.is_floating_point() else found != 0).view(torch.uint8)
    return found, size


def _decoded(found: list[Any], width: int, height: int) -> torch.Tensor:
    """Return the masks of run lengths: outside and inside by turns, column by column, as COCO counts them."""
    side, most = OVERLAY_MOST["side"], OVERLAY_MOST["mask_bytes"]
    if not (0 < width <= side and 0 < height <= side and width * height <= most):
        raise ValueError(f"masks of {width}x{height} pixels; legal are 1 to {side} along each side, {most} in all")
    step = math.ceil(math.sqrt(len(found) * width * height / _DECODED_BYTES))
    out = np.empty((len(found), -(-height // step), -(-width // step)), bool)
    for n, given in enumerate(found):
        try:
            counts = _uncompressed(given) if isinstance(given, (str, bytes)) else np.asarray(given)
            if counts.size and (counts.dtype.kind not in "iu" or counts.ndim != 1):
                raise TypeError(f"they are {counts.dtype} of {counts.ndim} dimensions")
        except (TypeError, ValueError) as e:
            raise ValueError(f"the runs of masks[{n}] are no list of integers: {e}") from None
        counts = counts.astype(np.int64) if counts.size else np.array([width * height])  # nothing is inside
        if int(counts.min()) < 0 or int(counts.max()) > width * height or int(counts.sum()) != width * height:
            raise ValueError(f"the runs of masks[{n}] sum up to {int(counts.sum())} and none may be below 0; "
                             f"a mask of {width}x{height} pixels has {width * height}")
        inside = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
        out[n] = inside.reshape(width, height).T[::step, ::step]
    return torch.from_numpy(out).view(torch.uint8)


def _uncompressed(counts: str | bytes) -> np.ndarray:
    """Return what pycocotools compressed: five bits a character, each from the third on less the last but one."""
    coded = counts.encode("ascii") if isinstance(counts, str) else counts
    raw = np.frombuffer(coded, np.uint8).astype(np.int64) - 48
    if not len(raw):
        return np.zeros(0, np.int64)
    last = np.flatnonzero(raw & 0x20 == 0)
    first = np.concatenate(([0], last[:-1] + 1)) if len(last) else last
    if raw.min() < 0 or raw.max() > 63 or not len(last) or last[-1] != len(raw) - 1 or (last - first).max() >= _LONGEST:
        raise ValueError("they are not compressed as pycocotools does it")
    place = np.arange(len(raw)) - np.repeat(first, last - first + 1)
    values = np.add.reduceat((raw & 0x1f) << (5 * place), first)
    values -= np.where(raw[last] & 0x10, 1 << (5 * (last - first + 1)), 0)
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def extents(found: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Return (N, 4) float32: x0 y0 x1 y1 of the inside of masks, in a picture of this size; NaN where nothing is."""
    if not len(found):
        return torch.empty(0, 4)
    sides = []
    for across, extent in ((1, size[0]), (2, size[1])):  # over rows there is x, over columns y
        there = found.amax(across).bool()
        first = there.to(torch.uint8).argmax(1)
        last = there.shape[1] - there.flip(1).to(torch.uint8).argmax(1)
        sides += [side.to(torch.float32).masked_fill(~there.any(1), math.nan) * (extent / there.shape[1])
                  for side in (first, last)]
    x0, x1, y0, y1 = sides
    return torch.stack((x0, y0, x1, y1), 1)


# ---- points, lines and notes


def points(value: Any, skeleton: Any, classes: Any) -> dict[str, torch.Tensor]:
    """Return "points" (M, K, 3), and their "skeleton" and "point_classes" where they are given."""
    if value is None:
        if skeleton is not None or classes is not None:
            raise ValueError(f"{'skeleton' if skeleton is not None else 'point_classes'} without points")
        return {}
    found = floats(value, "points")
    if found.ndim == 2:
        found = found[None]
    if found.ndim == 1 and not found.numel():
        found = found.reshape(0, 0, 3)
    if found.ndim == 3 and found.shape[2] == 2:
        found = torch.nn.functional.pad(found, (0, 1), value=1.0)
    if found.ndim != 3 or found.shape[2] != 3:
        raise ValueError(f"points have shape {shape_text(found)}; legal are (K, 2|3) and (M, K, 2|3): x, y and, if you "
                         "like, a confidence or visibility, over 0: seen")
    out, each = {"points": found}, found.shape[1]
    if skeleton is not None and len(found):
        if isinstance(skeleton, str):
            if skeleton != "coco" or each != 17:
                raise ValueError(f"skeleton is {shown(skeleton)}, for groups of {each} points; legal are 'coco', for "
                                 "17, and pairs of point numbers")
            skeleton = COCO_SKELETON
        pairs = numbers(skeleton, "skeleton", 0)
        if pairs.device.type == "cpu" and pairs.numel() and int(pairs.max()) >= each:
            raise ValueError(f"skeleton names point {int(pairs.max())}; legal are 0 to {each - 1}")
        out["skeleton"] = pairs if pairs.numel() else pairs.reshape(0, 2)
    if classes is not None:
        out["point_classes"] = flat(numbers(classes, "point_classes"))
    return out


def lines(value: Any, classes: Any) -> dict[str, torch.Tensor]:
    """Return "lines" (V, 2) with "line_ends" (L,), and "line_classes" where they are given."""
    if value is None:
        if classes is not None:
            raise ValueError("line_classes without lines")
        return {}
    first = value[0] if isinstance(value, (list, tuple)) and len(value) else None
    if first is None or (isinstance(first, (list, tuple)) and first and not hasattr(first[0], "__len__")):
        whole = floats(value, "lines")  # an array, or one line as a list of points
        whole = whole.reshape(0, 0, 2) if not whole.numel() else whole[None] if whole.ndim == 2 else whole
        if whole.ndim != 3:
            raise ValueError(f"lines have shape {shape_text(whole)}; legal are (V, 2), (L, V, 2) and lists of (V, 2)")
        found = list(whole)
    else:
        found = [floats(line, f"lines[{n}]") for n, line in enumerate(value)]
    for n, line in enumerate(found):
        if line.ndim != 2 or line.shape[1] != 2:
            raise ValueError(f"lines[{n}] has shape {shape_text(line)}, not (V, 2)")
        if line.device != found[0].device:
            raise ValueError(f"lines lie on {found[0].device} and {line.device}; put all on one")
    out = {"lines": torch.cat(found) if found else torch.empty(0, 2),
           "line_ends": torch.tensor(np.cumsum([len(line) for line in found]), dtype=torch.int32)}
    if classes is not None:
        out["line_classes"] = flat(numbers(classes, "line_classes"))
    return out


def notes(value: Any) -> dict[str, torch.Tensor]:
    """Return "notes_at" (T, 2) with the texts of "notes"."""
    if value is None:
        return {}
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
    return {"notes_at": torch.tensor(places, dtype=torch.float32).reshape(-1, 2), "notes": texts(found, "notes")}


# ---- classes and colours


class Names:
    """Names of classes: a list, or a mapping from numbers."""

    _last: tuple[Any, Names] | None = None
    _remembered: dict[str, int] = {}  # noqa: RUF012
    """The class number of each text that was used as a label without one, so that it keeps its colour."""

    def __init__(self, value: Sequence[str] | Mapping[int, str] | None):
        self.by_number: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        if value is None:
            return
        try:
            if isinstance(value, str):
                raise TypeError("it is one text")
            pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
            self.by_number = {index(number): text for number, text in pairs}
        except TypeError as e:
            raise TypeError(f"names is a {type(value).__name__}, not a list of texts or a mapping from class numbers "
                            f"to texts: {e}") from None
        for number, text in self.by_number.items():
            if not isinstance(text, str):
                raise TypeError(f"names[{number}] is a {type(text).__name__}, not a text")
            check_text(text, f"names[{number}]")
            if not 0 <= number < _MAX_CLASSES:
                raise ValueError(f"names has the class {number}; legal are 0 to {_MAX_CLASSES - 1}")
            self._numbers.setdefault(text, number)

    @classmethod
    def of(cls, value: Sequence[str] | Mapping[int, str] | None) -> Names:
        """Return the names of `value`, which is nearly always equal to the one before."""
        if cls._last is None or type(value) is not type(cls._last[0]) or value != cls._last[0]:
            names = cls(value)
            if not isinstance(value, (list, tuple, dict, type(None))):
                return names
            cls._last = copy(value), names
        return cls._last[1]

    def number(self, text: str) -> int:
        """Return the class of this name. Other texts get numbers in the order in which they come."""
        if text in self._numbers or not text:
            return self._numbers.get(text, -1)
        known = self._remembered
        if text not in known and len(known) < _MAX_REMEMBERED:
            known[text] = len(known)
        return known.get(text, _MAX_REMEMBERED)

    def text(self, number: int) -> str:
        """Return the name of a class, or else its number."""
        return self.by_number.get(number, str(number)) if number >= 0 else ""

    def packed(self) -> torch.Tensor:
        """Return the texts of all classes from 0 on."""
        return texts([self.by_number.get(n, "") for n in range(max(self.by_number, default=-1) + 1)], "names")


def colors(value: Any, count: int, classes: torch.Tensor | None, names: Names) -> torch.Tensor | None:
    """Return (N, 4) uint8 RGBA, from one colour for all, one for each box, or a mapping from classes or their names;
    None if there are no boxes."""
    if not isinstance(value, Mapping):
        found = _rgba(value)
        return (found.expand(count, 4) if found.ndim == 1 else found).contiguous()
    if classes is None:
        if count:
            raise ValueError("colors is a mapping from classes, and the boxes have none: give labels or classes")
        return None
    known = {names.number(key) if isinstance(key, str) else index(key): _rgba(color) for key, color in value.items()}
    if wrong := [number for number in known if not 0 <= number < _MAX_CLASSES]:
        raise ValueError(f"colors has the class {wrong[0]}; legal are 0 to {_MAX_CLASSES - 1}")
    last = max(known, default=-1) + 1
    table = torch.zeros(last + 1, 4, dtype=torch.uint8)  # the last: by class
    for number, color in known.items():
        if color.shape != (4,):
            raise ValueError(f"colors has {shape_text(color)} numbers for one class; legal are 3 or 4, or '#rrggbb'")
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
            raise ValueError(f"colors holds {shown(value)}; legal are '#rrggbb', '#rrggbbaa', or 3 or 4 numbers"
                             ) from None
    elif isinstance(value, (list, tuple)) and any(isinstance(color, str) for color in value):
        return torch.stack([_rgba(color) for color in value])
    found = array(value, "colors")
    if found.is_floating_point():
        found = (found * 255).round().clamp(0, 255).nan_to_num(0)
    elif found.dtype is torch.bool or found.is_complex() or (
            found.device.type == "cpu" and found.numel() and not 0 <= int(found.min()) <= int(found.max()) <= 255):
        raise ValueError(f"colors hold {shown(found.tolist())}; legal are integers from 0 to 255 and floating point "
                         "from 0 to 1")
    if not found.numel():
        return torch.empty(0, 4, dtype=torch.uint8)
    if found.ndim not in (1, 2) or found.shape[-1] not in (3, 4):
        raise ValueError(f"colors have shape {shape_text(found)}; legal are (3|4,) and (N, 3|4)")
    found = found.to(torch.uint8)
    return torch.nn.functional.pad(found, (0, 1), value=255) if found.shape[-1] == 3 else found
