"""The kernel that paints timelines. Importing this module compiles it, or loads what numba has stored: `compiled`.

numba takes settings from a file `.numba_config.yaml` in the current folder if PyYAML is installed. One of them names
the folder of its cache, and what lies in the cache is unpickled: where others may write, the file would run their code.
There is no way to switch that off but to hide PyYAML while numba is imported.
"""
# pyright: reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING or "numba" in sys.modules:
    import numba
else:
    warnings.filterwarnings(
        "ignore", message="A Numba config file is found"
    )  # it is, and stays unread
    present = {name: module for name, module in sys.modules.items() if name == "yaml"}
    sys.modules["yaml"] = None  # an import of it fails
    try:
        import numba
    finally:
        del sys.modules["yaml"]
        sys.modules.update(present)

from numba import types

f64 = types.float64
i32 = types.int32
i64 = types.int64
u32 = types.uint32
void = types.void
inline = numba.njit(nogil=True, error_model="numpy")
"""Declares a part of the kernel."""


def read(dtype: Any, ndim: int = 1) -> Any:
    """An array that the kernel only reads; arrays in a mapped file are read-only."""
    return types.Array(dtype, ndim, "C", readonly=True)


R32 = read(i32)
R64 = read(i64)
INDEX = types.Tuple((R32, R32, R32, R32, R64, R32))
"""Of `live_index`: start, end; of its checkpoints: moment, first, where each begins in the list; the list."""
LAYER = types.Tuple((INDEX, R64, R64))
"""What may be live, the byte at which each begins (empty: one on the other, as they are numbered), and sizes."""
INKS = types.Tuple((read(types.uint16), read(types.uint8), read(f64, 2), read(f64, 2)))
"""classes, lit (or none), shades (2 K, 3), grounds (3, 3): nothing, reserved memory, the line where it ends"""
COLUMNS = types.Tuple((R32, f64, f64))
"""moments, low, bytes per pixel"""
PART = types.UniTuple(i64, 2)
"""The first column of a part, and the one after its last."""
CANVAS = types.Tuple((types.Array(u32, 2, "C"), types.Array(i32, 2, "C")))
"""Pixels and ids (H, W), the lowest row first."""
TALL = 3.0
"""Allocations of this many pixels and more are parted from what is below by a darker line."""
SHADE = 0.62
"""How bright that line is."""
SUMS = 6
"""Sums of a pixel: bytes, bytes times red, green and blue; reserved bytes; lower edges of tall rectangles."""


@inline
def before(values, limit):
    """Number of the sorted values that are less than the limit."""
    return np.searchsorted(values, np.int32(limit))


@inline
def packed(red, green, blue):
    return (
        np.uint32(red)
        | np.uint32(green) << np.uint32(8)
        | np.uint32(blue) << np.uint32(16)
        | np.uint32(0xFF000000)
    )


@inline
def channel(part, rest, ground, by):
    return min(max((part + rest * ground) * by + 0.5, 0.0), 255.0)


@inline
def cover(layer, plain, inks, column, sums, ids):
    """Adds what is live at a moment to the sums (H, SUMS) of a column, and notes what lies under the centres of its
    pixels, ids (H,). column: moment, low, per. plain: it is what is reserved.
    """
    (start, end, moment, first, begin, listed), places, size = layer
    classes, lit, shades, _ = inks
    k, low, per = column
    height = len(sums)
    top = 0.0
    c = before(moment, k + 1) - 1
    held = begin[c + 1] - begin[c]
    for t in range(held + before(start, k) - first[c]):
        i = np.int64(listed[begin[c] + t]) if t < held else first[c] + t - held
        if end[i] < k or size[i] <= 0:
            continue
        a = (places[i] if len(places) else top) - low
        b = a + size[i]
        top += size[i]
        if b <= 0.0 or a >= height * per:
            continue
        if plain:
            shade = 0
        else:
            shade = np.int64(classes[i]) + (
                len(shades) >> 1 if len(lit) and lit[i] == 0 else 0
            )
        lowest = min(np.int64(max(a, 0.0) / per), height - 1)
        if not plain and a >= 0.0 and size[i] >= TALL * per:
            sums[lowest, 5] = 1.0
        for row in range(lowest, min(np.int64(np.ceil(b / per)), height)):
            part = min((row + 1) * per, b) - max(row * per, a)
            if plain:
                sums[row, 4] += part
                continue
            sums[row, 0] += part
            sums[row, 1] += part * shades[shade, 0]
            sums[row, 2] += part * shades[shade, 1]
            sums[row, 3] += part * shades[shade, 2]
            if a <= (row + 0.5) * per < b:
                ids[row] = i


@numba.njit(
    void(LAYER, LAYER, R64, INKS, COLUMNS, PART, CANVAS),
    cache=True,
    nogil=True,
    error_model="numpy",
)
def paint(blocks, spans, reserved, inks, columns, part, canvas):
    """Paints the columns part[0] <= x < part[1]. What is reserved: `spans`, or all bytes up to reserved[moment],
    if there are any.
    """
    moments, low, per = columns
    pixels, numbers = canvas
    ground = inks[3]
    height = len(pixels)
    sums = np.empty((height, SUMS))
    ids = np.empty(height, np.int32)
    for x in range(part[0], part[1]):
        k = moments[x]
        edge = np.int64(-1)
        if x > part[0] and k == moments[x - 1]:
            for row in range(height):
                pixels[row, x] = pixels[row, x - 1]
                numbers[row, x] = numbers[row, x - 1]
            continue
        sums[:] = 0.0
        ids[:] = -1
        if k >= 0:
            cover(blocks, False, inks, (k, low, per), sums, ids)
            cover(spans, True, inks, (k, low, per), sums, ids)
            if len(reserved):
                end = reserved[k] - low
                edge = np.int64(np.floor(end / per + 0.5)) - 1
                for row in range(min(np.int64(max(np.ceil(end / per), 0.0)), height)):
                    sums[row, 4] = max(
                        min((row + 1) * per, end) - max(row * per, -low), 0.0
                    )
        for row in range(height):
            here = sums[row]
            covered = here[0]
            held = max(min(here[4], per) - covered, 0.0)
            rest = max(per - covered - held, 0.0)
            by = (1.0 / covered if covered > per else 1.0 / per) * (
                SHADE if here[5] > 0.5 else 1.0
            )
            tone = ground[2] if row == edge < height - 1 else ground[1]
            pixels[row, x] = packed(
                channel(here[1] + held * tone[0], rest, ground[0, 0], by),
                channel(here[2] + held * tone[1], rest, ground[0, 1], by),
                channel(here[3] + held * tone[2], rest, ground[0, 2], by),
            )
            numbers[row, x] = ids[row]
