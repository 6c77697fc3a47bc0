"""Masks of boxes: the part of each that matters, cut out at a size that can be drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_MOST = 1000
"""Masks in one picture."""
_TEXELS = 1 << 22
"""Most pixels of all masks of one picture together; larger ones are made coarser."""
_MARGIN = 0.05
"""Share of a box by which its mask may reach out of it."""
_COARSE = 16
"""Pixels between two samples of what is outside a box."""

Area = tuple[int, int, int, int]
"""x0 y0 x1 y1, the last two not included."""


@dataclass
class Mask:
    """A part of a mask, and its place in the picture."""

    box: int
    """Number of its box."""
    place: tuple[float, float, float, float]
    """x0 y0 x1 y1, fractions of the picture's width and height."""
    inside: np.ndarray
    """(h, w) bool."""


def masks_of(boxes: np.ndarray, drawn: np.ndarray, masks: np.ndarray | None, size: tuple[int, int]) -> list[Mask]:
    """Return the masks (N, h, w) of an overlay. Those without a pixel inside are left out.

    boxes: (N, 4), of which `drawn` (N,) have a place, in pixels of a picture of this `size`.
    """
    height, width = (0, 0) if masks is None else masks.shape[1:]
    if masks is None or not width or not height or not size[0] or not size[1]:
        return []
    per = np.array((width / size[0], height / size[1]) * 2)
    grown = boxes[:_MOST] * per
    margin = _MARGIN * (grown[:, 2:] - grown[:, :2]) + 2
    limit = np.array((width, height))
    low = np.floor(grown[:, :2] - margin).clip(0, limit).astype(np.int64)
    high = np.ceil(grown[:, 2:] + margin).clip(low, limit).astype(np.int64)
    low[~drawn[:_MOST]], high[~drawn[:_MOST]] = 0, limit
    cut: list[tuple[int, Area, np.ndarray]] = []
    for n, ((x0, y0), (x1, y1)) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        mask = masks[n]
        ys, xs = np.nonzero(mask[::_COARSE, ::_COARSE])
        if len(ys) and drawn[n]:  # the part in its box, or more where there is more to be seen
            x0, y0 = min(x0, (int(xs.min()) - 1) * _COARSE + 1), min(y0, (int(ys.min()) - 1) * _COARSE + 1)
            x1, y1 = max(x1, (int(xs.max()) + 1) * _COARSE), max(y1, (int(ys.max()) + 1) * _COARSE)
        x0, y0, x1, y1 = max(x0, 0), max(y0, 0), min(x1, width), min(y1, height)
        if x1 > x0 and y1 > y0:
            cut.append((n, (x0, y0, x1, y1), mask[y0:y1, x0:x1]))
    texels = sum(inside.size for _, _, inside in cut)
    step = max(math.ceil(math.sqrt(texels / _TEXELS)), 1)
    out = []
    for n, (x0, y0, x1, y1), inside in cut:
        smaller = inside[::step, ::step] != 0
        if smaller.any():
            out.append(Mask(n, (x0 / width, y0 / height, x1 / width, y1 / height), np.ascontiguousarray(smaller)))
    return out
