"""The kernel that paints columns of stacked bands.

A column needs what is live at its moment, in order, with its sizes. This is held as a dense list of entries, and is
brought from one column to the next by what began and ended between them (an ended entry keeps its place with size 0),
or is built anew from a checkpoint where that costs less. Sums over FEW and over MANY entries let the painter skip what
lies below the picture, and take at once what lies within one pixel. What is below the lowest change looks as it did in
the column before, and is copied from there. Sums of bytes, and of bytes times colour, are whole numbers below 2^53 in
float64: adding and taking away is exact.
"""
# pyright: reportIndexIssue=false

from __future__ import annotations

import numpy as np

from splatview_viewer.memory._compile import f64, i32, i64, inline, kernel, read, write
from splatview_viewer.memory._numba import types
from splatview_viewer.memory.timeline._index_kernels import INDEX, R32, R64, before

FEW, MANY = 4, 8
"""Entries in a small and in a large block, as powers of two."""
TALL = 3.0
"""Bands of this many pixels and more are parted from what is below by a darker line."""
SHADE = 0.62
"""How bright that line is."""
SUMMARY = 0.2
"""Small blocks up to this part of a pixel are divided between two pixels as if all in it had one colour."""

F2 = write(f64, 2)
INKS = types.Tuple((read(types.uint16), read(types.uint8), types.Array(f64, 2, "C", readonly=True),
                    types.Array(f64, 2, "C", readonly=True)))
"""classes, lit (or none), shades (2 K, 3), grounds (2, 3)"""
COLUMNS = types.Tuple((R32, R64, f64, f64))
"""moments, offset (or none), low, bytes per pixel"""
CANVAS = types.Tuple((write(types.uint32, 2), write(i32, 2)))
LIST = types.Tuple((write(i32), write(i32), write(f64), F2, F2, write(i32)))
"""Entries: their allocations, shades, sizes (zeros); sums of bytes, red, green and blue over small and large blocks
(zeros), where each number of the index is. All are left as they are found."""


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
    for y in range(height - last, height - first):
        pixels[y] = color
    for y in range(height - last, height - first):
        ids[y] = number


@inline
def again(pixels, ids, x, rows):
    """Copies the lowest rows of a column from the one before."""
    for y in range(pixels.shape[1] - rows, pixels.shape[1]):
        pixels[x, y] = pixels[x - 1, y]
    for y in range(pixels.shape[1] - rows, pixels.shape[1]):
        ids[x, y] = ids[x - 1, y]


@inline
def add(sums, a, size, red, green, blue):
    s, r, g, b = sums[a, 0] + size, sums[a, 1] + red, sums[a, 2] + green, sums[a, 3] + blue
    sums[a, 0] = s
    sums[a, 1] = r
    sums[a, 2] = g
    sums[a, 3] = b


@inline
def change(few, many, j, size, shades, shade):
    """Adds an entry to the sums of its blocks; a negative size takes it away."""
    red, green, blue = size * shades[shade, 0], size * shades[shade, 1], size * shades[shade, 2]
    add(few, j >> FEW, size, red, green, blue)
    add(many, j >> MANY, size, red, green, blue)


@inline
def clear(sizes, few, many, count):
    """Makes the sizes and sums of the first entries zeros again."""
    for j in range(count):
        sizes[j] = 0.0
    for a in range((count + (1 << FEW) - 1) >> FEW):
        few[a, 0] = few[a, 1] = few[a, 2] = few[a, 3] = 0.0
    for b in range((count + (1 << MANY) - 1) >> MANY):
        many[b, 0] = many[b, 1] = many[b, 2] = many[b, 3] = 0.0


@inline
def reach(sizes, few, many, count, byte):
    """The first entry that ends above this byte, and where it begins; count if there is none."""
    base = 0.0
    j = np.int64(0)
    while j < count:
        if j & ((1 << MANY) - 1) == 0 and base + many[j >> MANY, 0] <= byte:
            base += many[j >> MANY, 0]
            j += 1 << MANY
        elif j & ((1 << FEW) - 1) == 0 and base + few[j >> FEW, 0] <= byte:
            base += few[j >> FEW, 0]
            j += 1 << FEW
        elif base + sizes[j] <= byte:
            base += sizes[j]
            j += 1
        else:
            break
    return min(j, count), base


@inline
def bottom_of(sizes, few, many, entry):
    """Where an entry begins."""
    base = 0.0
    for b in range(entry >> MANY):
        base += many[b, 0]
    for a in range(entry >> MANY << (MANY - FEW), entry >> FEW):
        base += few[a, 0]
    for j in range(entry >> FEW << FEW, entry):
        base += sizes[j]
    return base


@inline
def stack(pixels, ids, row, origin, per, entries, count, colors):
    """Paints one column (H,) from this row up. origin: the byte at which row 0 begins."""
    numbers, shown, sizes, few, many, _ = entries
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
    j, base = reach(sizes, few, many, count, bottom)
    while j < count and row < height:
        step = np.int64(1)
        size = sizes[j]
        if j & ((1 << FEW) - 1) == 0 and base >= bottom:
            if j & ((1 << MANY) - 1) == 0:
                b = j >> MANY
                end = base + many[b, 0]
                if end <= top and (end <= centre or base > centre):
                    covered += many[b, 0]
                    red += many[b, 1]
                    green += many[b, 2]
                    blue += many[b, 3]
                    base = end
                    j += 1 << MANY
                    continue
            a = j >> FEW
            whole = few[a, 0]
            end = base + whole
            if end <= top and (end <= centre or base > centre):
                covered += whole
                red += few[a, 1]
                green += few[a, 2]
                blue += few[a, 3]
                base = end
                j += 1 << FEW
                continue
            if whole <= SUMMARY * per:
                step = np.int64(1 << FEW)
                size = whole
        if size == 0.0:
            j += 1
            continue
        end = base + size
        if step == 1:
            shade = shown[j]
            number = numbers[j]
            r, g, b_ = shades[shade, 0], shades[shade, 1], shades[shade, 2]
        else:
            a = j >> FEW
            by = 1.0 / size
            r, g, b_ = few[a, 1] * by, few[a, 2] * by, few[a, 3] * by
            number = np.int32(-1)
            if base <= centre < end:
                i, at = j, base + sizes[j]
                while at <= centre and i + 1 < count:
                    i += 1
                    at += sizes[i]
                number = numbers[i]
        if base <= centre < end:
            under = number
        part = min(end, top) - max(base, bottom)
        covered += part
        red += part * r
        green += part * g
        blue += part * b_
        if end > top:
            emit(pixels, ids, row, (covered, red, green, blue), under, size >= TALL * per and base >= bottom, per,
                 ground)
            row += 1
            full = min(np.int64((end - origin) / per), height)
            if row < full:
                fill(pixels, ids, row, full, packed(r, g, b_), number)
                row = full
            bottom = origin + row * per
            top, centre = bottom + per, bottom + 0.5 * per
            covered = max(end - bottom, 0.0)
            red, green, blue = covered * r, covered * g, covered * b_
            under = number if centre < end else np.int32(-1)
        base = end
        j += step
    if row < height:
        emit(pixels, ids, row, (covered, red, green, blue), under, False, per, ground)
        fill(pixels, ids, row + 1, height, empty, np.int32(-1))


@kernel(i64(INDEX, R64, R32, INKS, COLUMNS, types.UniTuple(i64, 2), CANVAS, LIST))
def paint_bands(index, size, name, inks, columns, part, canvas, entries):
    """Paints the columns part[0] <= x < part[1]. name: which allocation each number of the index is (none: itself).

    entries: a list with room for all that one column and SLACK of others can need. Returns how many times it was built
    anew."""
    start, end, moment, first, begin, listed, ends, order = index
    classes, lit, shades, ground = inks
    moments, offset, low, per = columns
    pixels, ids = canvas
    numbers, shown, sizes, few, many, where = entries
    height = pixels.shape[1]
    empty = packed(ground[0, 0], ground[0, 1], ground[0, 2])
    count = limit = built = started = gone = under = np.int64(0)
    known = drawn = np.int64(-1)  # the moment of the list; of the column before, which has `under` below its stack
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
            clear(sizes, few, many, count)
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
                    change(few, many, j, -sizes[j], shades, shown[j])
                    sizes[j] = 0.0
        fresh = count
        for t in range(held + max(upto - started, 0)):
            i = np.int64(listed[begin[c] + t]) if t < held else started + t - held
            if end[i] >= k:
                number = name[i] if len(name) else np.int32(i)
                shade = np.int32(classes[number])
                if len(lit) and lit[number] == 0:
                    shade += np.int32(len(shades) >> 1)
                numbers[count] = number
                shown[count] = shade
                sizes[count] = size[i]
                where[i] = count
                change(few, many, count, np.float64(size[i]), shades, shade)
                count += 1
        base = offset[x] if len(offset) else np.int64(0)
        row = np.int64(0)
        if drawn >= 0 and drawn <= k and under == base:
            if lowest == fresh and fresh == count:
                row = height
            elif lowest > 0:
                row = min(max(np.int64((bottom_of(sizes, few, many, lowest) + base - low) / per), 0), height)
        again(pixels, ids, x, row)
        if row < height:
            stack(pixels[x], ids[x], row, low - base, per, entries, count, (shades, ground))
        known, started, gone, drawn, under = k, upto, ended, k, base
    clear(sizes, few, many, count)
    return built
