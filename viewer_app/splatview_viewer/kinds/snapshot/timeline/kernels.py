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
SUMS = 12
"""Sums of each row of pixels that `paint_addresses` works with."""

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
def again(pixels, ids, x, rows):
    """Copies the lowest rows of a column from the one before."""
    first = pixels.shape[1] - rows
    pixels[x, first:] = pixels[x - 1, first:]
    ids[x, first:] = ids[x - 1, first:]


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
        again(pixels, ids, x, row)
        if row < height:
            stack(pixels[x], ids[x], row, low, per, entries, count, (shades, ground))
        known, started, gone, drawn = k, upto, ended, k
    return built


# -- the address space: where allocations are in it, and columns of their rectangles -----------------------------------
#
# At one moment the rectangles of a column do not overlap, so a column is a sum over them, in any order. The sums of one
# column are brought to the next by what began and ended in between, or made anew where that costs less.
#
# Sums of a row: 0-3 changes from the row below of how many rectangles fill it, and of their red, green and blue; 4-7 of
# those that do not fill it bytes, red, green and blue; 8 the change of the number under the centre, 11 of how many lie
# under it; 9 lower edges of tall rectangles; 10 the change of how often it was touched since the last column.

LAYER = types.Tuple((INDEX, R64, R64))
"""What may be live, where it lies, and sizes."""


@inline
def put(sums, a, size, sign, number, shades, shade, per):
    """Adds (sign 1) or takes away (-1) one rectangle, which begins at byte a of the picture. sums: (H + 2, SUMS)."""
    height = len(sums) - 2
    b = a + size
    if size <= 0.0 or b <= 0.0 or a >= height * per:
        return
    red, green, blue = shades[shade, 0], shades[shade, 1], shades[shade, 2]
    r0 = np.int64(a / per) if a >= 0.0 else np.int64(-1)
    r1 = np.int64(min(b / per, np.float64(height)))
    sums[max(r0, 0), 10] += 1.0
    sums[min(r1 + 1, height), 10] -= 1.0
    if r0 >= 0:
        part = (min((r0 + 1) * per, b) - a) * sign
        sums[r0, 4] += part
        sums[r0, 5] += part * red
        sums[r0, 6] += part * green
        sums[r0, 7] += part * blue
        if size >= TALL * per:
            sums[r0, 9] += sign
    if r1 > r0:
        if r1 > r0 + 1:
            sums[r0 + 1, 0] += sign
            sums[r0 + 1, 1] += sign * red
            sums[r0 + 1, 2] += sign * green
            sums[r0 + 1, 3] += sign * blue
            sums[r1, 0] -= sign
            sums[r1, 1] -= sign * red
            sums[r1, 2] -= sign * green
            sums[r1, 3] -= sign * blue
        part = (b - r1 * per) * sign
        sums[r1, 4] += part
        sums[r1, 5] += part * red
        sums[r1, 6] += part * green
        sums[r1, 7] += part * blue
    c0 = np.int64(max(np.ceil(a / per - 0.5), 0.0))
    c1 = np.int64(min(np.ceil(b / per - 0.5), np.float64(height)))
    if c1 > c0:
        sums[c0, 8] += sign * number
        sums[c1, 8] -= sign * number
        sums[c0, 11] += sign
        sums[c1, 11] -= sign


@inline
def finish(x, per, ground, sums, under_sums, canvas):
    """Writes one column from its sums, and those of what is reserved. Rows that were not touched are copied from the
    column before."""
    pixels, ids = canvas
    height = pixels.shape[1]
    full = 1.0 / per
    n = g = red = green = blue = number = owners = 0.0
    touched = 0.0
    for row in range(height):
        n += sums[row, 0]
        red += sums[row, 1]
        green += sums[row, 2]
        blue += sums[row, 3]
        g += under_sums[row, 0]
        number += sums[row, 8]
        owners += sums[row, 11]
        touched += sums[row, 10] + under_sums[row, 10]
        sums[row, 10] = under_sums[row, 10] = 0.0  # what is left behind the last row is never looked at
        y = height - 1 - row
        if touched == 0.0:
            pixels[x, y] = pixels[x - 1, y]
            ids[x, y] = ids[x - 1, y]
            continue
        covered = n * per + sums[row, 4]
        reserved = max(min(g * per + under_sums[row, 4], per) - covered, 0.0)
        rest = max(per - covered - reserved, 0.0)
        by = 1.0 / covered if covered > per else full
        if sums[row, 9] > 0.0:
            by *= SHADE
        pixels[x, y] = packed(
            channel(red * per + sums[row, 5] + reserved * ground[1, 0], rest, ground[0, 0], by),
            channel(green * per + sums[row, 6] + reserved * ground[1, 1], rest, ground[0, 1], by),
            channel(blue * per + sums[row, 7] + reserved * ground[1, 2], rest, ground[0, 2], by))
        # Two owners there are only where a trace contradicts itself: then nobody is named.
        ids[x, y] = np.int32(number) if owners == 1.0 else np.int32(-1)


@inline
def move(layer, plain, inks, view, sums, state, k):
    """Brings sums to moment k. view: low, bytes per pixel. state: moment, started, gone. Returns whether anything is
    different. plain: all have shade 0, whatever the inks."""
    index, places, size = layer
    start, end, moment, first, begin, listed, ends, order = index
    classes, lit, shades, _ = inks
    low, per = view
    upto, ended = before(start, k), before(ends, k)
    c = before(moment, k + 1) - 1
    held = begin[c + 1] - begin[c]
    anew = held + max(upto - first[c], 0)
    started = state[1]
    changed = False
    if state[0] < 0 or k < state[0] or upto - started + ended - state[2] > 3 * anew + len(sums):
        sums[:] = 0.0
        sums[0, 10] = 1.0
        started = np.int64(first[c])
        changed = True
    else:
        held = np.int64(0)
    gone = ended if changed else state[2]
    for t in range(ended - gone + held + max(upto - started, 0)):
        if t < ended - gone:
            i = np.int64(order[gone + t])
            if i >= started:
                continue
            sign = -1.0
        else:
            t -= ended - gone
            i = np.int64(listed[begin[c] + t]) if t < held else started + t - held
            if end[i] < k:
                continue
            sign = 1.0
        shade = np.int64(0)
        if not plain:
            shade = np.int64(classes[i])
            if len(lit) and lit[i] == 0:
                shade += len(shades) >> 1
        put(sums, places[i] - low, np.float64(size[i]), sign, np.float64(i), shades, shade, per)
        changed = True
    state[0], state[1], state[2] = k, upto, ended
    return changed


@kernel(void(LAYER, LAYER, INKS, COLUMNS, PART, CANVAS, write(f64, 3)))
def paint_addresses(blocks, spans, inks, columns, part, canvas, sums):
    """Paints the columns part[0] <= x < part[1]. sums: room (2, H + 2, SUMS)."""
    ground = inks[3]
    moments, low, per = columns
    pixels, ids = canvas
    height = pixels.shape[1]
    over, under = sums[0], sums[1]
    state, under_state = np.full(3, -1, np.int64), np.full(3, -1, np.int64)
    drawn = False
    for x in range(part[0], part[1]):
        k = np.int64(moments[x])
        if k < 0:
            fill(pixels[x], ids[x], np.int64(0), height, packed(ground[0, 0], ground[0, 1], ground[0, 2]), np.int32(-1))
            drawn = False
            continue
        if not drawn:
            state[0] = under_state[0] = -1  # nothing can be copied from a column of background
        changed = move(blocks, False, inks, (low, per), over, state, k)
        changed |= move(spans, True, inks, (low, per), under, under_state, k)
        if drawn and not changed:
            again(pixels, ids, x, height)
        else:
            finish(x, per, ground, over, under, canvas)
        drawn = True
