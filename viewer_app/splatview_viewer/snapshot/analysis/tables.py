"""Groups of allocations: by stack, file, size and more, with colours; what grew, what leaks, what did not fit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from splatview_viewer.core.format import age_text, count_text, size_text
from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.analysis.details import (
    INACTIVE,
    SMALL,
    SMALL_SEGMENT,
    SegmentsAt,
    segments_at,
)
from splatview_viewer.snapshot.analysis.frames import CATEGORIES, categories
from splatview_viewer.snapshot.model import (
    cached,
    live_mask,
    peak_moment,
    pool_text,
    stream_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

    """A moment of a device's trace."""
    Side = tuple[MemorySnapshot, Trace, int]

Grouping = Literal[
    "stack", "file", "line", "function", "size", "category", "pool", "stream"
]
GROUPINGS: dict[Grouping, str] = {
    "stack": "Stack",
    "line": "Line",
    "function": "Function",
    "file": "File",
    "size": "Size",
    "category": "Category",
    "pool": "Pool",
    "stream": "Stream",
}
"""Groups that allocations can be in, and their titles."""
ColorBy = Literal["stack", "size", "category", "stream", "pool"]
"""Groups whose members are painted in one colour."""


@dataclass(frozen=True)
class Group:
    """One group of allocations. key: the number of its stack, text (of a file or function), frame (of a line),
    category, pool or stream, or the power of two of its sizes; -1: what has none.
    """

    key: int
    label: str
    bytes: int
    count: int
    largest: int


class GroupTable:
    """Groups, those with most bytes first. Rows are made when they are asked for."""

    def __init__(
        self,
        by: Grouping,
        ids: np.ndarray,
        group: np.ndarray,
        size: np.ndarray,
        label: Callable[[int], str],
    ) -> None:
        """ids: int (n,). group: int (n,), -1 and more. size: int64 (n,)."""
        self.by = by
        self._ids = ids
        self._group = group
        self.label = label
        n = int(group.max()) + 2 if len(group) else 1
        shifted = group.astype(np.intp) + 1
        count = np.bincount(shifted, minlength=n)
        total = np.zeros(n, np.int64)
        np.add.at(total, shifted, size)
        largest = np.zeros(n, np.int64)
        np.maximum.at(largest, shifted, size)
        key = np.flatnonzero(count)
        key = key[np.lexsort((key, -count[key], -total[key]))]
        self.keys = key - 1
        self.bytes = total[key]
        self.counts = count[key]
        self.largest = largest[key]
        """int64 (n groups,) each, in the order of the rows."""
        self.total = int(total.sum())
        """Bytes of all groups."""

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Group:
        key = int(self.keys[index])
        return Group(
            key,
            self.label(key),
            int(self.bytes[index]),
            int(self.counts[index]),
            int(self.largest[index]),
        )

    def __iter__(self) -> Iterator[Group]:
        return map(self.__getitem__, range(len(self)))

    def allocations(self, key: int) -> np.ndarray:
        """int32: the ids of one group."""
        return self._ids[self._group == key].astype(np.int32)


def classes(
    snapshot: MemorySnapshot, trace: Trace, by: Grouping
) -> tuple[np.ndarray, Callable[[int], str]]:
    """The group of each allocation, int (A,), -1: of none; and a function that names a group."""
    a = trace.allocations
    stacks = snapshot.stacks
    texts = snapshot.texts
    match by:
        case "size":  # k where 2**k <= size < 2**(k+1)
            powers = (np.frexp(a.size.astype(np.float64))[1] - 1).astype(np.int32)
            return (
                powers,
                lambda k: (
                    "0 B" if k < 0 else f"{size_text(1 << k)} to {size_text(2 << k)}"
                ),
            )
        case "category":
            of_allocation, names = categories(snapshot, trace)
            return of_allocation, lambda key: names[key]
        case "pool":
            return a.pool, lambda key: pool_text(
                snapshot.pools[key] if key >= 0 else None
            )
        case "stream":
            return a.stream, lambda key: stream_text(snapshot.streams[key])
        case "stack":
            return a.stack, lambda key: _frames.stack_text(snapshot, key)
        case "file":
            of_frame = stacks.file

            def text(key):
                return _frames.path_text(texts[key])
        case "function":
            of_frame = stacks.name

            def text(key):
                return _frames.short_name(texts[key])
        case _:  # a line; frames that differ only in the function's name are one line
            _, first, which_line = np.unique(
                stacks.file.astype(np.int64) << 32 | stacks.line.view(np.uint32),
                return_index=True,
                return_inverse=True,
            )
            of_frame = first[which_line]

            def text(key):
                return _frames.frame_text(snapshot, key)

    of_stack = np.append(of_frame, -1).astype(np.int32)[_frames.sites(snapshot)]
    return np.append(of_stack, -1)[
        a.stack
    ], lambda key: text(key) if key >= 0 else "no stack"  # -1 takes the last


def group_allocations(
    snapshot: MemorySnapshot, trace: Trace, mask: np.ndarray | None, by: Grouping
) -> GroupTable:
    """Group the allocations of a mask, bool (A,), or all."""
    groups, label = classes(snapshot, trace, by)
    which = np.flatnonzero(mask) if mask is not None else np.arange(len(groups))
    return GroupTable(by, which, groups[which], trace.allocations.size[which], label)


class Change(NamedTuple):
    """A group of allocations, before and after: bytes and how many are live."""

    label: str
    bytes_before: int
    bytes_after: int
    count_before: int
    count_after: int


class Comparison:
    """Groups, what grew most first, what shrank most last. Rows are made when they are asked for."""

    def __init__(
        self, tables: tuple[GroupTable, GroupTable], rows: np.ndarray, *, same: bool
    ) -> None:
        """rows: int64 (n, 2), places in the tables; -1: not there. same: both are of one trace."""
        self.tables = tables
        self._same = same
        amounts = [
            np.append(table.bytes, 0)[rows[:, i]] for i, table in enumerate(tables)
        ]
        change = amounts[1] - amounts[0]
        order = np.lexsort((-amounts[1], -change))
        self._rows = rows[order]
        self.bytes_before = int(tables[0].total)
        self.bytes_after = int(tables[1].total)
        """Bytes live at the two moments."""
        self.changes = change[order]
        """int64 (n,): bytes, after less before."""

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Change:
        a, b = (
            table[int(row)] if row >= 0 else None
            for table, row in zip(self.tables, self._rows[index], strict=True)
        )
        named = b or a
        assert named is not None  # a row is there at one side at least
        return Change(
            named.label,
            a.bytes if a else 0,
            b.bytes if b else 0,
            a.count if a else 0,
            b.count if b else 0,
        )

    def allocations(self, index: int) -> np.ndarray:
        """int32: the ids of a row's group, after, and before as well where that is the same trace."""
        sides = list(zip(self.tables, self._rows[index].tolist(), strict=True))[
            0 if self._same else 1 :
        ]
        return np.unique(
            np.concatenate(
                [
                    np.zeros(0, np.int32),
                    *(
                        table.allocations(int(table.keys[row]))
                        for table, row in sides
                        if row >= 0
                    ),
                ]
            )
        )


def compare_moments(a: Side, b: Side, by: Grouping = "stack") -> Comparison:
    """Compare what is live at two moments. Stacks of two snapshots are the same when they say the same."""
    tables = [
        group_allocations(snapshot, trace, live_mask(trace, moment), by)
        for snapshot, trace, moment in (a, b)
    ]
    names: list[list[Hashable]] = []
    for (snapshot, *_), table in zip((a, b), tables, strict=True):
        texts = snapshot.texts
        stacks = snapshot.stacks
        name: Callable[[int], Hashable] = {
            "stack": lambda key, snapshot=snapshot: int(
                _frames.stack_keys(snapshot)[key]
            ),
            "file": texts.__getitem__,
            "function": texts.__getitem__,
            "line": lambda key, texts=texts, stacks=stacks: (
                texts[int(stacks.file[key])],
                int(stacks.line[key]),
            ),
        }.get(by, table.label)
        # the numbers of two snapshots differ
        names.append(
            [
                key if a[0] is b[0] else name(key) if key >= 0 else None
                for key in table.keys.tolist()
            ]
        )
    places = [{name: i for i, name in reversed(list(enumerate(of)))} for of in names]
    everything = dict.fromkeys([*names[1], *names[0]])
    rows = np.array(
        [[place.get(name, -1) for place in places] for name in everything], np.int64
    )
    return Comparison((tables[0], tables[1]), rows.reshape(-1, 2), same=a[1] is b[1])


PERIODS = 32
"""The trace is cut into so many parts of equally many events, where it has that many."""
_RECENT = 2
"""What was made in this many last periods may just be in use."""


@dataclass(frozen=True, eq=False)
class Suspect:
    """Memory that one stack allocated in the trace and was not freed by its end."""

    stack: int
    label: str
    ids: np.ndarray
    """int32: the allocations, those of the last periods left out."""
    bytes: int
    oldest: int
    """The event that made the oldest of them."""
    age_us: int
    """Its lifetime, to the end of the trace; 0 where there are no times."""
    kept_counts: np.ndarray
    """int64 (PERIODS,): how many of those made in each period are still there."""
    is_growing: bool
    """Whether it looks like a leak, and not like something that was made once and is kept."""

    @property
    def verdict(self) -> str:
        """A sentence."""
        if self.age_us:
            since = f"for {age_text(self.age_us)}"
        else:
            since = f"since event {self.oldest:,}"
        if self.is_growing:
            some = int(np.count_nonzero(self.kept_counts))
            return (
                f"Grows: {count_text(len(self.ids), 'allocation')} left behind in {some} of {PERIODS} parts of the "
                f"trace, about {size_text(self.bytes // max(some, 1))} in each; the oldest is held {since}."
            )
        if len(self.ids) == 1:
            return f"It was made once and held {since}."
        return f"{count_text(len(self.ids), 'allocation')} held {since}; it does not grow steadily."


_GROWING = 0.5
_FEW = 4
_STATE = ("parameters", "gradients", "optimizer state")
"""What a training step fills once, which is no leak."""


@cached
def find_leaks(snapshot: MemorySnapshot, trace: Trace) -> list[Suspect]:
    """Suspects, the worst first: what grows over the trace, then what was made after its first tenth and stays.

    What was there before the trace, and what was made last, is not suspected: a snapshot cannot show it.
    """
    a = trace.allocations
    m = len(trace.events)
    times = trace.events.time_us
    edges = np.linspace(0, m, PERIODS + 1).astype(np.int64)
    made = (a.start >= 0) & (a.start < edges[-1 - _RECENT])
    staying = np.flatnonzero(made & (a.end >= m))
    if m < 2 * PERIODS or not len(staying):
        return []
    stacks, first_place, group = np.unique(
        a.stack[staying], return_index=True, return_inverse=True
    )

    def sums(rows: np.ndarray, events: np.ndarray) -> np.ndarray:
        """By group and period: 0 is before the trace, PERIODS + 1 its end."""
        at = rows * (PERIODS + 2) + np.searchsorted(edges, events, "right")
        return np.bincount(at, minlength=len(stacks) * (PERIODS + 2)).reshape(
            -1, PERIODS + 2
        )

    number = np.full(len(snapshot.stacks) + 1, -1, np.int64)  # the last is for NO_STACK
    number[stacks] = np.arange(len(stacks))
    mine = np.flatnonzero(made & (number[a.stack] >= 0))
    kept = sums(group, a.start[staying])[:, 1:-1]
    born = np.count_nonzero(sums(number[a.stack[mine]], a.start[mine]), 1)
    total = np.bincount(group, a.size[staying]).astype(np.int64)
    first = np.argmax(kept > 0, 1)
    last = PERIODS - 1 - np.argmax(kept[:, ::-1] > 0, 1)
    filled = np.count_nonzero(kept, 1)
    # what a loop has in hand is kept from its last turn only, though it was made at every turn
    growth = filled / np.maximum(born, 1)
    state = np.isin(
        categories(snapshot, trace)[0][staying[first_place]],
        [CATEGORIES.index(name) for name in _STATE],
    )
    growing = (
        (growth >= _GROWING)
        & (filled >= _FEW)
        & (last - first >= PERIODS // 4)
        & ~state
    )
    spread = growth * np.minimum(1.0, (last - first) / (PERIODS / 2))
    score = total * np.where(growing, spread, 0.02 * spread)  # bytes, weighed by growth
    late = first >= PERIODS // 10  # what is made at the beginning and once is the model
    listed = np.flatnonzero(growing | late)
    out = []
    for g in listed[np.lexsort((-total[listed], -score[listed], ~growing[listed]))][
        :200
    ].tolist():
        ids = staying[group == g].astype(np.int32)
        oldest = int(a.start[ids].min())
        out.append(
            Suspect(
                int(stacks[g]),
                _frames.stack_text(snapshot, int(stacks[g])),
                ids,
                int(total[g]),
                oldest,
                int(times[-1] - times[oldest]) if times[oldest] > 0 else 0,
                kept[g],
                bool(growing[g]),
            )
        )
    return out


@dataclass(frozen=True, eq=False)
class Oom:
    """One time that an allocation failed."""

    event: int
    """Also the moment before it."""
    requested: int
    """Bytes"""
    device_free: int
    """Bytes that the driver still had."""
    segments: SegmentsAt
    usable: np.ndarray
    """int64: sizes of the free blocks that the request could take."""
    holders: GroupTable
    """Live memory, by stack."""
    verdict: str
    """In a sentence or three."""
    stack: int
    """Where it was asked for."""


def explain_oom(snapshot: MemorySnapshot, trace: Trace, event: int) -> Oom:
    """Explain an `oom` of the trace."""
    e = trace.events
    at = segments_at(snapshot, trace, event)
    asked = int(e.size[event])
    device_free = int(e.addr[event])
    pool = max(int(e.pool[event]), 0)
    stream = int(e.stream[event])
    # Segments of 2 MiB serve only requests up to 1 MiB, which are served by no others but expandable ones.
    mine = ((at.pool == pool) | (at.pool < 0)) & (at.stream == stream)
    mine &= ((at.size <= SMALL_SEGMENT) == (asked <= SMALL)) | at.expandable
    usable = at.block_size[
        (at.block_state == INACTIVE) & np.repeat(mine, np.diff(at.block_start))
    ]
    verdict = _oom_verdict(at, asked, device_free, usable)
    if pool or snapshot.streams[stream] != 0:
        verdict += (
            f" It was asked for in the {pool_text(snapshot.pools[pool])} on the "
            f"{stream_text(snapshot.streams[stream])}."
        )
    return Oom(
        event,
        asked,
        device_free,
        at,
        usable,
        group_allocations(snapshot, trace, live_mask(trace, event), "stack"),
        verdict,
        int(e.stack[event]),
    )


def _oom_verdict(
    at: SegmentsAt, asked: int, device_free: int, usable: np.ndarray
) -> str:
    """usable: sizes of the free blocks that the request could take."""
    free = int(usable.sum())
    largest = int(usable.max(initial=0))
    a = size_text(asked)
    left = size_text(device_free)
    if largest >= asked:
        return (
            f"A free block of {size_text(largest)} was there for the {a} that was asked for; a limit, or "
            "max_split_size, kept it from being used."
        )
    if device_free >= asked:
        return (
            f"The driver still had {left}: a limit (set_per_process_memory_fraction) kept the allocator from "
            f"taking it. {size_text(free)} was free in its cache, {a} was asked for."
        )
    if free and free + device_free >= asked:
        return (
            f"Fragmentation: {size_text(free)} was free in {count_text(len(usable), 'block')}, none larger than "
            f"{size_text(largest)}; {a} was asked for, and the driver had {left} left. "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True often helps."
        )
    if at.pending and free + device_free + at.pending >= asked:
        return (
            f"{size_text(at.pending)} was freed but waited for another stream (record_stream); with it the {a} "
            "that was asked for would have fitted."
        )
    if at.free > free and at.free + device_free >= asked:
        return (
            f"{size_text(at.free - free)} was free, but in other pools, for other streams or in segments for small "
            f"blocks, where this request may not take it; {a} was asked for, {size_text(free)} was free here, and "
            f"the driver had {left} left."
        )
    return (
        f"Really full: {size_text(at.active)} of {size_text(at.reserved)} reserved was in use; {a} was asked for, "
        f"only {size_text(free)} cached and {left} at the driver was free."
    )


_GREY = (104, 108, 116)


class Colors(NamedTuple):
    """A class for each allocation, and a colour for each class."""

    classes: np.ndarray
    """uint16 (A,)"""
    palette: np.ndarray
    """uint8 (K, 3), sRGB"""
    legend: list[tuple[str, int]]
    """What the classes are called, the most important first; not every class needs a name."""


def color_allocations(snapshot: MemorySnapshot, trace: Trace, by: ColorBy) -> Colors:
    """Colour the allocations of a device by their stack, size, category, stream or pool.

    The same stack has the same colour at every time, and nearly always in every snapshot.
    """
    if by == "stack":
        return _by_stack(snapshot, trace)
    numbers, label = classes(snapshot, trace, by)
    count = int(numbers.max(initial=0)) + 1
    size = trace.allocations.size
    held = np.bincount(np.where(numbers < 0, count, numbers), size, count + 1)
    shown = np.flatnonzero(held > 1e-3 * held.sum())
    if (
        by == "size"
    ):  # colours from few to much, deep blue to light yellow, spread over what is worth seeing
        t = np.clip(
            (np.arange(count) - shown.min(initial=0))
            / max(int(np.ptp(shown)) if len(shown) else 0, 1),
            0,
            1,
        )
        palette = _srgb(
            0.38 + 0.44 * t, 0.09 + 0.03 * np.sin(np.pi * t), (270 - 190 * t) % 360
        )
        order = shown[::-1]
    else:
        if by == "category":
            palette = _srgb(*np.array(_CATEGORY_HUES[:count]).T)
        else:
            palette = _distinct(count)
        order = shown[np.argsort(-held[shown], kind="stable")]
    legend = [(label(k if k < count else -1), k) for k in order[:12].tolist()]
    palette = np.concatenate([palette, np.array([_GREY], np.uint8)])
    return Colors(
        np.where(numbers < 0, count, numbers).astype(np.uint16), palette, legend
    )


def _srgb(lightness: np.ndarray, chroma: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """OKLCh (hue in degrees) to sRGB: uint8 (K, 3)."""
    a = chroma * np.cos(np.radians(hue))
    b = chroma * np.sin(np.radians(hue))
    lms = (
        np.stack(
            [
                lightness + 0.3963377774 * a + 0.2158037573 * b,
                lightness - 0.1055613458 * a - 0.0638541728 * b,
                lightness - 0.0894841775 * a - 1.2914855480 * b,
            ]
        )
        ** 3
    )
    linear = (
        np.array(
            [
                [4.0767416621, -3.3077115913, 0.2309699292],
                [-1.2684380046, 2.6097574011, -0.3413193965],
                [-0.0041960863, -0.7034186147, 1.7076147010],
            ]
        )
        @ lms
    )
    linear = np.clip(linear, 0, 1)
    encoded = np.where(
        linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055
    )
    return (encoded.T * 255 + 0.5).astype(np.uint8)


def _distinct(count: int) -> np.ndarray:
    """Colours that differ from those numbered near them: uint8 (count, 3)."""
    i = np.arange(count)
    return _srgb(
        np.array([0.66, 0.53, 0.60])[i % 3],
        np.array([0.095, 0.105, 0.08])[i % 3],
        (250 + i * 137.508) % 360,
    )


_STACK_COLORS = 36


@cached
def _by_stack(snapshot: MemorySnapshot, trace: Trace) -> Colors:
    color = (_frames.stack_keys(snapshot) % np.uint64(_STACK_COLORS)).astype(np.int64)
    palette = np.concatenate([_distinct(_STACK_COLORS), np.array([_GREY], np.uint8)])
    legend = []
    named = set()
    for row in islice(
        group_allocations(
            snapshot, trace, live_mask(trace, peak_moment(trace)), "stack"
        ),
        12,
    ):
        number = int(color[row.key]) if row.key >= 0 else _STACK_COLORS
        if number not in named:
            named.add(number)
            legend.append((_frames.stack_text(snapshot, row.key, caller=False), number))
    return Colors(
        np.append(color, _STACK_COLORS).astype(np.uint16)[trace.allocations.stack],
        palette,
        legend,
    )


_CATEGORY_HUES = (
    (0.60, 0.10, 250),
    (0.62, 0.11, 55),
    (0.55, 0.11, 305),
    (0.64, 0.10, 150),
    (0.70, 0.09, 90),
    (0.55, 0.05, 200),
    (0.68, 0.09, 200),
    (0.58, 0.09, 350),
    (0.60, 0.12, 25),
    (0.47, 0.03, 250),
    (0.52, 0.008, 260),
)
"""Lightness, chroma and hue of CATEGORIES."""
