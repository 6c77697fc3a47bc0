"""Tables: who holds the memory, by stack, file, line, function, size, category, pool or stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args, overload

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.categories import categories
from splatview_viewer.kinds.snapshot.analysis.live import ids_of
from splatview_viewer.kinds.snapshot.labels import pool_text, stream_text
from splatview_viewer.ui.format import size_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

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
    table: Table

    @property
    def allocations(self) -> np.ndarray:
        """int32: the ids of the group."""
        return self.table.allocations(self.key)


class Table(Sequence[Row]):
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

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        key = int(self.key[index])
        return Row(key, self._label(key), int(self.bytes[index]), int(self.count_of[index]), int(self.largest[index]),
                   self)

    @property
    def total(self) -> int:
        """Bytes of all groups."""
        return int(self.bytes.sum())

    def allocations(self, key: int) -> np.ndarray:
        """int32: the ids of one group."""
        place = np.flatnonzero(self._group == key)
        return (place if self._ids is None else self._ids[place]).astype(np.int32)


class Tables:
    """Makes tables of a snapshot's allocations."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def group(self, trace: Trace, ids: np.ndarray | None, by: By) -> Table:
        """Group allocations: those of `ids` (ids or a mask), or all. Raises ValueError for an unknown `by`."""
        which = ids_of(trace, ids)
        groups, label = self._groups(trace, by)
        return Table(by, None if isinstance(which, slice) else which, groups(which), trace.allocations.size[which],
                     label)

    def label(self, trace: Trace, by: By, key: int) -> str:
        """What a group is called."""
        return self._groups(trace, by)[1](key)

    def _groups(self, trace: Trace, by: By) -> tuple[Callable[[np.ndarray | slice], np.ndarray], Callable[[int], str]]:
        """How to tell the groups of some allocations, and what a group is called."""
        snapshot, a = self.snapshot, trace.allocations
        if by == "size":
            return lambda which: size_class(a.size[which]), size_class_text
        if by == "category":
            of_allocation, names = categories(snapshot, trace)
            return lambda which: of_allocation[which], lambda key: names[key]
        if by == "pool":
            return lambda which: a.pool[which], lambda key: pool_text(snapshot.pools[key] if key >= 0 else None)
        if by == "stream":
            return lambda which: a.stream[which], lambda key: stream_text(snapshot.streams[key])
        if by not in BYS:
            raise ValueError(f"{by!r} is not {', '.join(BYS[:-1])} or {BYS[-1]}")
        of_stack, label = self._by_stack(by)
        padded = np.append(of_stack, -1)  # NO_STACK takes the last
        return lambda which: padded[a.stack[which]], label

    def _by_stack(self, by: str) -> tuple[np.ndarray, Callable[[int], str]]:
        snapshot = self.snapshot
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
