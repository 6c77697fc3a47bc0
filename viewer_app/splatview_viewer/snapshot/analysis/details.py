"""One allocation, the segments at a moment, and the ranges that the program annotated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.core.format import (
    age_text,
    count_text,
    exact_size_text,
    size_text,
)
from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.analysis.frames import CATEGORIES, categories
from splatview_viewer.snapshot.model import (
    ACTIONS,
    NO_STACK,
    address_text,
    cached,
    device_text,
    live_mask,
    pool_text,
    signed,
    stream_text,
    unsigned,
)

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace


class FrameLine(NamedTuple):
    """One line of a stack as it is shown."""

    file: str
    line: int
    name: str
    kind: int
    """frames.USER, LIBRARY, TORCH, BACKWARD, NATIVE or MACHINERY."""

    @property
    def text(self) -> str:
        """ "/home/me/model.py:54  forward"."""
        file = self.file[-_frames.MAX_NAME_LETTERS :]
        name = self.name[: _frames.MAX_NAME_LETTERS]
        if file in ("", "??"):
            return name
        return f"{file}:{self.line}  {name}" if self.line > 0 else f"{file}  {name}"


@dataclass(frozen=True)
class Details:
    """Everything about one allocation, in words."""

    allocation: int
    title: str
    rows: list[tuple[str, str]]
    """A property, and its value."""
    frames: list[FrameLine]
    """The whole stack, innermost first."""
    freed_frames: list[FrameLine]
    """The stack of the free; none where it is not known."""

    @property
    def user_frames(self) -> list[FrameLine]:
        """The user's own code, innermost first."""
        return [line for line in self.frames if line.kind == _frames.USER]

    def text(self) -> str:
        """All of it, for copying."""
        width = max((len(what) for what, _ in self.rows), default=0)
        out = [self.title, *(f"{what:<{width}}  {value}" for what, value in self.rows)]
        for title, lines in (
            ("Your code", self.user_frames),
            ("Stack", self.frames),
            ("Freed by", self.freed_frames),
        ):
            if lines:
                out += ["", title, *(f"  {line.text}" for line in lines)]
        return "\n".join(out) + "\n"


def describe(
    snapshot: MemorySnapshot, trace: Trace, allocation: int, moment: int | None = None
) -> Details:
    """Tell all about an allocation; with a moment, its share of what is live then."""
    a = trace.allocations
    m = len(trace.events)
    kinds = _frames.frame_kinds(snapshot)
    size, rounded, stack, start, end, pool = (
        int(column[allocation])
        for column in (a.size, a.rounded, a.stack, a.start, a.end, a.pool)
    )
    rows = [("Size", exact_size_text(size))]
    if rounded:
        lost = f", {size_text(rounded - size)} of it not used" if rounded > size else ""
        rows.append(("Block", exact_size_text(rounded) + lost))
    rows += [
        ("Address", address_text(int(a.addr[allocation]))),
        *life(trace, allocation).items(),
    ]
    if moment is not None and start < moment <= end:
        live = int(a.size.sum(where=live_mask(trace, moment)))
        rows.append(
            (
                "Share",
                f"{size / max(live, 1):.1%} of the {size_text(live)} live at moment {moment:,}",
            )
        )
    rows += [
        ("Category", CATEGORIES[categories(snapshot, trace)[0][allocation]]),
        ("Stream", stream_text(snapshot.streams[int(a.stream[allocation])])),
        ("Pool", pool_text(snapshot.pools[pool] if pool >= 0 else None)),
    ]
    for what, numbers in (
        ("Compiled", trace.events.context),
        ("Metadata", trace.events.metadata),
    ):
        if start >= 0 and numbers[start] >= 0:
            rows.append((what, snapshot.texts[int(numbers[start])]))
    same = a.stack == stack
    if stack >= 0 and same.sum() > 1:
        rows.append(
            (
                "Same stack",
                f"{count_text(int(same.sum()), 'allocation')}, "
                f"{size_text(int(a.size.sum(where=same)))} altogether",
            )
        )
    rows.append(("Number", f"{allocation:,} on {device_text(trace.device)}"))
    frames, freed = (
        [
            FrameLine(f.file, f.line, f.name, int(kinds[number]))
            for number, f in zip(
                snapshot.stacks.frames_of(s), snapshot.stack(s), strict=True
            )
        ]
        for s in (stack, int(trace.events.stack[end]) if end < m else NO_STACK)
    )
    return Details(
        allocation, summary(snapshot, trace, allocation), rows, frames, freed
    )


def life(trace: Trace, allocation: int) -> dict[str, str]:
    """When an allocation was made and freed, and how long it lived, in words."""
    a = trace.allocations
    m = len(trace.events)
    times = trace.events.time_us
    start = int(a.start[allocation])
    end = int(a.end[allocation])
    freed = int(a.freed[allocation])

    def event(number: int) -> str:
        known = times[number] > 0 and times[0] > 0
        return f"event {number:,}" + (
            f", {age_text(int(times[number]) - int(times[0]))} after the trace began"
            if known
            else ""
        )

    out = {
        "Allocated": event(start) if start >= 0 else "before the trace",
        "Freed": event(end) if end < m else "not before the end of the trace",
    }
    if end < m <= freed:
        out["Given back"] = "not before the end: another stream may use it"
    elif freed - end > 1:
        out["Given back"] = event(freed)
    first = max(start, 0)
    last = max(min(end, m - 1), 0)
    more = "at least " if start < 0 or end >= m else ""
    # A time of 0 is not known, and clocks can be set back.
    is_timed = m > 0 and 0 < times[first] <= times[last]
    took = f", {age_text(int(times[last]) - int(times[first]))}" if is_timed else ""
    return {**out, "Lived": f"{more}{count_text(max(last - first, 0), 'event')}{took}"}


def summary(snapshot: MemorySnapshot, trace: Trace, allocation: int) -> str:
    """One line for the pointer: "8.00 MiB  forward  model.py:54"."""
    stack = int(trace.allocations.stack[allocation])
    return f"{size_text(int(trace.allocations.size[allocation]))}  {_frames.stack_text(snapshot, stack, caller=False)}"


INACTIVE = 0
ACTIVE = 1
PENDING = 2
"""States of blocks, as in model.BLOCK_STATES: free in the cache, in use, freed but another stream may still use it."""
_MAPPED = ACTIONS.index("segment_map")
_UNMAPPED = ACTIONS.index("segment_unmap")
SMALL_SEGMENT = 2 << 20
SMALL = 1 << 20
"""PyTorch's allocator: segments for small blocks have 2 MiB; from larger ones no rest of up to 1 MiB is split off."""


@dataclass(frozen=True, eq=False)
class SegmentsAt:
    """Reserved memory at one moment, in the order of the addresses; n segments, and their blocks, which fill them."""

    moment: int
    addr: np.ndarray
    size: np.ndarray
    """uint64 and int64 (n,)"""
    stream: np.ndarray
    pool: np.ndarray
    """int16 (n,): places in Snapshot.streams and Snapshot.pools; -1: the pool is not known."""
    expandable: np.ndarray
    """bool (n,)"""
    block_start: np.ndarray
    """int64 (n + 1,): segment i has the blocks block_start[i] to block_start[i + 1]."""
    block_addr: np.ndarray
    block_size: np.ndarray
    """uint64 and int64 (b,): bytes that the block takes."""
    block_state: np.ndarray
    """uint8 (b,): INACTIVE, ACTIVE or PENDING."""
    block_allocation: np.ndarray
    """int32 (b,): -1 for inactive blocks."""

    active: int
    """Bytes of the blocks in use, rounded up as the allocator does."""
    pending: int
    """Bytes that were freed but wait for another stream."""
    free: int
    """Bytes in the cache that could be handed out."""

    def __len__(self) -> int:
        return len(self.addr)

    @property
    def reserved(self) -> int:
        """Bytes of all segments."""
        return int(self.size.sum())


def segments_at(snapshot: MemorySnapshot, trace: Trace, moment: int) -> SegmentsAt:
    """Segments and blocks at a moment.

    Sizes of blocks are the allocator's where the snapshot tells them (what is there at its end); others are rounded up
    to 512 bytes, and take the rest behind them where the allocator would not have split it off.
    """
    addr, size, stream, pool, expandable = _reserved(trace, moment)
    a = trace.allocations
    ids = np.flatnonzero(
        (a.start < moment) & (np.maximum(a.freed, a.end) >= moment)
    ).astype(np.int32)
    ids = ids[np.argsort(a.addr[ids], kind="stable")]
    segment = np.searchsorted(addr, signed(a.addr[ids]), "right") - 1
    inside = segment >= 0
    inside[inside] = signed(a.addr[ids[inside]]) < (addr + size)[segment[inside]]
    ids = ids[inside]
    segment = segment[inside]
    begin = signed(a.addr[ids])
    rounded = a.rounded[ids]
    limit = np.minimum(
        np.append(begin[1:], np.iinfo(np.int64).max)[: len(begin)],
        (addr + size)[segment],
    )
    taken = np.where(
        rounded > 0, rounded, (np.maximum(a.size[ids], 1) + 511) & ~np.int64(511)
    )
    rest = limit - begin - taken
    whole = (
        (rounded == 0)
        & (rest <= SMALL)
        & (size[segment] > SMALL_SEGMENT)
        & ~expandable[segment]
    )
    end = np.where(whole, limit, np.minimum(limit, begin + taken))
    # Every piece between two edges is one block, or free.
    edges = np.unique(np.concatenate([addr, addr + size, begin, end]))
    length = np.diff(edges)
    edges = edges[:-1]
    of_segment = np.searchsorted(addr, edges, "right") - 1
    inside = of_segment >= 0
    inside[inside] = edges[inside] < (addr + size)[of_segment[inside]]
    edges = edges[inside]
    length = length[inside]
    of_segment = of_segment[inside]
    ids = ids[end > begin]
    begin = begin[end > begin]
    block = np.searchsorted(begin, edges)
    used = np.append(begin, np.iinfo(np.int64).max)[block] == edges
    allocation = np.where(used, np.append(ids, np.int32(-1))[block], np.int32(-1))
    state = np.full(len(edges), INACTIVE, np.uint8)
    state[used] = np.where(a.end[allocation[used]] >= moment, ACTIVE, PENDING)
    free, active, pending = np.bincount(state, length, 3).astype(int).tolist()
    return SegmentsAt(
        moment,
        unsigned(addr),
        size,
        stream,
        pool,
        expandable,
        np.searchsorted(of_segment, np.arange(len(addr) + 1)),
        unsigned(edges),
        length,
        state,
        allocation,
        active,
        pending,
        free,
    )


def _reserved(trace: Trace, moment: int) -> tuple[np.ndarray, ...]:
    """addr (signed), size, stream, pool, expandable of segments: ranges of one expandable segment are put together."""
    s = trace.spans
    m = len(trace.events)
    there = np.flatnonzero((s.start < moment) & (s.end >= moment))
    there = there[np.argsort(s.addr[there], kind="stable")]
    addr = signed(s.addr[there])
    size = s.size[there]
    stream = s.stream[there]
    pool = s.pool[there]
    expandable = np.zeros(len(there), bool)
    if m:
        began = s.start[there]
        ended = s.end[there]
        expandable |= (began >= 0) & (
            trace.events.action[np.maximum(began, 0)] == _MAPPED
        )
        expandable |= (ended < m) & (
            trace.events.action[np.minimum(ended, m - 1)] == _UNMAPPED
        )
    if len(trace.segments):
        order = np.argsort(trace.segments.addr, kind="stable")
        last = signed(trace.segments.addr[order])
        at = np.maximum(np.searchsorted(last, addr, "right") - 1, 0)
        within = (addr >= last[at]) & (
            addr < last[at] + trace.segments.total[order][at]
        )
        expandable |= (
            within & (s.end[there] >= m) & trace.segments.expandable[order][at]
        )
    new = np.ones(len(there), bool)
    new[1:] = ~(
        expandable[1:]
        & expandable[:-1]
        & (addr[1:] == addr[:-1] + size[:-1])
        & (stream[1:] == stream[:-1])
        & (pool[1:] == pool[:-1])
    )
    first = np.flatnonzero(new)
    total = np.add.reduceat(size, first) if len(first) else size
    return addr[first], total, stream[first], pool[first], expandable[first]


class Ranges(NamedTuple):
    """R ranges that the program annotated, in the order of their beginning."""

    names: list[str]
    depth: list[int]
    """The number of others that each lies in."""
    moments: np.ndarray
    """int64 (2, R): those that they begin and end at."""
    times: np.ndarray
    """int64 (2, R): microseconds since the epoch."""


@cached
def annotated_ranges(snapshot: MemorySnapshot, trace: Trace) -> Ranges:
    """Annotated ranges, START and END paired.

    A START without an END lasts to the end of the trace, an END without a START from its beginning. Annotations of
    other devices, and those outside of the trace's time, are left out.
    """
    times = np.maximum.accumulate(trace.events.time_us)
    found: list[tuple[int, int, str]] = []
    begin, end = (
        (int(times[np.searchsorted(times, 0, "right") % len(times)]), int(times[-1]))
        if len(times)
        else (0, 0)
    )
    open_: dict[str, list[int]] = {}
    for a in sorted(
        (a for a in snapshot.annotations if a.device in (trace.device, -1)),
        key=lambda a: a.time_us,
    ):
        if a.stage == "START":
            open_.setdefault(a.name, []).append(a.time_us)
        elif a.stage == "END":
            started = open_.get(a.name)
            found.append((started.pop() if started else begin, a.time_us, a.name))
    found += [(start, end, name) for name, starts in open_.items() for start in starts]
    found = sorted(
        (r for r in found if r[1] >= begin and r[0] <= end and r[1] > r[0]),
        key=lambda r: (r[0], -r[1]),
    )
    depth: list[int] = []
    enclosing: list[int] = []
    for first, last, _ in found:
        while enclosing and enclosing[-1] <= first:
            enclosing.pop()
        depth.append(len(enclosing))
        enclosing.append(last)
    both = np.array([r[:2] for r in found], np.int64).reshape(-1, 2).T
    return Ranges(
        [name for *_, name in found], depth, np.searchsorted(times, both, "right"), both
    )
