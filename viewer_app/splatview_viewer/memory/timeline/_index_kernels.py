"""Kernels of the index: what is live at a moment, and sums and peaks over moments.

Importing this module imports numba and compiles or loads the kernels: a worker thread does that first.
"""
# pyright: reportIndexIssue=false

from __future__ import annotations

import numpy as np

from splatview_viewer.memory._compile import i32, i64, inline, kernel, read, void, write
from splatview_viewer.memory._numba import types
from splatview_viewer.memory.timeline.index import APART
from splatview_viewer.memory.timeline.series import PYRAMID as BLOCK

R32, R64 = read(i32), read(i64)
INDEX = types.Tuple((R32, R32, R32, R32, R64, R32, R32, R32))
"""start, end; of checkpoints: moment, first, begin in the list, the list; those that end: their ends, their numbers."""


@kernel(void(R32, R32, R64, write(i64)))
def accumulate(start, end, size, out):
    """Adds to out (M + 1,), which is zeros, what is live at each moment."""
    last = len(out) - 1
    for i in range(len(start)):
        a = max(start[i], -1)
        b = end[i]
        if a < b and a < last:
            out[a + 1] += size[i]
            if b < last:
                out[b + 1] -= size[i]
    total = 0
    for k in range(len(out)):
        total += out[k]
        out[k] = total


@kernel(i64(R32, i64, write(i32), write(i32)))
def order_by_end(end, events, order, ends):
    """Numbers of those that end before the last moment, sorted by their end; the ends likewise. Returns how many."""
    count = np.zeros(events + 1, np.int32)
    for i in range(len(end)):
        if 0 <= end[i] < events:
            count[end[i] + 1] += 1
    for e in range(events):
        count[e + 1] += count[e]
    total = count[events]
    for i in range(len(end)):
        e = end[i]
        if 0 <= e < events:
            order[count[e]] = i
            ends[count[e]] = e
            count[e] += 1
    return total


@kernel(types.UniTuple(i64, 2)(R32, R32, write(i32), write(i32), write(i64), write(i32)))
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
    """How many of the sorted values are less than the limit."""
    low, high = np.int64(0), np.int64(len(values))
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(i64(INDEX, i64, write(i32)))
def live_at(index, k, out):
    """Writes the numbers of what is live at moment k, ascending. Returns how many, or, when out is too short to be
    sure, minus the length that it must have."""
    start, end, moment, first, begin, listed, _, _ = index
    c = before(moment, k + 1) - 1
    upto = before(start, k)
    need = begin[c + 1] - begin[c] + max(upto - first[c], 0)
    if need > len(out):
        return -need
    n = 0
    for j in range(begin[c], begin[c + 1]):
        i = listed[j]
        out[n] = i
        n += end[i] >= k
    for i in range(first[c], upto):
        out[n] = i
        n += end[i] >= k
    return n


@kernel(void(R64, write(i64), write(i64)))
def pyramid(values, low, high):
    """The least and the greatest of every BLOCK values; low, high: (ceil(n / BLOCK),)."""
    n = len(values)
    for b in range(len(low)):
        least = greatest = values[b * BLOCK]
        for k in range(b * BLOCK, min(n, (b + 1) * BLOCK)):
            least = min(least, values[k])
            greatest = max(greatest, values[k])
        low[b] = least
        high[b] = greatest


@inline
def whole(first, last):
    """The blocks that lie whole in first <= k < last."""
    return (first + BLOCK - 1) // BLOCK, last // BLOCK


@inline
def peak_of(values, high, first, last):
    best = first
    a, b = whole(first, last)
    if a >= b:
        for k in range(first, last):
            if values[k] > values[best]:
                best = k
        return best
    for k in range(first, a * BLOCK):
        if values[k] > values[best]:
            best = k
    greatest, block = values[best], -1
    for c in range(a, b):
        if high[c] > greatest:
            greatest, block = high[c], c
    if block >= 0:
        best = block * BLOCK
        while values[best] != greatest:
            best += 1
    for k in range(b * BLOCK, last):
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
            for k in range(a, first * BLOCK):
                lo = min(lo, values[k])
                hi = max(hi, values[k])
            for c in range(first, last):
                lo = min(lo, low[c])
                hi = max(hi, high[c])
            for k in range(last * BLOCK, b):
                lo = min(lo, values[k])
                hi = max(hi, values[k])
        least[x] = lo
        greatest[x] = hi
