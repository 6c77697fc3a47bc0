"""How a picture is cut into cells to be moved to another camera: the same in OpenGL and CUDA."""

from __future__ import annotations

import math

CELL = 4
"""Pixels from corner to corner of the cells, at least."""
CORNERS = 300_000
"""More than so many are never made: cells are larger then."""
EDGE = 1.1
"""A thing so many times nearer than what is around it is another one."""


def cell_of(width: int, height: int) -> float:
    """Pixels from corner to corner, for a picture of this size."""
    return float(max(CELL, math.ceil(math.sqrt(width * height / CORNERS))))
