"""The kernel that paints timelines. Import it by `compiled`.

Importing this module compiles the kernel, or loads what numba has stored.

numba takes settings from a file `.numba_config.yaml` in the current folder if PyYAML is
installed. One of them names the folder of its cache, and what lies in the cache is
unpickled: where others may write, the file would run their code. There is no way to switch
that off but to hide PyYAML while numba is imported.
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
    # A file that is found stays unread.
    warnings.filterwarnings("ignore", message="A Numba config file is found")
    present = {name: module for name, module in sys.modules.items() if name == "yaml"}
    # An import of a module that is None fails.
    sys.modules["yaml"] = None
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
"""Declares a function that the kernel calls."""


def read_only(dtype: Any, ndim: int = 1) -> Any:
    """Return the type of an array that the kernel only reads.

    Arrays in a mapped file are read-only.
    """
    return types.Array(dtype, ndim, "C", readonly=True)


R32 = read_only(i32)
R64 = read_only(i64)
INDEX = types.Tuple((R32, R32, R32, R32, R64, R32))
"""The arrays that `bands.live_index` returns: start, end; of its checkpoints moment,
first and list_start; the lists."""
LAYER = types.Tuple((INDEX, R64, R64))
"""Rectangles that may be live, the byte at which each begins (empty: they are stacked in the
order of their ids), and their sizes."""
INKS = types.Tuple(
    (
        read_only(types.uint16),
        read_only(types.uint8),
        read_only(f64, 2),
        read_only(f64, 2),
    )
)
"""classes, lit (or none), shades (2 K, 3), grounds (3, 3): nothing, reserved memory, the
line where it ends."""
ROWS = types.Tuple((R32, f64, f64))
"""The moment of each column, the lowest byte, and bytes per pixel."""
COLUMN_RANGE = types.UniTuple(i64, 2)
"""The first column that is painted, and the one after the last."""
CANVAS = types.Tuple((types.Array(u32, 2, "C"), types.Array(i32, 2, "C")))
"""Pixels and ids (H, W), the lowest row first."""
MIN_EDGE_PIXELS = 3.0
"""Height in pixels from which allocations are separated from what is below by a darker
line."""
EDGE_BRIGHTNESS = 0.62
"""Brightness of that line."""
SUM_COUNT = 6
"""Sums of a pixel: bytes; bytes times red, green and blue; reserved bytes; lower edges of
high rectangles."""


@inline
def count_less(values, limit):
    """Return the number of sorted values that are less than the limit."""
    return np.searchsorted(values, np.int32(limit))


@inline
def pack_color(red, green, blue):
    """Return an opaque colour as one number."""
    return (
        np.uint32(red)
        | np.uint32(green) << np.uint32(8)
        | np.uint32(blue) << np.uint32(16)
        | np.uint32(0xFF000000)
    )


@inline
def mix_channel(covered_sum, uncovered, ground, scale):
    """Return one channel of a pixel: the mean of what covers it and of the ground."""
    return min(max((covered_sum + uncovered * ground) * scale + 0.5, 0.0), 255.0)


@inline
def overlap(row, bottom, upper, bytes_per_row):
    """Return the bytes of a row that a rectangle covers."""
    return min((row + 1) * bytes_per_row, upper) - max(row * bytes_per_row, bottom)


@inline
def add_live(layer, is_reserved, inks, moment, low, bytes_per_row, sums, ids):
    """Add what is live at a moment to the sums (H, SUM_COUNT) of one column.

    Writes the allocations under the centres of its pixels to ids (H,).

    Args:
        is_reserved: the layer is reserved memory, and no allocations.
    """
    index, bottoms, sizes = layer
    start, end, checkpoint_moment, checkpoint_first, list_start, listed = index
    classes, is_lit, shades, _ = inks
    top = 0.0
    checkpoint = count_less(checkpoint_moment, moment + 1) - 1
    list_first = list_start[checkpoint]
    list_length = list_start[checkpoint + 1] - list_first
    first = checkpoint_first[checkpoint]
    # First those that were live at the checkpoint, then those that began after it.
    # This loop is not split: passing an array to another function in it counts its
    # references with atomic instructions, and painting took twice as long.
    for k in range(list_length + count_less(start, moment) - first):
        if k < list_length:
            i = np.int64(listed[list_first + k])
        else:
            i = first + k - list_length
        size = sizes[i]
        if end[i] < moment or size <= 0:
            continue
        bottom = (bottoms[i] if len(bottoms) else top) - low
        upper = bottom + size
        top += size
        if upper <= 0.0 or bottom >= len(sums) * bytes_per_row:
            continue
        lowest = min(np.int64(max(bottom, 0.0) / bytes_per_row), len(sums) - 1)
        end_row = min(np.int64(np.ceil(upper / bytes_per_row)), len(sums))
        if is_reserved:
            for row in range(lowest, end_row):
                sums[row, 4] += overlap(row, bottom, upper, bytes_per_row)
            continue
        shade = np.int64(classes[i])
        if len(is_lit) and is_lit[i] == 0:
            # Dimmed colours are in the second half.
            shade += len(shades) >> 1
        if bottom >= 0.0 and size >= MIN_EDGE_PIXELS * bytes_per_row:
            sums[lowest, 5] = 1.0
        for row in range(lowest, end_row):
            covered = overlap(row, bottom, upper, bytes_per_row)
            sums[row, 0] += covered
            sums[row, 1] += covered * shades[shade, 0]
            sums[row, 2] += covered * shades[shade, 1]
            sums[row, 3] += covered * shades[shade, 2]
            if bottom <= (row + 0.5) * bytes_per_row < upper:
                ids[row] = i


@inline
def add_reserved_total(reserved_bytes, low, bytes_per_row, sums):
    """Add all bytes up to the reserved ones to the sums of a column.

    Returns the row in which they end.
    """
    upper = reserved_bytes - low
    end_row = min(np.int64(max(np.ceil(upper / bytes_per_row), 0.0)), len(sums))
    for row in range(end_row):
        sums[row, 4] = max(overlap(row, -low, upper, bytes_per_row), 0.0)
    return np.int64(np.floor(upper / bytes_per_row + 0.5)) - 1


@inline
def shade_column(x, sums, ids, edge_row, bytes_per_row, grounds, canvas):
    """Write one column of the canvas from its sums.

    Args:
        edge_row: the row of the line where reserved memory ends; -1: none.
    """
    pixels, pixel_ids = canvas
    height = len(sums)
    for row in range(height):
        row_sums = sums[row]
        covered = row_sums[0]
        reserved = max(min(row_sums[4], bytes_per_row) - covered, 0.0)
        uncovered = max(bytes_per_row - covered - reserved, 0.0)
        scale = 1.0 / max(covered, bytes_per_row)
        if row_sums[5] > 0.5:
            scale *= EDGE_BRIGHTNESS
        if row == edge_row < height - 1:
            tone = grounds[2]
        else:
            tone = grounds[1]
        pixels[row, x] = pack_color(
            mix_channel(
                row_sums[1] + reserved * tone[0], uncovered, grounds[0, 0], scale
            ),
            mix_channel(
                row_sums[2] + reserved * tone[1], uncovered, grounds[0, 1], scale
            ),
            mix_channel(
                row_sums[3] + reserved * tone[2], uncovered, grounds[0, 2], scale
            ),
        )
        pixel_ids[row, x] = ids[row]


@inline
def copy_column(x, canvas):
    """Repeat the column before x at x."""
    pixels, pixel_ids = canvas
    for row in range(len(pixels)):
        pixels[row, x] = pixels[row, x - 1]
        pixel_ids[row, x] = pixel_ids[row, x - 1]


@numba.njit(
    void(LAYER, LAYER, R64, INKS, ROWS, COLUMN_RANGE, CANVAS),
    cache=True,
    nogil=True,
    error_model="numpy",
)
def paint(blocks, spans, reserved, inks, rows, column_range, canvas):
    """Paint the columns column_range[0] <= x < column_range[1].

    Reserved memory is `spans`, or all bytes up to reserved[moment], if there are any.
    """
    column_moments, low, bytes_per_row = rows
    first_column, end_column = column_range
    grounds = inks[3]
    height = len(canvas[0])
    sums = np.empty((height, SUM_COUNT))
    ids = np.empty(height, np.int32)
    for x in range(first_column, end_column):
        moment = column_moments[x]
        if x > first_column and moment == column_moments[x - 1]:
            copy_column(x, canvas)
            continue
        edge_row = np.int64(-1)
        sums[:] = 0.0
        ids[:] = -1
        if moment >= 0:
            add_live(blocks, False, inks, moment, low, bytes_per_row, sums, ids)
            add_live(spans, True, inks, moment, low, bytes_per_row, sums, ids)
            if len(reserved):
                edge_row = add_reserved_total(
                    reserved[moment], low, bytes_per_row, sums
                )
        shade_column(x, sums, ids, edge_row, bytes_per_row, grounds, canvas)
