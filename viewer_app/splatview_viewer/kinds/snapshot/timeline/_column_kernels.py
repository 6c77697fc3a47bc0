"""Kernels over columns of pixels and moments: sums, peaks, and finished pictures. Import them from `_kernels`."""
# pyright: reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

from splatview_viewer.kinds.snapshot._numba import R64, i32, i64, inline, kernel, types, void, write

PYRAMID = 64
"""Moments in a block of the pyramid."""


@kernel(void(R64, write(i64), write(i64)))
def pyramid(values, low, high):
    """The least and the greatest of every PYRAMID values; low, high: (ceil(n / PYRAMID),)."""
    n = len(values)
    for b in range(len(low)):
        least = greatest = values[b * PYRAMID]
        for k in range(b * PYRAMID, min(n, (b + 1) * PYRAMID)):
            least = min(least, values[k])
            greatest = max(greatest, values[k])
        low[b] = least
        high[b] = greatest


@inline
def whole(first, last):
    """The blocks that lie whole in first <= k < last."""
    return (first + PYRAMID - 1) // PYRAMID, last // PYRAMID


@inline
def peak_of(values, high, first, last):
    best = first
    a, b = whole(first, last)
    if a >= b:
        for k in range(first, last):
            if values[k] > values[best]:
                best = k
        return best
    for k in range(first, a * PYRAMID):
        if values[k] > values[best]:
            best = k
    greatest, block = values[best], -1
    for c in range(a, b):
        if high[c] > greatest:
            greatest, block = high[c], c
    if block >= 0:
        best = block * PYRAMID
        while values[best] != greatest:
            best += 1
    for k in range(b * PYRAMID, last):
        if values[k] > values[best]:
            best = k
    return best


@kernel(void(R64, R64, R64, write(i32)))
def peaks(values, high, edges, out):
    """For each column the moment with the greatest value, the first of equals."""
    n = len(values)
    for x in range(len(out)):
        a, b = max(edges[x], 0), min(edges[x + 1], n)
        if a < b:
            out[x] = peak_of(values, high, a, b)
        elif 1 <= edges[x] <= n:
            out[x] = edges[x] - 1
        else:
            out[x] = -1


@kernel(void(R64, R64, R64, R64, write(i64), write(i64)))
def envelope(values, low, high, edges, least, greatest):
    """For each column the least and the greatest value; an empty column: the value that holds there."""
    n = len(values)
    for x in range(len(least)):
        a, b = min(max(edges[x], 0), n), min(edges[x + 1], n)
        if a >= b:
            a = min(max(edges[x] - 1, 0), n - 1)
            b = a + 1
        lo = hi = values[a]
        first, last = whole(a, b)
        if first >= last:
            for k in range(a, b):
                lo = min(lo, values[k])
                hi = max(hi, values[k])
        else:
            for k in range(a, first * PYRAMID):
                lo = min(lo, values[k])
                hi = max(hi, values[k])
            for c in range(first, last):
                lo = min(lo, low[c])
                hi = max(hi, high[c])
            for k in range(last * PYRAMID, b):
                lo = min(lo, values[k])
                hi = max(hi, values[k])
        least[x] = lo
        greatest[x] = hi


CANVAS = types.Tuple((write(types.uint32, 2), write(i32, 2)))
TILE = 32
"""Columns and rows that are turned over in one go: they fit a processor's cache."""


@kernel(void(CANVAS, CANVAS, types.UniTuple(write(i64), 2),
             CANVAS, write(types.uint32, 2), types.UniTuple(i64, 2)))
def assemble(before, fresh, origin, canvas, rows, part):
    """Columns part[0] to part[1] of a picture.

    origin: for each column, which one of `before` it is, or -1; and otherwise which one of `fresh`. They are put into
    `canvas`, and as pixels into rows (H, W), the lowest one first."""
    pixels, ids = canvas
    height = pixels.shape[1]
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
                for x in range(left, right):
                    rows[height - 1 - y, x] = pixels[x, y]


@kernel(void(write(types.uint32, 2), write(i64), write(i64), types.UniTuple(types.uint32, 2), i64))
def paint_ground(pixels, top, bottom, shades, line):
    """In each column, the rows from top to bottom become the first shade, the highest `line` of them the second if
    they are not the picture's highest."""
    for x in range(len(top)):
        for y in range(top[x], bottom[x]):
            pixels[x, y] = shades[1] if y < top[x] + line and top[x] > 0 else shades[0]
