"""The colours of classes: the same number has the same colour in every picture and every run."""

from __future__ import annotations

import numpy as np

PALETTE = np.array([
    (77, 201, 255), (255, 160, 51), (122, 229, 92), (255, 97, 128), (186, 140, 255), (255, 226, 77), (38, 214, 181),
    (255, 130, 220), (40, 152, 255), (170, 131, 69), (199, 255, 2), (255, 91, 49), (196, 248, 243), (242, 78, 255),
    (0, 255, 169), (255, 203, 185), (179, 205, 137), (179, 109, 134), (114, 146, 150), (232, 201, 255),
], np.uint8)
"""(20, 3) RGB: bright enough for dark words on them, and far enough from one another."""
PLAIN = np.array((235, 238, 242), np.uint8)
"""Colour of boxes without a class."""
_KNOWN = np.concatenate([PALETTE, PLAIN[None]])


def class_colors(classes: np.ndarray, given: np.ndarray | None = None) -> np.ndarray:
    """RGBA of each.

    Args:
        classes: (N,) integers; below 0: no class. Classes 20 apart have the same colour.
        given: (N, 4) uint8 RGBA that go before, where their alpha is not 0.

    Returns (N, 4) uint8.
    """
    out = np.full((len(classes), 4), 255, np.uint8)
    out[:, :3] = _KNOWN[np.where(classes < 0, len(PALETTE), classes % len(PALETTE))]
    if given is not None:
        chosen = given[:, 3] > 0
        out[chosen] = given[chosen]
    return out


def is_light(color: np.ndarray) -> bool:
    """Return whether dark words are read better on this RGB colour than light ones."""
    return float(0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2]) > 120
