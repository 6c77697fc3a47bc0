"""What the kernel of `machine` looks up: texts, streams, pairs and stacks by their hashes."""
# pyright: reportIndexIssue=false

from __future__ import annotations

import numpy as np

from splatview_viewer.memory._compile import i32, i64, inline, kernel, void, write
from splatview_viewer.memory._numba import types
from splatview_viewer.memory.loading.entries import MAX_TABLE
from splatview_viewer.memory.loading.machine import POOLS, SEED, STREAMS, TEXTS

U8S, I64S, I32S = write(types.uint8), write(i64), write(i32)
PRIME = 1099511628211
POSITIVE = 2**63 - 1


@inline
def whole(data, at, count):
    """An unsigned little-endian number of at most 7 bytes."""
    value = np.int64(0)
    for i in range(count):
        value |= np.int64(data[at + i]) << (8 * i)
    return value


@inline
def whole4(data, at):
    """An unsigned little-endian number of 4 bytes."""
    low = np.int64(data[at]) | np.int64(data[at + 1]) << 8
    return low | np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24


@inline
def mix(h):
    h ^= h >> 29
    h *= PRIME
    return (h ^ (h >> 32)) & POSITIVE


@inline
def hash_text(data, at, count, seed):
    h = seed
    for i in range(count):
        h = (h ^ np.int64(data[at + i])) * PRIME
    return mix(h)


@inline
def find_text(data, at, count, c, words):
    """The number of a text, or where in the table it belongs: -1 - place."""
    mask = len(words.table) - 1
    place = hash_text(data, at, count, c[SEED]) & mask
    while words.table[place] >= 0:
        t = words.table[place]
        b = words.start[t]
        if words.start[t + 1] - b == count:
            same = True
            for i in range(count):
                if words.blob[b + i] != data[at + i]:
                    same = False
                    break
            if same:
                return np.int64(t)
        place = (place + 1) & mask
    return -1 - place


@kernel(void(U8S, I64S, I64S, I32S))
def hash_texts(blob, start, c, table):
    """Fills an empty table with all texts."""
    mask = len(table) - 1
    for t in range(c[TEXTS]):
        place = hash_text(blob, start[t], start[t + 1] - start[t], c[SEED]) & mask
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = t


@kernel(void(I64S, i64, I32S))
def rehash(hashes, count, table):
    """Fills an empty table with numbers 0 to count - 1 by their hashes."""
    mask = len(table) - 1
    for i in range(count):
        place = hashes[i] & mask
        while table[place] >= 0:
            place = (place + 1) & mask
        table[place] = i


@inline
def number_of(value, c, streams, table):
    """The number of a stream; -1: there are too many."""
    mask = len(table) - 1
    place = mix(value ^ c[SEED]) & mask
    while table[place] >= 0:
        if streams[table[place]] == value:
            return np.int64(table[place])
        place = (place + 1) & mask
    n = c[STREAMS]
    if n > MAX_TABLE:
        return np.int64(-1)
    streams[n] = value
    table[place] = n
    c[STREAMS] = n + 1
    return n


@inline
def pair_of(first, second, c, pools, table):
    """The number of a pair; -1: there are too many."""
    mask = len(table) - 1
    place = mix(mix(first ^ c[SEED]) ^ second) & mask
    while table[place] >= 0:
        if pools[table[place], 0] == first and pools[table[place], 1] == second:
            return np.int64(table[place])
        place = (place + 1) & mask
    n = c[POOLS]
    if n > MAX_TABLE:
        return np.int64(-1)
    pools[n, 0] = first
    pools[n, 1] = second
    table[place] = n
    c[POOLS] = n + 1
    return n
