"""Allocations that are live, grouped by stack, file, size and more; what grew, what leaks, what did not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.details import INACTIVE, SMALL, SMALL_SEGMENT, SegmentsAt, segments_at
from splatview_viewer.kinds.snapshot.analysis.frames import CATEGORIES, categories
from splatview_viewer.kinds.snapshot.model import ACTIONS, ids_of, kept, live_ids, pool_text, stream_text
from splatview_viewer.ui.format import age_text, count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

    Side = tuple[Snapshot, Trace, int]
    """A moment of a device's trace."""

By = Literal["stack", "file", "line", "function", "size", "category", "pool", "stream"]
BYS: tuple[By, ...] = get_args(By)


@dataclass(frozen=True)
class Row:
    """One group of allocations."""

    key: int
    """The group's number: the stack's, the text's of a file or function, the frame's of a line, the power of two of a
    size, a category's, a pool's, a stream's. -1: what has none."""
    label: str
    bytes: int
    count: int
    largest: int


class Table:
    """Groups, those with most bytes first. Rows are made when they are asked for."""

    def __init__(self, by: By, ids: np.ndarray | None, group: np.ndarray, size: np.ndarray,
                 label: Callable[[int], str]) -> None:
        """ids: int (n,), or None for all. group: int (n,), -1 and more. size: int64 (n,)."""
        self.by = by
        self._ids, self._group, self._label = ids, group, label
        n = int(group.max()) + 2 if len(group) else 1
        shifted = group.astype(np.intp) + 1
        count = np.bincount(shifted, minlength=n)
        total = np.zeros(n, np.int64)
        np.add.at(total, shifted, size)
        largest = np.zeros(n, np.int64)
        np.maximum.at(largest, shifted, size)
        key = np.flatnonzero(count)
        key = key[np.lexsort((key, -count[key], -total[key]))]
        self.key, self.bytes, self.count_of, self.largest = key - 1, total[key], count[key], largest[key]
        """int64 (n groups,) each, in the order of the rows."""

    def __len__(self) -> int:
        return len(self.key)

    def __getitem__(self, index: int) -> Row:
        key = int(self.key[index])
        return Row(key, self._label(key), int(self.bytes[index]), int(self.count_of[index]), int(self.largest[index]))

    def first(self, count: int) -> list[Row]:
        """Return the rows that hold most."""
        return [self[i] for i in range(min(count, len(self)))]

    @property
    def total(self) -> int:
        """Bytes of all groups."""
        return int(self.bytes.sum())

    def allocations(self, key: int) -> np.ndarray:
        """int32: the ids of one group."""
        place = np.flatnonzero(self._group == key)
        return (place if self._ids is None else self._ids[place]).astype(np.int32)


def group(snapshot: Snapshot, trace: Trace, ids: np.ndarray | None, by: By) -> Table:
    """Group allocations: those of `ids` (ids or a mask), or all. Raises ValueError for an unknown `by`."""
    a, which = trace.allocations, ids_of(trace, ids)
    label: Callable[[int], str]
    if by == "size":
        groups, label = size_class(a.size[which]), size_class_text
    elif by == "category":
        of_allocation, names = categories(snapshot, trace)
        groups, label = of_allocation[which], lambda key: names[key]
    elif by == "pool":
        groups, label = a.pool[which], lambda key: pool_text(snapshot.pools[key] if key >= 0 else None)
    elif by == "stream":
        groups, label = a.stream[which], lambda key: stream_text(snapshot.streams[key])
    elif by in BYS:
        of_stack, label = _by_stack(snapshot, by)
        groups = np.append(of_stack, -1)[a.stack[which]]  # NO_STACK takes the last
    else:
        raise ValueError(f"{by!r} is not {', '.join(BYS[:-1])} or {BYS[-1]}")
    return Table(by, None if isinstance(which, slice) else which, groups, a.size[which], label)


def _by_stack(snapshot: Snapshot, by: str) -> tuple[np.ndarray, Callable[[int], str]]:
    stacks, site = snapshot.stacks, _frames.sites(snapshot)
    if by == "stack":
        return np.arange(len(site), dtype=np.int32), lambda key: _frames.stack_text(snapshot, key)
    if by == "line":  # frames that differ only in the function's name are one line
        order = np.lexsort((stacks.line, stacks.file))
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(stacks.file[order]) != 0) | (np.diff(stacks.line[order]) != 0)
        first = np.empty(len(order), np.int32)
        first[order] = order[new][np.cumsum(new) - 1]
        return _of_site(first, site), lambda key: _frames.frame_text(snapshot, key)
    if by == "file":
        return _of_site(stacks.file, site), lambda key: _file_text(snapshot.texts[key]) if key >= 0 else "no stack"
    return (_of_site(stacks.name, site),
            lambda key: _frames.short_name(snapshot.texts[key]) if key >= 0 else "no stack")


def _of_site(of_frame: np.ndarray, site: np.ndarray) -> np.ndarray:
    return np.append(of_frame, -1).astype(np.int32)[site]


def _file_text(file: str) -> str:
    if file in ("", "??"):
        return "C++ without a file"
    return "/".join(file[-_frames.LONGEST:].replace("\\", "/").split("/")[-3:])


def size_class(size: np.ndarray) -> np.ndarray:
    """int32: k where 2**k <= size < 2**(k+1); -1 for 0."""
    return (np.frexp(size.astype(np.float64))[1] - 1).astype(np.int32)


def size_class_text(key: int) -> str:
    """"1.00 MiB to 2.00 MiB"."""
    return "0 B" if key < 0 else f"{size_text(1 << key)} to {size_text(2 << key)}"


@dataclass(frozen=True)
class Change:
    """A group of allocations, before and after."""

    label: str
    before: int
    """Bytes live."""
    after: int
    count_before: int
    count_after: int
    rows: tuple[int, int]
    """The group's number at each side (`Row.key`); -2: it is not there."""

    @property
    def change(self) -> int:
        """Bytes, after less before."""
        return self.after - self.before


class Comparison:
    """Groups, what grew most first, what shrank most last. Rows are made when they are asked for."""

    def __init__(self, tables: tuple[Table, Table], rows: np.ndarray) -> None:
        """rows: int64 (n, 2), places in the tables; -1: not there."""
        self.tables = tables
        amounts = [np.append(table.bytes, 0)[rows[:, i]] for i, table in enumerate(tables)]
        change = amounts[1] - amounts[0]
        order = np.lexsort((-amounts[1], -change))
        self._rows = rows[order]
        self.before, self.after = int(tables[0].total), int(tables[1].total)
        """Bytes live at the two moments."""
        self.changes = change[order]
        """int64 (n,): bytes, after less before."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Change:
        a, b = (table[int(row)] if row >= 0 else None
                for table, row in zip(self.tables, self._rows[index], strict=True))
        named = b or a
        assert named is not None  # a row is there at one side at least
        return Change(named.label, a.bytes if a else 0, b.bytes if b else 0, a.count if a else 0, b.count if b else 0,
                      (a.key if a else -2, b.key if b else -2))

    def allocations(self, change: Change) -> tuple[np.ndarray, np.ndarray]:
        """int32: the ids of a group, before and after."""
        before, after = (table.allocations(key) if key > -2 else np.zeros(0, np.int32)
                         for table, key in zip(self.tables, change.rows, strict=True))
        return before, after


def compare(a: Side, b: Side, by: By = "stack") -> Comparison:
    """Compare what is live at two moments. Stacks of two snapshots are the same when they say the same.

    Raises: ValueError for a moment that a trace does not have, or an unknown `by`.
    """
    first, second = (group(snapshot, trace, live_ids(trace, moment), by) for snapshot, trace, moment in (a, b))
    names = [_names(snapshot, table, same=a[0] is b[0]) for snapshot, table in ((a[0], first), (b[0], second))]
    places = [{name: i for i, name in reversed(list(enumerate(of)))} for of in names]
    everything = dict.fromkeys([*names[1], *names[0]])
    rows = np.array([(places[0].get(name, -1), places[1].get(name, -1)) for name in everything], np.int64)
    return Comparison((first, second), rows.reshape(-1, 2))


def _names(snapshot: Snapshot, table: Table, *, same: bool) -> list[Hashable]:
    """Return the keys by which the rows of a table are found at the other side."""
    keys, texts, stacks = table.key.tolist(), snapshot.texts, snapshot.stacks
    if same:
        return keys
    if table.by == "stack":
        of_stack = _frames.stack_keys(snapshot)
        return [int(of_stack[key]) if key >= 0 else None for key in keys]
    if table.by in ("file", "function"):
        return [texts[key] if key >= 0 else None for key in keys]
    if table.by == "line":
        return [(texts[int(stacks.file[key])], int(stacks.line[key])) if key >= 0 else None for key in keys]
    return [table[i].label for i in range(len(table))]


PERIODS = 32
"""The trace is cut into so many parts of equally many events, where it has that many."""
_RECENT = 2
"""What was made in this many last periods may just be in use."""


@dataclass(frozen=True, eq=False)
class Suspect:
    """Memory that one stack allocated in the trace and was not freed by its end."""

    stack: int
    label: str
    bytes: int
    """Of its allocations that are still there, those of the last periods left out."""
    count: int
    oldest: int
    """The event that made the oldest of them."""
    age_us: int
    """How long that one lives, to the end of the trace; 0 where there are no times."""
    live: np.ndarray
    """int64 (PERIODS,): bytes of this stack that were live at the end of each period."""
    kept: np.ndarray
    """int64 (PERIODS,): how many of those made in each period are still there."""
    growth: float
    """0..1: of the periods in which the stack allocated, the share that left something behind. 1: all of them."""
    growing: bool
    """Whether it looks like a leak, and not like something that was made once and is kept."""
    verdict: str
    """A sentence."""
    ids: np.ndarray
    """int32: the allocations."""


_GROWING, _FEW = 0.5, 4
_STATE = ("parameters", "gradients", "optimizer state")
"""What a training step fills once, which is no leak."""


@kept
def leaks(snapshot: Snapshot, trace: Trace) -> list[Suspect]:
    """Suspects, the worst first: what grows over the trace, then what was made after its first tenth and stays.

    What was there before the trace, and what was made last, is not suspected: a snapshot cannot show it.
    """
    a, m = trace.allocations, len(trace.events)
    if m < 2 * PERIODS:
        return []
    edges = np.linspace(0, m, PERIODS + 1).astype(np.int64)
    staying = np.flatnonzero((a.end >= m) & (a.start >= 0) & (a.start < edges[-1 - _RECENT]))
    groups, group = np.unique(a.stack[staying], return_inverse=True)
    if not len(groups):
        return []
    period = np.searchsorted(edges, a.start[staying], "right") - 1
    kept = np.bincount(group * PERIODS + period, minlength=len(groups) * PERIODS).reshape(-1, PERIODS)
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, group, a.size[staying])
    number = np.full(len(snapshot.stacks) + 1, -1, np.int64)  # the last is for NO_STACK
    number[groups] = np.arange(len(groups))
    mine = np.flatnonzero(number[a.stack] >= 0)
    of_mine = number[a.stack[mine]]
    born = _born(trace, edges, mine, of_mine, len(groups))
    first, last = np.argmax(kept > 0, 1), PERIODS - 1 - np.argmax(kept[:, ::-1] > 0, 1)
    filled = np.count_nonzero(kept, 1)
    # what a loop has in hand is kept from its last turn only, though it was made at every turn
    growth = filled / np.maximum(born, 1)
    spread = growth * np.minimum(1.0, (last - first) / (PERIODS / 2))
    count = kept.sum(1)
    first_id = staying[np.unique(group, return_index=True)[1]]
    kind = categories(snapshot, trace)[0][first_id]
    state = np.isin(kind, [CATEGORIES.index(name) for name in _STATE])
    growing = (growth >= _GROWING) & (filled >= _FEW) & (last - first >= PERIODS // 4) & ~state
    score = total * np.where(growing, spread, 0.02 * spread)  # bytes, weighed by growth
    late = first >= PERIODS // 10  # what is made at the beginning and once is the model
    listed = np.flatnonzero(growing | late)
    listed = listed[np.lexsort((-total[listed], -score[listed], ~growing[listed]))][:200]
    order = np.argsort(group, kind="stable")
    bounds = np.searchsorted(group[order], np.arange(len(groups) + 1))
    live = _live(trace, edges, mine, of_mine, listed)
    out = []
    for row, g in enumerate(listed.tolist()):
        ids = staying[order[bounds[g]: bounds[g + 1]]].astype(np.int32)
        oldest = int(a.start[ids].min())
        times = trace.events.time_us
        age = int(times[-1] - times[oldest]) if times[oldest] > 0 else 0
        out.append(Suspect(int(groups[g]), _frames.stack_text(snapshot, int(groups[g])), int(total[g]), int(count[g]),
                           oldest, age, live[row], kept[g], float(growth[g]), bool(growing[g]),
                           "", ids))
        made = CATEGORIES[kind[g]] if state[g] else ""
        out[-1] = replace(out[-1], verdict=_leak_verdict(out[-1], made))
    return out


def _born(trace: Trace, edges: np.ndarray, mine: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """int64 (groups,): in how many periods, the last left out, each group allocated at all.

    mine: ids. group: int64, the group of each of them.
    """
    start = trace.allocations.start[mine]
    inside = (start >= 0) & (start < edges[-1 - _RECENT])
    period = np.searchsorted(edges, start[inside], "right") - 1
    made = np.bincount(group[inside] * PERIODS + period, minlength=groups * PERIODS)
    return np.count_nonzero(made.reshape(-1, PERIODS), 1)


def _live(trace: Trace, edges: np.ndarray, mine: np.ndarray, group: np.ndarray, listed: np.ndarray) -> np.ndarray:
    """int64 (len(listed), PERIODS): live bytes of these groups at the end of each period."""
    a = trace.allocations
    row = np.full(int(group.max(initial=0)) + 1, -1, np.int64)
    row[listed] = np.arange(len(listed))
    row = row[group]
    ids, row = mine[row >= 0], row[row >= 0]
    change = np.zeros((len(listed), PERIODS + 2), np.int64)
    born = np.where(a.start[ids] < 0, 0, np.searchsorted(edges, a.start[ids], "right"))
    died = np.searchsorted(edges, a.end[ids], "right")
    np.add.at(change, (row, born), a.size[ids])
    np.subtract.at(change, (row, np.minimum(died, PERIODS + 1)), a.size[ids])
    return np.cumsum(change, 1)[:, 1: PERIODS + 1]


def _leak_verdict(suspect: Suspect, made: str) -> str:
    """made: what it is where a training step makes and keeps such things, else ""."""
    since = f"for {age_text(suspect.age_us)}" if suspect.age_us else f"since event {suspect.oldest:,}"
    if suspect.growing:
        some = int(np.count_nonzero(suspect.kept))
        return (f"Grows: {count_text(suspect.count, 'allocation')} left behind in {some} of {PERIODS} parts of the "
                f"trace, about {size_text(suspect.bytes // max(some, 1))} in each; the oldest is held {since}.")
    what = f"Probably {made}, which are kept: " if made else ""
    if suspect.count == 1:
        return f"{what or 'It was '}made once and held {since}."
    return f"{what}{count_text(suspect.count, 'allocation')} held {since}" + (
        "." if made else "; it does not grow steadily.")


_OOM = ACTIONS.index("oom")


@dataclass(frozen=True, eq=False)
class Oom:
    """One time that an allocation failed."""

    event: int
    """Also the moment before it."""
    asked: int
    """Bytes"""
    device_free: int
    """Bytes that the driver still had."""
    live: int
    """Bytes requested by what was live."""
    active: int
    """The same as the allocator rounds them."""
    pending: int
    """Bytes freed that wait for another stream."""
    cached: int
    """Bytes that the allocator had and that were free."""
    largest_free: int
    """The largest free block that it could use."""
    free_blocks: int
    """How many free blocks it could use."""
    holders: list[Row]
    """Who held most, by stack; at most 20."""
    kind: str
    """"fragmentation", "elsewhere", "pending", "limit" or "full"."""
    verdict: str
    """In a sentence or three."""
    stack: int
    """Where it was asked for."""

    def allocations(self, trace: Trace, holder: Row) -> np.ndarray:
        """int32: the ids of what a holder held."""
        ids = live_ids(trace, self.event)
        return ids[trace.allocations.stack[ids] == holder.key]


@kept
def post_mortem(snapshot: Snapshot, trace: Trace) -> list[Oom]:
    """Explain each `oom` of the trace, in their order; at most the last 32."""
    events = np.flatnonzero(trace.events.action == _OOM)[-32:]
    return [_one(snapshot, trace, int(event)) for event in events]


def _one(snapshot: Snapshot, trace: Trace, event: int) -> Oom:
    e = trace.events
    ids = live_ids(trace, event)
    at = segments_at(snapshot, trace, event)
    asked, device_free = int(e.size[event]), max(int(e.addr[event]), 0)
    pool, stream = int(e.pool[event]), int(e.stream[event])
    holders = group(snapshot, trace, ids, "stack").first(20)
    usable = _usable(at, max(pool, 0), stream, asked)
    free, largest = int(usable.sum()), int(usable.max(initial=0))
    kind, verdict = _oom_verdict(at, (asked, device_free, free, largest), len(usable))
    where = ""
    if pool > 0 or snapshot.streams[stream] != 0:
        where = f" It was asked for in the {pool_text(snapshot.pools[max(pool, 0)])} on the " \
                f"{stream_text(snapshot.streams[stream])}."
    return Oom(event, asked, device_free, int(trace.allocations.size[ids].sum()), at.active, at.pending, at.free,
               largest, len(usable), holders, kind, verdict + where, int(e.stack[event]))


def _usable(at: SegmentsAt, pool: int, stream: int, asked: int) -> np.ndarray:
    """int64: sizes of the free blocks that a request in this pool and on this stream could take.

    Segments of 2 MiB serve only requests up to 1 MiB, and those are served by no others (but expandable ones).
    """
    mine = ((at.pool == pool) | (at.pool < 0)) & (at.stream == stream)
    mine &= ((at.size <= SMALL_SEGMENT) == (asked <= SMALL)) | at.expandable
    return at.block_size[(at.block_state == INACTIVE) & mine[at.segment_of_block()]]


def _oom_verdict(at: SegmentsAt, sizes: tuple[int, int, int, int], blocks: int) -> tuple[str, str]:
    """The kind, and the sentences. sizes: bytes asked, free at the driver, usable in the cache, and its largest."""
    asked, device_free, free, largest = sizes
    a, limit = size_text(asked), ""
    if largest >= asked:
        return "limit", (f"A free block of {size_text(largest)} was there for the {a} that was asked for; a limit, "
                         f"or max_split_size, kept it from being used.")
    if device_free >= asked:
        limit = (f"The driver still had {size_text(device_free)}: a limit (set_per_process_memory_fraction) kept the "
                 f"allocator from taking it. Under the limit: ")
        device_free = 0
    driver = "" if limit else f", and the driver had {size_text(device_free)} left"
    none_larger = f"{size_text(free)} was free in {count_text(blocks, 'block')}, none larger than {size_text(largest)}"
    kind = "full"
    if free >= asked:
        kind, why = "fragmentation", f"fragmentation: {none_larger}; {a} was asked for{driver}. {_HELPS}"
    elif free and free + device_free >= asked:
        kind, why = "fragmentation", (f"fragmentation: {none_larger}; with the {size_text(device_free)} that the "
                                      f"driver had left, {a} would have fitted in one piece. {_HELPS}")
    elif at.pending and free + device_free + at.pending >= asked:
        kind, why = "pending", (f"{size_text(at.pending)} was freed but waited for another stream (record_stream); "
                                f"with it the {a} that was asked for would have fitted.")
    elif at.free > free and at.free + device_free >= asked:
        kind, why = "elsewhere", (
            f"{size_text(at.free - free)} was free, but in other pools, for other streams or in segments for small "
            f"blocks, where this request may not take it; {a} was asked for, {size_text(free)} free here{driver}.")
    else:
        left = "" if limit else f" and {size_text(device_free)} at the driver"
        why = (f"really full: {size_text(at.active)} of {size_text(at.reserved)} reserved was in use; {a} was asked "
               f"for, only {size_text(free)} cached{left} was free.")
    return kind, limit + (why if limit else why[0].upper() + why[1:])


_HELPS = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True often helps."
