"""A readable reference of the timeline's kernels, in numpy. Functions have the kernels' names and arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from splatview.viewer_app.memory.timeline.index import APART
from splatview.viewer_app.memory.timeline.series import PYRAMID as BLOCK

SHADE, TALL = 0.62, 3.0  # what the view is specified to look like, not what the kernel's module says
_TURNED = 64
"""Columns that are turned over in one go."""


def accumulate(start: np.ndarray, end: np.ndarray, size: np.ndarray, out: np.ndarray) -> None:
    last = len(out) - 1
    first, until = np.maximum(start, -1), end
    seen = (first < until) & (first < last)
    np.add.at(out, first[seen] + 1, size[seen])
    gone = seen & (until < last)
    np.add.at(out, until[gone] + 1, -size[gone])
    np.cumsum(out, out=out)


def order_by_end(end: np.ndarray, events: int, order: np.ndarray, ends: np.ndarray) -> int:
    found = np.flatnonzero((end >= 0) & (end < events))
    found = found[np.argsort(end[found], kind="stable")]
    order[: len(found)] = found
    ends[: len(found)] = end[found]
    return len(found)


def checkpoints(start: np.ndarray, end: np.ndarray, moment: np.ndarray, first: np.ndarray, begin: np.ndarray,
                listed: np.ndarray) -> tuple[int, int]:
    before = int(np.searchsorted(start, 0))
    lists = [np.arange(before)]
    moment[0], first[0], begin[0], begin[1] = 0, before, 0, before
    made, at = 1, before
    while (at := at + max(len(lists[-1]), APART)) < len(start):
        k = int(start[at])
        f = int(np.searchsorted(start, k))
        if f > first[made - 1]:
            candidates = np.concatenate([lists[-1], np.arange(first[made - 1], f)])
            lists.append(candidates[end[candidates] >= k])
            moment[made], first[made], begin[made + 1] = k, f, begin[made] + len(lists[-1])
            made += 1
    used = int(begin[made])
    listed[:used] = np.concatenate(lists)
    return made, used


def live_at(index: tuple[np.ndarray, ...], k: int, out: np.ndarray) -> int:
    start, end, moment, first, begin, listed, _, _ = index
    c = int(np.searchsorted(moment, k, "right")) - 1
    upto = int(np.searchsorted(start, k))
    ids = np.concatenate([listed[begin[c]: begin[c + 1]], np.arange(first[c], upto, dtype=np.int32)])
    if len(ids) > len(out):
        return -len(ids)
    ids = ids[end[ids] >= k]
    out[: len(ids)] = ids
    return len(ids)


def pyramid(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    at = np.arange(0, len(values), BLOCK)
    low[:] = np.minimum.reduceat(values, at)
    high[:] = np.maximum.reduceat(values, at)


def peaks(values: np.ndarray, high: np.ndarray, edges: np.ndarray, out: np.ndarray) -> None:
    n = len(values)
    for x in range(len(out)):
        a, b = max(int(edges[x]), 0), min(int(edges[x + 1]), n)
        out[x] = a + int(np.argmax(values[a:b])) if a < b else edges[x] - 1 if 1 <= edges[x] <= n else -1


def envelope(values: np.ndarray, low: np.ndarray, high: np.ndarray, edges: np.ndarray, least: np.ndarray,
             greatest: np.ndarray) -> None:
    n = len(values)
    for x in range(len(least)):
        a, b = min(max(int(edges[x]), 0), n), min(int(edges[x + 1]), n)
        if a >= b:
            a = min(max(int(edges[x]) - 1, 0), n - 1)
            b = a + 1
        least[x], greatest[x] = values[a:b].min(), values[a:b].max()


def place(addr: np.ndarray, size: np.ndarray, first: np.ndarray, last: np.ndarray, shift: np.ndarray,
          out: np.ndarray) -> int:
    out[:] = -1
    if len(first):
        r = np.maximum(np.searchsorted(first, addr, "right") - 1, 0)
        inside = (first[r] <= addr) & (addr + size <= last[r])
        out[inside] = (addr + shift[r])[inside]
    return int((out < 0).sum())


def paint_bands(index: Any, size: np.ndarray, name: np.ndarray, inks: Any, columns: Any, part: tuple[int, int],
                canvas: Any, entries: object) -> None:
    _, offset, _, _ = columns

    def rects(k: int, x: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        live = _live(index, k)
        sizes = size[live]
        bottoms = np.cumsum(sizes) - sizes + (int(offset[x]) if len(offset) else 0)
        return (name[live] if len(name) else live), bottoms, sizes

    _columns(rects, lambda k: None, inks, columns, part, canvas)


def paint_addresses(blocks: Any, spans: Any, inks: Any, columns: Any, part: tuple[int, int], canvas: Any,
                    sums: object) -> None:
    def rects(k: int, x: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        index, places, size = blocks
        live = _live(index, k)
        live = live[np.argsort(places[live], kind="stable")]
        return live, places[live], size[live]

    def ground(k: int) -> tuple[np.ndarray, np.ndarray]:
        index, places, size = spans
        live = _live(index, k)
        live = live[np.argsort(places[live], kind="stable")]
        return places[live], size[live]

    _columns(rects, ground, inks, columns, part, canvas)


def assemble(before: Any, fresh: Any, origin: Any, canvas: Any, rows: np.ndarray, part: tuple[int, int],
             grain: int) -> None:
    height, width = rows.shape
    for i in range(part[0], part[1], _TURNED):
        j = min(i + _TURNED, part[1])
        old = origin[0][i:j] >= 0
        for ours, theirs, new in zip(canvas, before, fresh, strict=True):
            ours[i:j][old] = theirs[origin[0][i:j][old]]
            ours[i:j][~old] = new[origin[1][i:j][~old]]
        turned = canvas[0][i:j, ::-1].T
        whole = turned.repeat(grain, axis=0).repeat(grain, axis=1)[:height, : width - i * grain]
        rows[:, i * grain: i * grain + whole.shape[1]] = whole


def paint_ground(pixels: np.ndarray, top: np.ndarray, bottom: np.ndarray, shades: Any, line: int) -> None:
    for x, (first, last) in enumerate(zip(top.tolist(), bottom.tolist(), strict=True)):
        if first < last:
            pixels[x, first:last] = shades[0]
            if first > 0:
                pixels[x, first:min(first + line, last)] = shades[1]


def _live(index: tuple[np.ndarray, ...], k: int) -> np.ndarray:
    out = np.empty(len(index[0]) + len(index[5]), np.int32)
    return out[: live_at(index, k, out)]


def _columns(rects: Any, ground: Any, inks: Any, columns: Any, part: tuple[int, int], canvas: Any) -> None:
    """Paints columns of rectangles that are sorted from the bottom and do not overlap."""
    classes, lit, shades, grounds = inks
    moments, offset, low, per = columns
    pixels, ids = canvas
    height = pixels.shape[1]
    edges = low + per * np.arange(height + 1)
    centres = edges[:-1] + per / 2
    for x in range(*part):
        k = int(moments[x])
        if x > part[0] and k == moments[x - 1] and (not len(offset) or offset[x] == offset[x - 1]):
            pixels[x], ids[x] = pixels[x - 1], ids[x - 1]
            continue
        rgb = np.tile(grounds[0], (height, 1)) * per
        owner = np.full(height, -1, np.int32)
        dark = np.zeros(height, bool)
        if k >= 0:
            numbers, bottoms, sizes = rects(k, x)
            some = sizes > 0
            numbers, bottoms, sizes = numbers[some], bottoms[some], sizes[some]
            covered = _covered(edges, bottoms, sizes, np.ones(len(sizes)))
            reserved = ground(k)
            if reserved is not None:
                free = _covered(edges, reserved[0], reserved[1], np.ones(len(reserved[1])))
                under = np.clip(free - covered, 0, None)
                rgb += under[:, None] * (grounds[1] - grounds[0])
            rgb -= covered[:, None] * grounds[0]
            shade = classes[numbers].astype(np.int64)
            if len(lit):
                shade += np.where(lit[numbers] > 0, 0, len(shades) // 2)
            for c in range(3):
                rgb[:, c] += _covered(edges, bottoms, sizes, shades[shade, c])
            if len(numbers):
                at = np.searchsorted(bottoms, centres, "right") - 1
                inside = (at >= 0) & (centres < (bottoms + sizes)[at])
                owner[inside] = numbers[at[inside]]
                row = (bottoms[sizes >= TALL * per] - low) / per
                dark[np.floor(row[(row >= 0) & (row < height)]).astype(int)] = True
        rgb[dark] *= SHADE
        color = (rgb / per + 0.5).clip(0, 255).astype(np.uint32)
        pixels[x] = (color[:, 0] | color[:, 1] << 8 | color[:, 2] << 16 | np.uint32(0xFF000000))[::-1]
        ids[x] = owner[::-1]


def _covered(edges: np.ndarray, bottoms: np.ndarray, sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum of bytes times weight of rectangles between each two edges."""
    if not len(bottoms):
        return np.zeros(len(edges) - 1)
    knots = np.stack([bottoms, bottoms + sizes], 1).ravel().astype(np.float64)
    total = np.cumsum(sizes * weights)
    sums = np.stack([total - sizes * weights, total], 1).ravel()
    return np.diff(np.interp(edges, knots, sums))
