"""Kernels of the address space: where allocations lie in it, and columns of their rectangles.

At one moment the rectangles of a column do not overlap, so a column is a sum over them, in any order. The sums of one
column are brought to the next by what began and ended in between, or made anew where that costs less.
"""
# pyright: reportIndexIssue=false

from __future__ import annotations

import numpy as np

from splatview_viewer.memory._compile import i64, inline, kernel, void, write
from splatview_viewer.memory._numba import types
from splatview_viewer.memory.timeline._bands_kernel import (
    CANVAS,
    COLUMNS,
    INKS,
    SHADE,
    TALL,
    again,
    channel,
    fill,
    packed,
)
from splatview_viewer.memory.timeline._index_kernels import INDEX, R64, before
from splatview_viewer.memory.timeline.addresses import SUMS

# Sums of a row: 0-3 changes from the row below of how many rectangles fill it, and of their red, green and blue; 4-7 of
# those that do not fill it bytes, red, green and blue; 8 the change of the number under the centre, 11 of how many lie
# under it; 9 lower edges of tall rectangles; 10 the change of how often it was touched since the last column.

LAYER = types.Tuple((INDEX, R64, R64))
"""What may be live, where it lies, and sizes."""


@kernel(i64(R64, R64, R64, R64, R64, write(i64)))
def place(addr, size, first, last, shift, out):
    """Where each allocation lies in ranges first <= address < last that are moved by `shift`; -1: in none. Returns how
    many lie in none."""
    lost = 0
    r = 0
    for i in range(len(addr)):
        a = addr[i]
        if not (len(first) and first[r] <= a and a + size[i] <= last[r]):
            r = max(before(first, a + 1) - 1, 0)
        if len(first) and first[r] <= a and a + size[i] <= last[r]:
            out[i] = a + shift[r]
        else:
            out[i] = -1
            lost += 1
    return lost


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
        for row in range(len(sums)):
            for column in range(SUMS):
                sums[row, column] = 0.0
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


@kernel(void(LAYER, LAYER, INKS, COLUMNS, types.UniTuple(i64, 2), CANVAS, write(types.float64, 3)))
def paint_addresses(blocks, spans, inks, columns, part, canvas, sums):
    """Paints the columns part[0] <= x < part[1]. sums: room (2, H + 2, SUMS)."""
    ground = inks[3]
    moments, _, low, per = columns
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
