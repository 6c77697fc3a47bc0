"""Masks of boxes: the part of each that matters, cut out at a size that can be drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 1000
"""Masks in one picture."""
_TEXELS = 1 << 22
"""Of all masks of one picture together; larger ones are made coarser."""
_WRITTEN = 1 << 25
"""Pixels of runs that are written out for one picture; of those beyond only samples are looked at."""
_SAMPLES = 128
"""The same, along each side."""
_MARGIN = 0.05
"""Of a box, by which its mask may reach out of it."""
_COARSE = 16
"""Pixels between two looks for what lies outside a box."""

Area = tuple[int, int, int, int]
"""x0 y0 x1 y1, the last two not included."""


@dataclass
class Mask:
    """A part of a mask, and where in the picture it lies."""

    box: int
    """The number of the box whose it is."""
    place: tuple[float, float, float, float]
    """x0 y0 x1 y1, fractions of the picture's width and height."""
    inside: np.ndarray
    """(h, w) bool."""


def masks_of(boxes: np.ndarray, drawn: np.ndarray, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any],
             size: tuple[int, int]) -> list[Mask]:
    """The masks that an overlay brings, as tensors or as runs. Those that make no sense are left out.

    boxes: (N, 4), of which `drawn` (N,) have a place, in pixels of a picture of this `size`.
    """
    if "masks" in arrays:
        height, width = arrays["masks"].shape[1:]
    else:
        width, height = int(meta.get("mask_width", 0)), int(meta.get("mask_height", 0))
    if not width or not height or not size[0] or not size[1] or not ("masks" in arrays or "runs" in arrays):
        return []
    per = np.array((width / size[0], height / size[1]) * 2)
    grown = boxes[:_MOST] * per
    margin = _MARGIN * (grown[:, 2:] - grown[:, :2]) + 2
    limit = np.array((width, height))
    low = np.floor(grown[:, :2] - margin).clip(0, limit).astype(np.int64)
    high = np.ceil(grown[:, 2:] + margin).clip(low, limit).astype(np.int64)
    low[~drawn[:_MOST]], high[~drawn[:_MOST]] = 0, limit
    areas: list[Area] = [(x0, y0, x1, y1) for (x0, y0), (x1, y1) in zip(low.tolist(), high.tolist(), strict=True)]
    if "masks" in arrays:
        cut = _of_tensors(arrays["masks"], areas, drawn)
    else:
        cut = _of_runs(arrays["runs"], arrays["run_ends"], (width, height), len(areas))
    texels = sum(inside.size for _, _, inside in cut)
    step = max(math.ceil(math.sqrt(texels / _TEXELS)), 1)
    out = []
    for n, (x0, y0, x1, y1), inside in cut:
        smaller = inside[::step, ::step] != 0
        if smaller.any():
            out.append(Mask(n, (x0 / width, y0 / height, x1 / width, y1 / height), np.ascontiguousarray(smaller)))
    return out


def _of_tensors(masks: np.ndarray, areas: list[Area], drawn: np.ndarray) -> list[tuple[int, Area, np.ndarray]]:
    """Views of the part of each mask that lies in its box, or of more where there is more to be seen."""
    out = []
    for n, (x0, y0, x1, y1) in enumerate(areas):
        mask = masks[n]
        ys, xs = np.nonzero(mask[::_COARSE, ::_COARSE])
        if len(ys) and drawn[n]:
            x0, y0 = min(x0, (int(xs.min()) - 1) * _COARSE + 1), min(y0, (int(ys.min()) - 1) * _COARSE + 1)
            x1, y1 = max(x1, (int(xs.max()) + 1) * _COARSE), max(y1, (int(ys.max()) + 1) * _COARSE)
        x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, mask.shape[1]), min(y1, mask.shape[0])
        if x1 > x0 and y1 > y0:
            out.append((n, (x0, y0, x1, y1), mask[y0:y1, x0:x1]))
    return out


def _of_runs(runs: np.ndarray, run_ends: np.ndarray, size: tuple[int, int], most: int
             ) -> list[tuple[int, Area, np.ndarray]]:
    """The part of each mask that is not empty."""
    width, height = size
    ends = np.maximum.accumulate(run_ends[:most].astype(np.int64).clip(0, len(runs))) if len(run_ends) else run_ends
    out, left, begin = [], _WRITTEN, 0
    for n, end in enumerate(ends.tolist()):
        lengths = runs[begin:end].astype(np.int64)
        begin = end
        if len(lengths) < 2 or (lengths < 0).any() or int(lengths.sum()) != width * height:
            continue
        stops = np.cumsum(lengths)
        full = np.flatnonzero(lengths[1::2]) * 2 + 1
        if not len(full):
            continue
        c0, c1 = int(stops[full[0] - 1]) // height, (int(stops[full[-1]]) - 1) // height + 1
        if (c1 - c0) * height <= left:
            left -= (c1 - c0) * height
            found = _written(lengths[full[0] - 1: full[-1] + 1], int(stops[full[0] - 1]) - c0 * height,
                             (c1 - c0, height))
            rows = np.flatnonzero(found.any(0))
            y0, y1 = int(rows[0]), int(rows[-1]) + 1
            out.append((n, (c0, y0, c1, y1), found[:, y0:y1].T))
        else:
            xs = c0 + (np.arange(_SAMPLES) + 0.5) * (c1 - c0) / _SAMPLES
            ys = (np.arange(_SAMPLES) + 0.5) * height / _SAMPLES
            at = xs.astype(np.int64)[None] * height + ys.astype(np.int64)[:, None]
            out.append((n, (c0, 0, c1, height), np.searchsorted(stops, at, side="right") % 2 == 1))
    return out


def _written(lengths: np.ndarray, first: int, size: tuple[int, int]) -> np.ndarray:
    """(columns, rows) bool of runs outside and inside by turns, of which the first is `first` long."""
    columns, rows = size
    lengths = lengths.copy()
    lengths[0] = first
    last = columns * rows - int(lengths.sum())
    lengths = np.append(lengths, last)
    inside = np.zeros(len(lengths), bool)
    inside[1::2] = True
    return np.repeat(inside, lengths).reshape(columns, rows)
