"""Of boxes that overlap, the surest: non-maximum suppression, class by class."""

from __future__ import annotations

import numpy as np

MOST_CANDIDATES = 4096
"""The most boxes that are compared with one another: the surest."""


def surest(scores: np.ndarray, most: int) -> np.ndarray:
    """The places of the `most` highest scores, the highest first; of equal ones the first comes first."""
    if len(scores) > most:
        chosen = np.sort(np.argpartition(scores, len(scores) - most)[-most:])
        return chosen[np.argsort(-scores[chosen], kind="stable")]
    return np.argsort(-scores, kind="stable")


def apart(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, overlap: float, most: int) -> np.ndarray:
    """The places of the boxes (N, 4) x0 y0 x1 y1 that stay, the surest first, at most `most`.

    A box goes if a surer one of its class that stays shares more than `overlap` of the area of both together.
    """
    order = surest(scores, MOST_CANDIDATES)
    corners = boxes[order].astype(np.float64)
    low, high = corners[:, :2], corners[:, 2:]
    areas = np.prod(np.maximum(high - low, 0), axis=1)
    kinds = classes[order]
    rest = np.arange(len(order))
    kept = []
    while len(rest) and len(kept) < most:
        first, rest = rest[0], rest[1:]
        kept.append(first)
        shared = np.prod(np.maximum(np.minimum(high[first], high[rest]) - np.maximum(low[first], low[rest]), 0), axis=1)
        together = areas[first] + areas[rest] - shared
        rest = rest[(shared <= overlap * together) | (kinds[rest] != kinds[first])]
    return order[kept] if kept else order[:0]
