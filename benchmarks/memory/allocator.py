"""A model of PyTorch's caching allocator, quick enough to write ten million events of.

It follows `CUDACachingAllocator` with its default settings: sizes are rounded to 512 bytes; what is at most 1 MiB comes
from small segments of 2 MiB, the rest from segments of 20 MiB, or of its own size rounded to 2 MiB from 10 MiB on;
blocks are found by best fit within their stream and pool, split, and merged with free neighbours; a block that another
stream used is freed when that stream is done; when the device is full, empty segments go back to the driver first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

MINIMUM, SMALL, SMALL_SEGMENT, LARGE_SEGMENT, LARGE_FROM, ROUND = 512, 1 << 20, 2 << 20, 20 << 20, 10 << 20, 2 << 20
DRIVER_BASE = 0x7F2C_0000_0000

ALLOC, FREE, FREE_LATER, EMPTY_CACHE = range(4)
"""What a program asks for: `FREE_LATER` frees what another stream still uses."""
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom")
ACT_ALLOC, ACT_FREE_REQUESTED, ACT_FREE_COMPLETED, ACT_SEGMENT_ALLOC, ACT_SEGMENT_FREE, ACT_OOM = range(6)
UNUSED, INACTIVE, ALLOCATED, PENDING = range(4)
"""What a block is."""
SPARE_BLOCKS, SEGMENTS, RANGES, RESERVED, LIMIT, NOW, FIRST_PENDING, PENDINGS, EVENTS, FULL, OOMS = range(11)
"""What `State.counts` counts."""

BLOCKS, LIST, RANGE, QUEUE = 1 << 18, 1 << 16, 1 << 14, 1 << 12
PENDING_US = 1500
"""How long another stream takes to be done with a block."""


inner = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
"""Decorator of kernels that only kernels call: their wrappers for Python, which unpack a `State`, compile slowly."""


class State(NamedTuple):
    """The allocator of one device; arrays that the kernels change."""

    addr: np.ndarray
    size: np.ndarray
    requested: np.ndarray
    before: np.ndarray
    after: np.ndarray
    state: np.ndarray
    family: np.ndarray
    segment: np.ndarray
    stack: np.ndarray
    free_stack: np.ndarray
    spare: np.ndarray
    segment_addr: np.ndarray
    segment_size: np.ndarray
    segment_family: np.ndarray
    segment_stack: np.ndarray
    segment_first: np.ndarray
    free_count: np.ndarray
    free_size: np.ndarray
    free_block: np.ndarray
    range_addr: np.ndarray
    range_size: np.ndarray
    pending: np.ndarray
    pending_due: np.ndarray
    slots: np.ndarray
    counts: np.ndarray


class Output(NamedTuple):
    """Events, one row each."""

    action: np.ndarray
    addr: np.ndarray
    size: np.ndarray
    time: np.ndarray
    stack: np.ndarray
    family: np.ndarray
    block: np.ndarray
    """The block that it is about; -1: none."""


def new_state(device: int, families: int, slots: int, limit: int) -> State:
    """An empty device of `limit` bytes. families: kinds of memory that do not mix, each small and large; see `run`."""
    def i64(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.int64)

    def i32(*shape: int) -> np.ndarray:
        return np.full(shape, -1, np.int32)

    state = State(i64(BLOCKS), i64(BLOCKS), i64(BLOCKS), i32(BLOCKS), i32(BLOCKS), np.zeros(BLOCKS, np.uint8),
                  i32(BLOCKS), i32(BLOCKS), i32(BLOCKS), i32(BLOCKS), np.arange(BLOCKS - 1, -1, -1, dtype=np.int32),
                  i64(RANGE), i64(RANGE), i32(RANGE), i32(RANGE), i32(RANGE), i64(2 * families),
                  i64(2 * families, LIST), np.zeros((2 * families, LIST), np.int32), i64(RANGE), i64(RANGE),
                  i32(QUEUE), i64(QUEUE), i32(slots), i64(11))
    state.counts[SPARE_BLOCKS] = BLOCKS
    state.counts[LIMIT] = limit
    state.range_addr[0], state.range_size[0] = DRIVER_BASE + (device << 40), 1 << 40
    state.counts[RANGES] = 1
    return state


def new_output(rows: int) -> Output:
    return Output(np.zeros(rows, np.uint8), np.zeros(rows, np.int64), np.zeros(rows, np.int64),
                  np.zeros(rows, np.int64), np.zeros(rows, np.int32), np.zeros(rows, np.int32),
                  np.zeros(rows, np.int32))


@inner
def _emit(s, out, action, addr, size, stack, family, block):
    n = s.counts[EVENTS]
    if n >= len(out.action):
        s.counts[FULL] = 1
        return
    out.action[n] = action
    out.addr[n] = addr
    out.size[n] = size
    out.time[n] = s.counts[NOW]
    out.stack[n] = stack
    out.family[n] = family
    out.block[n] = block
    s.counts[EVENTS] = n + 1


@inner
def _place(s, lane, size, addr):
    """Where a free block of this size and address is, or belongs, in its list: ordered by size, then by address."""
    low, high = 0, s.free_count[lane]
    while low < high:
        middle = (low + high) >> 1
        there = s.free_size[lane, middle]
        if there < size or (there == size and s.addr[s.free_block[lane, middle]] < addr):
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _insert(s, lane, block):
    n = s.free_count[lane]
    if n >= LIST:
        s.counts[FULL] = 1
        return
    at = _place(s, lane, s.size[block], s.addr[block])
    for i in range(n, at, -1):
        s.free_size[lane, i] = s.free_size[lane, i - 1]
        s.free_block[lane, i] = s.free_block[lane, i - 1]
    s.free_size[lane, at] = s.size[block]
    s.free_block[lane, at] = block
    s.free_count[lane] = n + 1


@inner
def _take(s, lane, at):
    block = s.free_block[lane, at]
    n = s.free_count[lane] - 1
    for i in range(at, n):
        s.free_size[lane, i] = s.free_size[lane, i + 1]
        s.free_block[lane, i] = s.free_block[lane, i + 1]
    s.free_count[lane] = n
    return block


@inner
def _new_block(s):
    n = s.counts[SPARE_BLOCKS] - 1
    if n < 0:
        s.counts[FULL] = 1
        return 0
    s.counts[SPARE_BLOCKS] = n
    return s.spare[n]


@inner
def _drop_block(s, block):
    s.state[block] = UNUSED
    s.spare[s.counts[SPARE_BLOCKS]] = block
    s.counts[SPARE_BLOCKS] += 1


@inner
def _driver_take(s, size):
    """The lowest address at which the driver has this much."""
    for i in range(s.counts[RANGES]):
        if s.range_size[i] >= size:
            addr = s.range_addr[i]
            s.range_addr[i] += size
            s.range_size[i] -= size
            if s.range_size[i] == 0:
                for k in range(i, s.counts[RANGES] - 1):
                    s.range_addr[k] = s.range_addr[k + 1]
                    s.range_size[k] = s.range_size[k + 1]
                s.counts[RANGES] -= 1
            return addr
    return 0


@inner
def _driver_give(s, addr, size):
    n = s.counts[RANGES]
    at = 0
    while at < n and s.range_addr[at] < addr:
        at += 1
    if at > 0 and s.range_addr[at - 1] + s.range_size[at - 1] == addr:
        s.range_size[at - 1] += size
        if at < n and addr + size == s.range_addr[at]:
            s.range_size[at - 1] += s.range_size[at]
            for k in range(at, n - 1):
                s.range_addr[k] = s.range_addr[k + 1]
                s.range_size[k] = s.range_size[k + 1]
            s.counts[RANGES] = n - 1
        return
    if at < n and addr + size == s.range_addr[at]:
        s.range_addr[at] = addr
        s.range_size[at] += size
        return
    if n >= RANGE:
        s.counts[FULL] = 1
        return
    for k in range(n, at, -1):
        s.range_addr[k] = s.range_addr[k - 1]
        s.range_size[k] = s.range_size[k - 1]
    s.range_addr[at] = addr
    s.range_size[at] = size
    s.counts[RANGES] = n + 1


@inner
def _free(s, block):
    """Back to its list, one with its free neighbours."""
    lane = s.family[block]
    s.state[block] = INACTIVE  # what was last asked of it stays, as in PyTorch
    for step in range(2):
        other = s.before[block] if step == 0 else s.after[block]
        if other < 0 or s.state[other] != INACTIVE:
            continue
        _take(s, lane, _place(s, lane, s.size[other], s.addr[other]))
        s.size[block] += s.size[other]
        if step == 0:
            s.addr[block] = s.addr[other]
            s.before[block] = s.before[other]
            if s.before[block] >= 0:
                s.after[s.before[block]] = block
            else:
                s.segment_first[s.segment[block]] = block
        else:
            s.after[block] = s.after[other]
            if s.after[block] >= 0:
                s.before[s.after[block]] = block
        _drop_block(s, other)
    _insert(s, lane, block)


@inner
def _complete(s, out, everything):
    """End the frees whose streams are done; all of them where `everything`."""
    while s.counts[PENDINGS] > 0:
        at = s.counts[FIRST_PENDING] % QUEUE
        if s.pending_due[at] > s.counts[NOW] and not everything:
            return
        block = s.pending[at]
        s.counts[FIRST_PENDING] += 1
        s.counts[PENDINGS] -= 1
        _emit(s, out, ACT_FREE_COMPLETED, s.addr[block], s.requested[block], s.free_stack[block],
              s.family[block] >> 1, block)
        _free(s, block)


@inner
def _release(s, out, stack, private):
    """Give empty segments back to the driver; those of private pools (families from `private` on) stay."""
    for segment in range(s.counts[SEGMENTS]):
        if s.segment_size[segment] == 0 or (s.segment_family[segment] >> 1) >= private:
            continue
        block = s.segment_first[segment]
        if s.state[block] != INACTIVE or s.size[block] != s.segment_size[segment]:
            continue
        lane = s.family[block]
        _take(s, lane, _place(s, lane, s.size[block], s.addr[block]))
        _emit(s, out, ACT_SEGMENT_FREE, s.addr[block], s.size[block], stack, lane >> 1, -1)
        _driver_give(s, s.addr[block], s.size[block])
        s.counts[RESERVED] -= s.size[block]
        s.segment_size[segment] = 0
        _drop_block(s, block)


@inner
def _new_segment(s, out, size, lane, stack):
    """A block that is a segment of its own; -1: the device is full."""
    total = size
    if (lane & 1) == 0:
        total = SMALL_SEGMENT
    elif size < LARGE_FROM:
        total = LARGE_SEGMENT
    else:
        total = (size + ROUND - 1) // ROUND * ROUND
    if s.counts[RESERVED] + total > s.counts[LIMIT]:
        return -1
    segment = s.counts[SEGMENTS]
    for i in range(s.counts[SEGMENTS]):
        if s.segment_size[i] == 0:
            segment = i
            break
    if segment >= RANGE:
        s.counts[FULL] = 1
        return -1
    s.counts[SEGMENTS] = max(s.counts[SEGMENTS], segment + 1)
    block = _new_block(s)
    s.addr[block] = _driver_take(s, total)
    s.size[block] = total
    s.before[block] = -1
    s.after[block] = -1
    s.family[block] = lane
    s.segment[block] = segment
    s.segment_addr[segment] = s.addr[block]
    s.segment_size[segment] = total
    s.segment_family[segment] = lane
    s.segment_stack[segment] = stack
    s.segment_first[segment] = block
    s.counts[RESERVED] += total
    _emit(s, out, ACT_SEGMENT_ALLOC, s.addr[block], total, stack, lane >> 1, -1)
    return block


@inner
def _malloc(s, out, requested, family, stack, private):
    """The block for this request, or -1 after an `oom` event."""
    _complete(s, out, False)
    size = max((requested + MINIMUM - 1) // MINIMUM * MINIMUM, MINIMUM)
    lane = 2 * family + (1 if size > SMALL else 0)
    at = _place(s, lane, size, 0)
    if at < s.free_count[lane]:
        block = _take(s, lane, at)
    else:
        block = _new_segment(s, out, size, lane, stack)
        if block < 0:
            _complete(s, out, True)
            _release(s, out, stack, private)
            block = _new_segment(s, out, size, lane, stack)
        if block < 0:
            _emit(s, out, ACT_OOM, s.counts[LIMIT] - s.counts[RESERVED], requested, stack, family, -1)
            return -1
    left = s.size[block] - size
    if (left >= MINIMUM if (lane & 1) == 0 else left > SMALL):
        rest = _new_block(s)
        s.addr[rest] = s.addr[block] + size
        s.size[rest] = left
        s.before[rest] = block
        s.after[rest] = s.after[block]
        if s.after[block] >= 0:
            s.before[s.after[block]] = rest
        s.after[block] = rest
        s.family[rest] = lane
        s.segment[rest] = s.segment[block]
        s.state[rest] = INACTIVE
        s.requested[rest] = s.requested[block]
        s.size[block] = size
        _insert(s, lane, rest)
    s.state[block] = ALLOCATED
    s.requested[block] = requested
    s.stack[block] = stack
    _emit(s, out, ACT_ALLOC, s.addr[block], requested, stack, family, block)
    return block


@njit(cache=True, nogil=True)
def run(s, out, program, sizes, delays, begin, target, private):
    """Run a program from its row `begin` on until it ends or `target` events are out; returns the row after the last.

    program: int32 (n, 4): what, slot (-1: nobody's, never freed), family, stack. sizes: int64 (n,), bytes. delays:
    int64 (n,), microseconds before each. private: the first family that is a private pool's. It also ends when memory
    runs out, which `State.counts[OOMS]` counts; `State.counts[FULL]` is set where a table was too small.
    """
    for i in range(begin, len(program)):
        if s.counts[EVENTS] >= target or s.counts[FULL] != 0:
            return i
        s.counts[NOW] += delays[i]
        what, slot, family, stack = program[i, 0], program[i, 1], program[i, 2], program[i, 3]
        if what == ALLOC:
            block = _malloc(s, out, sizes[i], family, stack, private)
            if block < 0:
                s.counts[OOMS] += 1
                return i + 1
            if slot >= 0:
                s.slots[slot] = block
        elif what == EMPTY_CACHE:
            _complete(s, out, True)
            _release(s, out, stack, private)
        elif s.slots[slot] >= 0:
            block = s.slots[slot]
            s.slots[slot] = -1
            s.free_stack[block] = stack
            _emit(s, out, ACT_FREE_REQUESTED, s.addr[block], s.requested[block], stack, s.family[block] >> 1, block)
            if what == FREE:
                _emit(s, out, ACT_FREE_COMPLETED, s.addr[block], s.requested[block], stack, s.family[block] >> 1,
                      block)
                _free(s, block)
            elif s.counts[PENDINGS] < QUEUE:
                at = (s.counts[FIRST_PENDING] + s.counts[PENDINGS]) % QUEUE
                s.state[block] = PENDING
                s.pending[at] = block
                s.pending_due[at] = s.counts[NOW] + PENDING_US
                s.counts[PENDINGS] += 1
            else:
                s.counts[FULL] = 1
    return len(program)
