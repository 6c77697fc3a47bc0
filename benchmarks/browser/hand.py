"""The way of a hand that drags."""

from __future__ import annotations

import math


def way(step: int, size: tuple[int, int]) -> tuple[int, int]:
    """Where the pointer is at a step, in pixels of a picture of this size: to and fro below the middle, where it begins
    at step 0. It lies elsewhere at every step."""
    width, height = size
    x = width // 2 + round(height / 5 * math.sin(step / 12))
    return x, height * 3 // 4 + round(height / 12 * math.sin(step / 7)) + (step % 2)
