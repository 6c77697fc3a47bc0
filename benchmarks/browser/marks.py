"""A mark in a still picture, by which a page's picture shows how far it was moved."""

from __future__ import annotations

import numpy as np

COLOUR = (255, 0, 255)
SIDE = 48


def draw(picture: np.ndarray) -> None:
    """In the middle of (H, W, 3) uint8."""
    y, x = (n // 2 - SIDE // 2 for n in picture.shape[:2])
    picture[y:y + SIDE, x:x + SIDE] = COLOUR


def find(picture: np.ndarray, scale: float = 1.0) -> tuple[float, float]:
    """(x, y) of the mark's centre in pixels of a picture that was reduced to `scale`. Raises ValueError where there is
    none, or half of one."""
    p = picture[..., :3].astype(np.int16)
    ys, xs = np.nonzero((p[..., 0] > 190) & (p[..., 2] > 190) & (p[..., 1] < 90))
    if len(xs) == 0:
        raise ValueError("no mark in the picture")
    x, y = float(np.median(xs)), float(np.median(ys))
    near = (abs(xs - x) < SIDE) & (abs(ys - y) < SIDE)
    if near.sum() < (SIDE * scale)**2 / 6:
        raise ValueError(f"only {near.sum()} pixels of the mark")
    return (xs[near].min() + xs[near].max() + 1) / 2, (ys[near].min() + ys[near].max() + 1) / 2
