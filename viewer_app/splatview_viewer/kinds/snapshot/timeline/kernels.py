"""All kernels of timelines: what is live, columns of moments, and finished columns of pixels.

They are in one file because numba compiles a stored kernel again only if the kernel's own file has changed. Importing
this module compiles nothing; `compiled.kernels()` returns it with its kernels compiled.

numba takes settings from a file `.numba_config.yaml` in the current folder if PyYAML is installed. One of them names
the folder of its cache, and what lies in the cache is unpickled: where others may write, the file would run their code.
There is no way to switch that off but to hide PyYAML while numba is imported.
"""
# pyright: reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING or "numba" in sys.modules:
    import numba
else:
    warnings.filterwarnings("ignore", message="A Numba config file is found")  # it is, and stays unread
    present = {name: module for name, module in sys.modules.items() if name == "yaml"}
    sys.modules["yaml"] = None  # an import of it fails
    try:
        import numba
    finally:
        del sys.modules["yaml"]
        sys.modules.update(present)

from numba import types

f64, i32, i64, u32, void = types.float64, types.int32, types.int64, types.uint32, types.void
_kernels: list[tuple[Any, Any]] = []
"""Each kernel and its signature."""
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def read(dtype: Any, ndim: int = 1) -> Any:
    """An array that a kernel only reads; arrays in a mapped file are read-only."""
    return types.Array(dtype, ndim, "C", readonly=True)


def write(dtype: Any, ndim: int = 1) -> Any:
    """An array that a kernel writes."""
    return types.Array(dtype, ndim, "C")


def kernel(signature: Any) -> Any:
    """Declare a kernel of one signature, without the GIL, which `load` compiles."""
    def declare(function: Any) -> Any:
        made = numba.njit(function, cache=True, **_OPTIONS)
        _kernels.append((made, signature))
        return made
    return declare


inline = numba.njit(**_OPTIONS)
"""Declares a part of kernels, compiled with each that uses it."""


def stored() -> bool:
    """Return whether the kernels are in numba's cache, the last of them since this file has changed."""
    made, source = _kernels[-1][0], Path(__file__)
    return any(path.stat().st_mtime >= source.stat().st_mtime
               for path in Path(made.stats.cache_path).glob(f"{source.stem}.{made.__name__}-*.nbi"))  # numba's names


def load() -> None:
    """Load all kernels, and compile those that are not stored."""
    for made, signature in _kernels:
        made.compile(signature)
        made.disable_compile()


R32, R64 = read(i32), read(i64)
CANVAS = types.Tuple((write(u32, 2), write(i32, 2)))
"""Pixels (W, H) and ids (W, H)."""
PART = types.UniTuple(i64, 2)
"""The first column of a part, and the one after its last."""
PYRAMID = 64
"""Values whose greatest is known."""
APART = 2048
"""Fewest allocations between two checkpoints."""
SUMS = 6
"""Sums of each pixel that `paint_addresses` works with."""

# -- columns of moments, and pictures of columns -----------------------------------------------------------------------


@kernel(void(R64, R64, R64, write(i32)))
def peaks(values, high, edges, out):
    """For each column the moment with the greatest value, the first of equals."""
    n = len(values)
    for x in range(len(out)):
        k, end = max(edges[x], 0), min(edges[x + 1], n)
        best = k if k < end else edges[x] - 1 if 1 <= edges[x] <= n else -1
        while k < end:
            if k % PYRAMID == 0 and k + PYRAMID <= end and high[k // PYRAMID] <= values[best]:
                k += PYRAMID
                continue
            if values[k] > values[best]:
                best = k
            k += 1
        out[x] = best


TILE = 32
"""Columns and rows that are turned over in one go: they fit a processor's cache."""


@kernel(void(CANVAS, CANVAS, types.UniTuple(write(i64), 2), CANVAS, write(u32, 2), PART))
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


@kernel(void(write(u32, 2), write(i64), write(i64), types.UniTuple(u32, 2), i64))
def paint_ground(pixels, top, bottom, shades, line):
    """In each column, the rows from top to bottom become the first shade, the highest `line` of them the second if
    they are not the picture's highest."""
    for x in range(len(top)):
        for y in range(top[x], bottom[x]):
            pixels[x, y] = shades[1] if y < top[x] + line and top[x] > 0 else shades[0]


# -- what is live at a moment ----------------------------------------------------------------------------------------

INDEX = types.Tuple((R32, R32, R32, R32, R64, R32, R32, R32))
"""start, end; of checkpoints: moment, first, begin in the list, the list; those that end: their ends, their numbers."""


@kernel(PART(R32, R32, write(i32), write(i32), write(i64), write(i32)))
def checkpoints(start, end, moment, first, begin, listed):
    """Lists of what is live now and then: after at least as many allocations as the last list is long, so that all of
    them together are at most twice as long as there are allocations.

    moment, first (n + 1,), begin (n + 2,): of each checkpoint, with n = A // APART + 1; listed (3 A). Returns the
    number of checkpoints and the length of all lists.
    """
    n = len(start)
    before = 0
    while before < n and start[before] < 0:
        before += 1
    made = 1
    moment[0] = 0
    first[0] = before
    begin[0] = 0
    used = 0
    for i in range(before):
        listed[used] = i
        used += 1
    begin[1] = used
    at = before
    while True:
        since = begin[made] - begin[made - 1]
        at += max(since, APART)
        if at >= n:
            break
        k = start[at]
        f = at
        while f > 0 and start[f - 1] >= k:  # all that one event allocated are on one side
            f -= 1
        if f <= first[made - 1]:
            continue
        for j in range(begin[made - 1], begin[made]):
            if end[listed[j]] >= k:
                listed[used] = listed[j]
                used += 1
        for i in range(first[made - 1], f):
            if end[i] >= k:
                listed[used] = i
                used += 1
        moment[made] = k
        first[made] = f
        made += 1
        begin[made] = used
    return made, used


@inline
def before(values, limit):
    """Number of the sorted values that are less than the limit."""
    return np.searchsorted(values, np.int32(limit))


@kernel(i64(INDEX, i64, write(i32)))
def live_at(index, k, out):
    """Writes the numbers of what is live at moment k, ascending, and returns how many. out: as long as `longest`."""
    start, end, moment, first, begin, listed, _, _ = index
    c = before(moment, k + 1) - 1
    upto = before(start, k)
    n = 0
    for j in range(begin[c], begin[c + 1]):
        i = listed[j]
        out[n] = i
        n += end[i] >= k
    for i in range(first[c], upto):
        out[n] = i
        n += end[i] >= k
    return n


# -- columns of stacked bands ------------------------------------------------------------------------------------------
#
# A column needs what is live at its moment, in order, with its sizes. This is held as a dense list of entries, and is
# brought from one column to the next by what began and ended between them (an ended entry keeps its place with size
# 0), or is built anew from a checkpoint where that costs less. Sums over blocks of entries let the painter skip
# what lies below the picture, and take at once what lies within one pixel. What is below the lowest change looks as it
# did in the column before, and is copied from there. Sums of bytes, and of bytes times colour, are whole numbers below
# 2^53 in float64: adding and taking away is exact.

BLOCK = 5
"""Entries in a block, as a power of two."""
TALL = 3.0
"""Bands of this many pixels and more are parted from what is below by a darker line."""
SHADE = 0.62
"""How bright that line is."""

INKS = types.Tuple((read(types.uint16), read(types.uint8), read(f64, 2), read(f64, 2)))
"""classes, lit (or none), shades (2 K, 3), grounds (2, 3)"""
COLUMNS = types.Tuple((R32, f64, f64))
"""moments, low, bytes per pixel"""
LIST = types.Tuple((write(i32), write(i32), write(f64), write(f64, 2), write(i32)))
"""Entries: their allocations, shades, sizes (zeros); sums of bytes, red, green and blue over blocks (zeros), and
where each number of the index is."""


@inline
def packed(red, green, blue):
    return np.uint32(red) | np.uint32(green) << np.uint32(8) | np.uint32(blue) << np.uint32(16) | np.uint32(0xFF000000)


@inline
def channel(part, rest, ground, by):
    return min(max((part + rest * ground) * by + 0.5, 0.0), 255.0)


@inline
def emit(pixels, ids, row, sums, under, tall, per, ground):
    """Writes a pixel that may be covered in part. sums: bytes, and bytes times colour."""
    covered, red, green, blue = sums
    rest = max(per - covered, 0.0)
    by = (SHADE if tall else 1.0) / per
    y = len(pixels) - 1 - row
    pixels[y] = packed(channel(red, rest, ground[0, 0], by), channel(green, rest, ground[0, 1], by),
                       channel(blue, rest, ground[0, 2], by))
    ids[y] = under


@inline
def fill(pixels, ids, first, last, color, number):
    """Rows first <= row < last, counted from the bottom."""
    height = len(pixels)
    pixels[height - last: height - first] = color
    ids[height - last: height - first] = number


@inline
def change(blocks, j, size, shades, shade):
    """Adds an entry to the sums of its block; a negative size takes it away."""
    a = j >> BLOCK
    blocks[a, 0] += size
    blocks[a, 1] += size * shades[shade, 0]
    blocks[a, 2] += size * shades[shade, 1]
    blocks[a, 3] += size * shades[shade, 2]


@inline
def reach(sizes, blocks, count, byte):
    """The first entry that ends above this byte, and where it begins; count if there is none."""
    base = 0.0
    j = np.int64(0)
    while j < count and base + blocks[j >> BLOCK, 0] <= byte:
        base += blocks[j >> BLOCK, 0]
        j += 1 << BLOCK
    while j < count and base + sizes[j] <= byte:
        base += sizes[j]
        j += 1
    return min(j, count), base


@inline
def bottom_of(sizes, blocks, entry):
    """The byte at which an entry begins."""
    base = 0.0
    for a in range(entry >> BLOCK):
        base += blocks[a, 0]
    for j in range(entry >> BLOCK << BLOCK, entry):
        base += sizes[j]
    return base


@inline
def stack(pixels, ids, row, origin, per, entries, count, colors):
    """Paints one column (H,) from this row up. origin: the byte at which row 0 begins."""
    numbers, shown, sizes, blocks, _ = entries
    shades, ground = colors
    height = len(pixels)
    empty = packed(ground[0, 0], ground[0, 1], ground[0, 2])
    first = np.int64(min(-origin / per, height + 0.0))  # the row in which the stack begins
    if row < first:
        fill(pixels, ids, row, first, empty, np.int32(-1))
        row = first
    bottom = origin + row * per
    top, centre = bottom + per, bottom + 0.5 * per
    covered = red = green = blue = 0.0
    under = np.int32(-1)
    j, base = reach(sizes, blocks, count, bottom)
    while j < count and row < height:
        size = sizes[j]
        if j & ((1 << BLOCK) - 1) == 0 and base >= bottom:
            a = j >> BLOCK
            whole = blocks[a, 0]
            end = base + whole
            if end <= top and (end <= centre or base > centre):
                covered += whole
                red += blocks[a, 1]
                green += blocks[a, 2]
                blue += blocks[a, 3]
                base = end
                j += 1 << BLOCK
                continue
        if size == 0.0:
            j += 1
            continue
        end = base + size
        shade, number = shown[j], numbers[j]
        r, g, b = shades[shade, 0], shades[shade, 1], shades[shade, 2]
        if base <= centre < end:
            under = number
        part = min(end, top) - max(base, bottom)
        covered += part
        red += part * r
        green += part * g
        blue += part * b
        if end > top:
            emit(pixels, ids, row, (covered, red, green, blue), under, size >= TALL * per and base >= bottom, per,
                 ground)
            row += 1
            full = min(np.int64((end - origin) / per), height)
            if row < full:
                fill(pixels, ids, row, full, packed(r, g, b), number)
                row = full
            bottom = origin + row * per
            top, centre = bottom + per, bottom + 0.5 * per
            covered = max(end - bottom, 0.0)
            red, green, blue = covered * r, covered * g, covered * b
            under = number if centre < end else np.int32(-1)
        base = end
        j += 1
    if row < height:
        emit(pixels, ids, row, (covered, red, green, blue), under, False, per, ground)
        fill(pixels, ids, row + 1, height, empty, np.int32(-1))


@kernel(i64(INDEX, R64, INKS, COLUMNS, PART, CANVAS, LIST))
def paint_bands(index, size, inks, columns, part, canvas, entries):
    """Paints the columns part[0] <= x < part[1]. size: of each allocation.

    entries: a list with room for all that one column and SLACK of others can need. Returns how many times it was built
    anew."""
    start, end, moment, first, begin, listed, ends, order = index
    classes, lit, shades, ground = inks
    moments, low, per = columns
    pixels, ids = canvas
    numbers, shown, sizes, blocks, where = entries
    height = pixels.shape[1]
    empty = packed(ground[0, 0], ground[0, 1], ground[0, 2])
    count = limit = built = started = gone = np.int64(0)
    known = drawn = np.int64(-1)  # the moment of the list; of the column before
    for x in range(part[0], part[1]):
        k = np.int64(moments[x])
        if k < 0:
            fill(pixels[x], ids[x], np.int64(0), height, empty, np.int32(-1))
            drawn = np.int64(-1)
            continue
        upto, ended = before(start, k), before(ends, k)
        c = before(moment, k + 1) - 1
        held = begin[c + 1] - begin[c]
        anew = held + max(upto - first[c], 0)
        lowest = count
        if known < 0 or k < known or upto - started + ended - gone > 3 * anew or count + upto - started > limit:
            sizes[:count] = 0.0
            blocks[:(count >> BLOCK) + 1] = 0.0
            count = lowest = np.int64(0)
            limit = min(2 * anew + 4096, len(sizes))
            built += 1
            started = np.int64(first[c])
        else:
            held = np.int64(0)
            for p in range(gone, ended):
                i = order[p]
                if i < started:
                    j = np.int64(where[i])
                    lowest = min(lowest, j)
                    change(blocks, j, -sizes[j], shades, shown[j])
                    sizes[j] = 0.0
        fresh = count
        for t in range(held + max(upto - started, 0)):
            i = np.int64(listed[begin[c] + t]) if t < held else started + t - held
            if end[i] >= k:
                shade = np.int32(classes[i])
                if len(lit) and lit[i] == 0:
                    shade += np.int32(len(shades) >> 1)
                numbers[count] = i
                shown[count] = shade
                sizes[count] = size[i]
                where[i] = count
                change(blocks, count, np.float64(size[i]), shades, shade)
                count += 1
        row = np.int64(0)
        if drawn >= 0 and drawn <= k:
            if lowest == fresh and fresh == count:
                row = height
            elif lowest > 0:
                row = min(max(np.int64((bottom_of(sizes, blocks, lowest) - low) / per), 0), height)
        pixels[x, height - row:] = pixels[x - 1, height - row:]
        ids[x, height - row:] = ids[x - 1, height - row:]
        if row < height:
            stack(pixels[x], ids[x], row, low, per, entries, count, (shades, ground))
        known, started, gone, drawn = k, upto, ended, k
    return built


# -- the address space: columns of rectangles --------------------------------------------------------------------------
#
# What is live lies at one place as long as it is live: a rectangle of columns and rows. It is added to the sums of its
# pixels in its first column and taken away in the column after its last; the sums of a column are those of all columns
# up to it.
#
# Sums of a pixel: bytes, bytes times red, green and blue; reserved bytes; lower edges of tall rectangles.

LAYER = types.Tuple((INDEX, R64, R64))
"""What may be live, where it lies, and sizes."""


@inline
def spread(layer, plain, inks, columns, part, canvas, sums):
    """Adds the rectangles of a layer to the columns part[0] <= x < part[1]. plain: they are what is reserved."""
    index, places, size = layer
    start, end, moment, first, begin, listed, _, _ = index
    moments, low, per = columns
    _, ids = canvas
    classes, lit, shades, _ = inks
    height, x = sums.shape[1], part[0]
    c = before(moment, moments[x] + 1) - 1
    held = begin[c + 1] - begin[c]
    for t in range(held + len(start) - first[c]):
        i = np.int64(listed[begin[c] + t]) if t < held else first[c] + t - held
        while x < part[1] and moments[x] <= start[i]:
            x += 1
        if x == part[1]:
            break
        a = places[i] - low
        b = a + size[i]
        if end[i] < moments[x] or size[i] <= 0 or b <= 0.0 or a >= height * per:
            continue
        after = x + np.searchsorted(moments[x:part[1]], end[i] + 1)
        edge = a >= 0.0 and size[i] >= TALL * per
        shade = 0 if plain else np.int64(classes[i]) + (len(shades) >> 1 if len(lit) and lit[i] == 0 else 0)
        for row in range(np.int64(max(a, 0.0) / per), min(np.int64(np.ceil(b / per)), height)):
            bytes_here = min((row + 1) * per, b) - max(row * per, a)
            for column, sign in ((x, np.float32(1.0)), (after, np.float32(-1.0))):
                here = sums[column - part[0], row]
                if plain:
                    here[4] += sign * np.float32(bytes_here)
                else:
                    here[0] += sign * np.float32(bytes_here)
                    for part_of in range(3):
                        here[1 + part_of] += sign * np.float32(bytes_here * shades[shade, part_of])
                    here[5] += sign * np.float32(edge and row == np.int64(a / per))
            if not plain and a <= (row + 0.5) * per < b:
                ids[x:after, height - 1 - row] = i


@kernel(void(LAYER, LAYER, INKS, COLUMNS, PART, CANVAS, write(types.float32, 3)))
def paint_addresses(blocks, spans, inks, columns, part, canvas, sums):
    """Paints the columns part[0] <= x < part[1], whose moments ascend. sums: zeros (columns + 1, H, SUMS)."""
    ground = inks[3]
    moments, _, per = columns
    pixels, ids = canvas
    height = pixels.shape[1]
    empty = packed(ground[0, 0], ground[0, 1], ground[0, 2])
    left, right = part
    for x in range(part[0], part[1]):
        fill(pixels[x], ids[x], np.int64(0), height, empty, np.int32(-1))
    while left < right and moments[left] < 0:
        left += 1
    while left < right and moments[right - 1] < 0:
        right -= 1
    if left == right:
        return
    spread(blocks, False, inks, columns, (left, right), canvas, sums)
    spread(spans, True, inks, columns, (left, right), canvas, sums)
    now = np.zeros((height, SUMS))
    for x in range(left, right):
        for row in range(height):
            here = now[row]
            for k in range(SUMS):
                here[k] += sums[x - left, row, k]
            covered = max(here[0], 0.0)
            reserved = max(min(here[4], per) - covered, 0.0)
            rest = max(per - covered - reserved, 0.0)
            by = (1.0 / covered if covered > per else 1.0 / per) * (SHADE if here[5] > 0.5 else 1.0)
            pixels[x, height - 1 - row] = packed(
                channel(here[1] + reserved * ground[1, 0], rest, ground[0, 0], by),
                channel(here[2] + reserved * ground[1, 1], rest, ground[0, 1], by),
                channel(here[3] + reserved * ground[1, 2], rest, ground[0, 2], by))
