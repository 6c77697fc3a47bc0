"""Kernels of finished pictures: columns of two canvases in one, as rows; and the ground over what is live.

Importing this module imports numba and compiles or loads the kernels: a worker thread does that first.
"""
# pyright: reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from splatview_viewer.memory._compile import i64, kernel, void, write
from splatview_viewer.memory._numba import types

PIXELS, IDS = write(types.uint32, 2), write(types.int32, 2)
CANVAS = types.UniTuple(types.int64, 2)
TILE = 32
"""Columns and rows that are turned over in one go: they fit a processor's cache."""


@kernel(void(types.Tuple((PIXELS, IDS)), types.Tuple((PIXELS, IDS)), types.UniTuple(write(i64), 2),
             types.Tuple((PIXELS, IDS)), PIXELS, CANVAS, i64))
def assemble(before, fresh, origin, canvas, rows, part, grain):
    """Columns part[0] to part[1] of a picture.

    origin: for each column, which one of `before` it is, or -1; and otherwise which one of `fresh`. They are put into
    `canvas`, and as pixels into rows (H, W), the lowest one first, each `grain` times along both axes."""
    pixels, ids = canvas
    height = pixels.shape[1]
    high, wide = rows.shape
    for left in range(part[0], part[1], TILE):
        right = min(left + TILE, part[1])
        for x in range(left, right):
            if origin[0][x] >= 0:
                pixels[x] = before[0][origin[0][x]]
                ids[x] = before[1][origin[0][x]]
            else:
                pixels[x] = fresh[0][origin[1][x]]
                ids[x] = fresh[1][origin[1][x]]
        for top in range(0, height, TILE):
            for y in range(top, min(top + TILE, height)):
                row = (height - 1 - y) * grain
                if grain == 1:
                    for x in range(left, right):
                        rows[row, x] = pixels[x, y]
                else:
                    for a in range(row, min(row + grain, high)):
                        for x in range(left, right):
                            for b in range(x * grain, min((x + 1) * grain, wide)):
                                rows[a, b] = pixels[x, y]


@kernel(void(PIXELS, write(i64), write(i64), types.UniTuple(types.uint32, 2), i64))
def paint_ground(pixels, top, bottom, shades, line):
    """In each column, the rows from top to bottom become the first shade, the highest `line` of them the second if
    they are not the picture's highest."""
    for x in range(len(top)):
        for y in range(top[x], bottom[x]):
            pixels[x, y] = shades[1] if y < top[x] + line and top[x] > 0 else shades[0]
