"""Masks of boxes: tensors, or lengths of runs as COCO writes them, as an overlay frame holds them (`ipc.kinds`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
import torch

from splatview.adapters.overlay_values import array, shown
from splatview.adapters.tensors import shape_text
from splatview_ipc.kinds.overlay import OVERLAY_MOST

_LEGAL = ("a tensor (N, h, w) of bool, uint8 or floating point, a list of COCO's {'size': [h, w], 'counts': ...}, or a "
          "list of run lengths for each box")
_LONGEST = 7
"""Characters of one number of compressed counts: 35 bits."""


@dataclass(frozen=True)
class Masks:
    """The masks of N boxes."""

    tensors: dict[str, torch.Tensor]
    """"masks" (N, h, w) uint8, or "runs" and "run_ends"."""
    count: int
    width: int
    height: int

    def extents(self) -> torch.Tensor:
        """(N, 4) float32: x0 y0 x1 y1 of what lies inside, in the masks' pixels; NaN where nothing does."""
        if not self.count:
            return torch.empty(0, 4)
        if "masks" in self.tensors:
            return _extents_of_masks(self.tensors["masks"])
        runs, ends = self.tensors["runs"].numpy(), self.tensors["run_ends"].tolist()
        found = [_extent_of_runs(runs[begin:end], self.height) for begin, end in zip([0, *ends], ends, strict=False)]
        return torch.tensor(found, dtype=torch.float32).reshape(-1, 4)


def masks(value: Any, size: tuple[int, int] | None) -> Masks:
    """Masks in any of the forms. `size`: the picture's width and height, if the caller said it.

    A tensor of bytes or bools is not copied. Raises TypeError, ValueError.
    """
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, (list, tuple)) and len(value):
        if any(isinstance(mask, Mapping) for mask in value):
            return _coco(value)
        if all(_is_runs(mask) for mask in value):
            if size is None:
                raise ValueError("masks are lists of runs: size=(width, height) says of which picture")
            return _runs([_lengths(mask, n) for n, mask in enumerate(value)], *size)
    return _dense(array(value, "masks"))


def _dense(found: torch.Tensor) -> Masks:
    if found.ndim == 4 and found.shape[1] == 1:  # as torchvision's models give them
        found = found[:, 0]
    if found.ndim == 2:
        found = found[None]
    if found.ndim == 1 and not found.numel():
        found = found.reshape(0, 0, 0)
    if found.ndim != 3 or (len(found) and not found.numel()):
        raise ValueError(f"masks have shape {shape_text(found)}; legal are {_LEGAL}")
    n, h, w = found.shape
    _bound("bytes of masks", n * h * w, OVERLAY_MOST["mask_bytes"])
    _bound("pixels along a mask", max(h, w), OVERLAY_MOST["side"])
    if found.dtype is torch.bool:
        found = found.contiguous().view(torch.uint8)
    elif found.is_floating_point():
        found = (found > 0.5).view(torch.uint8)
    elif found.is_complex():
        raise TypeError(f"masks are complex; legal are {_LEGAL}")
    elif found.dtype is not torch.uint8:
        found = (found != 0).view(torch.uint8)
    return Masks({"masks": found} if n else {}, n, w, h)


def _is_runs(mask: Any) -> bool:
    """Whether this is a list of numbers; a mask itself is a list of rows."""
    if isinstance(mask, (list, tuple)):
        return not any(hasattr(part, "__len__") or getattr(part, "ndim", 0) for part in mask[:1])
    return isinstance(mask, np.ndarray) and mask.ndim == 1


def _coco(value: Any) -> Masks:
    width = height = -1
    found = []
    for n, mask in enumerate(value):
        if not isinstance(mask, Mapping) or "counts" not in mask or "size" not in mask:
            raise ValueError(f"masks[{n}] is no mapping with 'size' and 'counts', as others are")
        try:
            h, w = map(index, mask["size"])
        except (TypeError, ValueError):
            raise ValueError(f"masks[{n}]['size'] is {shown(mask['size'])}, not [height, width]") from None
        if width < 0:
            width, height = w, h
        if (w, h) != (width, height):
            raise ValueError(f"masks[{n}] is of size {[h, w]}, and masks[0] of {[height, width]}; all are of one size")
        counts = mask["counts"]
        found.append(_decompressed(counts, n) if isinstance(counts, (str, bytes)) else _lengths(counts, n))
    return _runs(found, width, height)


def _lengths(value: Any, n: int) -> np.ndarray:
    """The runs of a mask, whatever their values. Raises ValueError."""
    try:
        found = np.asarray(value)
        if found.size == 0:
            return np.zeros(0, np.int64)
        if found.dtype.kind not in "iu" or found.ndim != 1:
            raise TypeError(f"they are {found.dtype} of {found.ndim} dimensions")
        return found.astype(np.int64)
    except (TypeError, ValueError) as e:
        raise ValueError(f"the runs of masks[{n}] are no list of integers: {e}") from None


def _decompressed(counts: str | bytes, n: int) -> np.ndarray:
    """The runs that pycocotools compressed: five bits a character, each from the third on less the last but one."""
    try:
        coded = counts.encode("ascii") if isinstance(counts, str) else counts
    except UnicodeEncodeError:
        raise ValueError(f"the compressed counts of masks[{n}] hold characters that are no ASCII") from None
    raw = np.frombuffer(coded, np.uint8).astype(np.int64) - 48
    if not len(raw):
        return np.zeros(0, np.int64)
    last = np.flatnonzero(raw & 0x20 == 0)
    first = np.concatenate(([0], last[:-1] + 1)) if len(last) else last
    if raw.min() < 0 or raw.max() > 63 or not len(last) or last[-1] != len(raw) - 1 or (last - first).max() >= _LONGEST:
        raise ValueError(f"the compressed counts of masks[{n}] are not as pycocotools writes them")
    place = np.arange(len(raw)) - np.repeat(first, last - first + 1)
    values = np.add.reduceat((raw & 0x1f) << (5 * place), first)
    values -= np.where(raw[last] & 0x10, 1 << (5 * (last - first + 1)), 0)
    values[1::2] = np.cumsum(values[1::2])
    values[2::2] = np.cumsum(values[2::2])
    return values


def _runs(found: list[np.ndarray], width: int, height: int) -> Masks:
    most = OVERLAY_MOST["side"]
    if not (0 < width <= most and 0 < height <= most):
        raise ValueError(f"masks of {width}x{height} pixels; legal are 1 to {most} along each side")
    for n, runs in enumerate(found):
        if not len(runs):
            found[n] = np.array([width * height])  # nothing is inside
        elif int(runs.min()) < 0 or int(runs.max()) > width * height or int(runs.sum()) != width * height:
            raise ValueError(f"the runs of masks[{n}] sum up to {int(runs.sum())} and none may be below 0; "
                             f"a mask of {width}x{height} pixels has {width * height}")
    ends = np.cumsum([len(runs) for runs in found])
    _bound("runs", int(ends[-1]), OVERLAY_MOST["runs"])
    return Masks({"runs": torch.from_numpy(np.concatenate(found).astype(np.int32)),
                  "run_ends": torch.from_numpy(ends.astype(np.int32))}, len(found), width, height)


def _bound(what: str, count: int, most: int) -> None:
    if count > most:
        raise ValueError(f"an overlay of {count} {what}; at most {most}")


def _extents_of_masks(found: torch.Tensor) -> torch.Tensor:
    sides = []
    for across in (1, 2):  # over rows there is x, over columns y
        there = found.amax(across).bool()
        first = there.to(torch.uint8).argmax(1)
        last = there.shape[1] - there.flip(1).to(torch.uint8).argmax(1)
        empty = ~there.any(1)
        sides += [side.to(torch.float32).masked_fill(empty, float("nan")) for side in (first, last)]
    x0, x1, y0, y1 = sides
    return torch.stack((x0, y0, x1, y1), 1)


def _extent_of_runs(runs: np.ndarray, height: int) -> tuple[float, float, float, float]:
    ends = np.cumsum(runs, dtype=np.int64)
    begins, ends = ends[0:-1:2], ends[1::2]  # of what is inside
    begins, ends = begins[ends > begins], ends[ends > begins]
    if not len(begins):
        return np.nan, np.nan, np.nan, np.nan
    x0, x1 = begins[0] // height, (ends[-1] - 1) // height + 1
    if ((ends - 1) // height > begins // height).any():  # over the end of a column
        return float(x0), 0.0, float(x1), float(height)
    return float(x0), float((begins % height).min()), float(x1), float(((ends - 1) % height).max() + 1)
