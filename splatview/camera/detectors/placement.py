"""How a picture is laid into a network's input, and how what is found there is laid back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STRIDE = 32
"""Sides of an input that may be of any size are multiples of this."""
MASK_SIDE = 320
"""The most pixels along a side of a mask: about twice what the networks themselves give."""


@dataclass(frozen=True)
class Placement:
    """The picture, `width` x `height`, lies in the input, `across` x `down`, stretched to `inner` (x, y) pixels with
    the upper left corner at (`left`, `top`)."""

    width: int
    height: int
    across: int
    down: int
    left: int
    top: int
    inner: tuple[int, int]

    def back(self, xy: np.ndarray) -> np.ndarray:
        """Places (..., 2) in the input as places in the picture."""
        scale = np.array([self.width / self.inner[0], self.height / self.inner[1]])
        return ((xy - (self.left, self.top)) * scale).astype(np.float32)

    def boxes(self, boxes: np.ndarray) -> np.ndarray:
        """Boxes (N, 4) x0 y0 x1 y1 of the input as boxes of the picture, cut off at its edges."""
        corners = self.back(boxes.reshape(-1, 2, 2))
        return np.clip(corners, 0, np.array([self.width, self.height], np.float32)).reshape(-1, 4)

    def masks(self, values: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        """Masks (N, h, w), bool, of the whole picture: where `values` (N, h', w'), which cover the whole input, are
        over 0, within the picture's `boxes` (N, 4)."""
        import cv2

        reduced = min(1.0, MASK_SIDE / max(self.width, self.height))
        w, h = (max(1, round(side * reduced)) for side in (self.width, self.height))
        # From the middle of a mask's pixel to the picture, to the input, to the network's own grid.
        grid = values.shape[2] / self.across, values.shape[1] / self.down
        step = self.inner[0] / w * grid[0], self.inner[1] / h * grid[1]
        way = np.array([[step[0], 0, step[0] / 2 + self.left * grid[0] - 0.5],
                        [0, step[1], step[1] / 2 + self.top * grid[1] - 0.5]])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        x = (np.arange(w) + 0.5) * (self.width / w)
        y = (np.arange(h) + 0.5) * (self.height / h)
        masks = np.zeros((len(values), h, w), dtype=bool)
        for mask, value, (x0, y0, x1, y1) in zip(masks, values, boxes, strict=True):
            warped = cv2.warpAffine(value.astype(np.float32), way, (w, h), flags=flags, borderMode=cv2.BORDER_REPLICATE)
            mask[:] = (warped > 0) & ((y >= y0) & (y <= y1))[:, None] & ((x >= x0) & (x <= x1))
        return masks


def letterbox(width: int, height: int, across: int, down: int) -> Placement:
    """The picture as large as it goes, its sides in proportion, in the middle; what it leaves free is grey."""
    scale = min(across / width, down / height)
    inner = max(1, round(width * scale)), max(1, round(height * scale))
    # Ultralytics' rounding: networks were trained with it.
    left, top = round((across - inner[0]) / 2 - 0.1), round((down - inner[1]) / 2 - 0.1)
    return Placement(width, height, across, down, left, top, inner)


def stretched(width: int, height: int, across: int, down: int) -> Placement:
    """The picture over the whole input, its sides out of proportion."""
    return Placement(width, height, across, down, 0, 0, (across, down))


def least(width: int, height: int, longest: int) -> tuple[int, int]:
    """The smallest input of any size (x, y) that the picture fits in when its long side has `longest` pixels."""
    scale = longest / max(width, height)
    across, down = (max(1, -(-round(side * scale) // STRIDE)) * STRIDE for side in (width, height))
    return across, down
