"""The contrast of colours, as WCAG 2.2 defines it."""

from __future__ import annotations

import numpy as np


def luminance(colors: np.ndarray) -> np.ndarray:
    """Return the relative luminance of 8-bit colours, as WCAG defines it."""
    share = colors / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])


def contrast(colors: np.ndarray) -> float:
    """Return the contrast of the two colours that are furthest apart."""
    light = luminance(colors.reshape(-1, 3))
    return float((light.max() + 0.05) / (light.min() + 0.05))
