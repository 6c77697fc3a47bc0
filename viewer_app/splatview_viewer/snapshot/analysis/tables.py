"""Groups allocations by stack, file, size and more, and compares groups."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from splatview_viewer.core.quantities import size_text
from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.analysis.categories import categories
from splatview_viewer.snapshot.model import live_mask, pool_text, stream_text

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

    Side = tuple[MemorySnapshot, Trace, int]
    """A moment of a device's trace."""

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
"""What allocations can be grouped by, and its titles."""


@dataclass(frozen=True)
class Group:
    """One group of allocations."""

    key: int
    """Id of its stack, text (of a file or function), frame (of a line), category, pool or
    stream, or the power of two of its sizes; -1: allocations that have none."""
    label: str
    bytes: int
    count: int
    largest: int


class GroupTable:
    """Groups, those with most bytes first. Rows are made when they are requested."""

    def __init__(
        self,
        grouping: Grouping,
        ids: np.ndarray,
        group: np.ndarray,
        size: np.ndarray,
        label: Callable[[int], str],
    ) -> None:
        """Group allocations.

        Args:
            ids: the allocations, int (n,).
            group: key of each allocation's group, int (n,), -1 and more.
            size: bytes of each allocation, int64 (n,).
            label: returns the name of a group.
        """
        self.grouping = grouping
        self._ids = ids
        self._group = group
        self.label = label
        group_count = int(group.max()) + 2 if len(group) else 1
        shifted = group.astype(np.intp) + 1
        count = np.bincount(shifted, minlength=group_count)
        total = np.zeros(group_count, np.int64)
        np.add.at(total, shifted, size)
        largest = np.zeros(group_count, np.int64)
        np.maximum.at(largest, shifted, size)
        rows = np.flatnonzero(count)
        rows = rows[np.lexsort((rows, -count[rows], -total[rows]))]
        self.keys = rows - 1
        self.bytes = total[rows]
        self.counts = count[rows]
        self.largest = largest[rows]
        """int64 (n groups,) each, in the order of the rows."""
        self.total = int(total.sum())
        """Bytes of all groups."""

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Group:
        key = int(self.keys[index])
        return Group(
            key=key,
            label=self.label(key),
            bytes=int(self.bytes[index]),
            count=int(self.counts[index]),
            largest=int(self.largest[index]),
        )

    def __iter__(self) -> Iterator[Group]:
        return map(self.__getitem__, range(len(self)))

    def allocations(self, key: int) -> np.ndarray:
        """Return the ids of one group's allocations, int32."""
        return self._ids[self._group == key].astype(np.int32)


def classes(
    snapshot: MemorySnapshot, trace: Trace, grouping: Grouping
) -> tuple[np.ndarray, Callable[[int], str]]:
    """Return the group of each allocation, and a function that names groups.

    The groups are int (A,), -1: of none.
    """
    allocations = trace.allocations
    match grouping:
        case "size":
            # Group k holds the sizes of 2**k to 2**(k+1) - 1.
            _, exponent = np.frexp(allocations.size.astype(np.float64))
            return (exponent - 1).astype(np.int32), _size_class_text
        case "category":
            category, names = categories(snapshot, trace)
            return category, lambda key: names[key]
        case "pool":
            return allocations.pool, lambda key: pool_text(snapshot.pool(key))
        case "stream":
            return (
                allocations.stream,
                lambda key: stream_text(snapshot.streams[key]),
            )
        case "stack":
            return (
                allocations.stack,
                lambda key: _frames.stack_text(snapshot, key),
            )
        case _:
            return _classes_by_site(snapshot, trace, grouping)


def _size_class_text(power: int) -> str:
    """Return the name of a group of sizes."""
    if power < 0:
        return "0 B"
    return f"{size_text(1 << power)} to {size_text(2 << power)}"


def _classes_by_site(
    snapshot: MemorySnapshot, trace: Trace, grouping: Grouping
) -> tuple[np.ndarray, Callable[[int], str]]:
    """Return the groups of `classes` by the most telling frame of each stack."""
    stacks = snapshot.stacks
    texts = snapshot.texts
    if grouping == "file":
        class_of_frame = stacks.file
    elif grouping == "function":
        class_of_frame = stacks.name
    else:
        # Frames that differ only in the function's name are one line.
        _, first, line_of_frame = np.unique(
            stacks.file.astype(np.int64) << 32 | stacks.line.view(np.uint32),
            return_index=True,
            return_inverse=True,
        )
        class_of_frame = first[line_of_frame]

    def label(key: int) -> str:
        if key < 0:
            return "no stack"
        if grouping == "file":
            return _frames.path_text(texts[key])
        if grouping == "function":
            return _frames.short_name(texts[key])
        return _frames.frame_text(snapshot, key)

    # Sites and stacks of -1 take the last value.
    class_of_frame = np.append(class_of_frame, -1).astype(np.int32)
    class_of_stack = np.append(class_of_frame[_frames.sites(snapshot)], -1)
    return class_of_stack[trace.allocations.stack], label


def group_allocations(
    snapshot: MemorySnapshot, trace: Trace, mask: np.ndarray | None, grouping: Grouping
) -> GroupTable:
    """Group the allocations of a mask, bool (A,), or all."""
    groups, label = classes(snapshot, trace, grouping)
    if mask is not None:
        ids = np.flatnonzero(mask)
    else:
        ids = np.arange(len(groups))
    return GroupTable(grouping, ids, groups[ids], trace.allocations.size[ids], label)


class Change(NamedTuple):
    """A group of allocations before and after: bytes and the number of live ones."""

    label: str
    bytes_before: int
    bytes_after: int
    count_before: int
    count_after: int


class Comparison:
    """Groups at two moments, from those that grew most to those that shrank most.

    Rows are made when they are requested.
    """

    def __init__(
        self,
        tables: tuple[GroupTable, GroupTable],
        rows: np.ndarray,
        names: Sequence[Hashable],
        *,
        same: bool,
    ) -> None:
        """Order the groups of two tables.

        Args:
            tables: the groups before and after.
            rows: rows of each group in the two tables, int64 (n, 2); -1: it is not there.
            names: tells each group from the others, also at other moments.
            same: both tables are of one trace.
        """
        self.tables = tables
        self._is_same_trace = same
        table_before, table_after = tables
        bytes_before = np.append(table_before.bytes, 0)[rows[:, 0]]
        bytes_after = np.append(table_after.bytes, 0)[rows[:, 1]]
        change = bytes_after - bytes_before
        order = np.lexsort((-bytes_after, -change))
        self._rows = rows[order]
        self.names: list[Hashable] = [names[index] for index in order.tolist()]
        """What tells each group from the others, also at other moments."""
        self.bytes_before = int(table_before.total)
        self.bytes_after = int(table_after.total)
        """Bytes live at the two moments."""
        self.changes = change[order]
        """Bytes after less bytes before, int64 (n,)."""
        self.largest_change = int(np.abs(self.changes).max(initial=1))
        """The largest of the changes in either direction, 1 at least."""

    def __len__(self) -> int:
        return len(self._rows)

    def row_of(self, name: Hashable) -> int | None:
        """Return the row of the group of this name; None: nothing of it is live."""
        return self._row_of_name.get(name)

    @cached_property
    def _row_of_name(self) -> dict[Hashable, int]:
        return {name: row for row, name in enumerate(self.names)}

    def __getitem__(self, index: int) -> Change:
        row_before, row_after = self._rows[index].tolist()
        missing = Group(key=-1, label="", bytes=0, count=0, largest=0)
        if row_before >= 0:
            group_before = self.tables[0][row_before]
        else:
            group_before = missing
        group_after = self.tables[1][row_after] if row_after >= 0 else missing
        return Change(
            label=group_after.label if row_after >= 0 else group_before.label,
            bytes_before=group_before.bytes,
            bytes_after=group_after.bytes,
            count_before=group_before.count,
            count_after=group_after.count,
        )

    def sides_of(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of the allocations of a row's group before and after, int32."""
        ids = [np.zeros(0, np.int32), np.zeros(0, np.int32)]
        for side, row in enumerate(self._rows[index].tolist()):
            if row >= 0:
                table = self.tables[side]
                ids[side] = table.allocations(int(table.keys[row]))
        return ids[0], ids[1]

    def allocations(self, index: int) -> np.ndarray:
        """Return the ids of the allocations of a row's group, int32.

        They are those after, and those before as well where that is the same trace.
        """
        ids = [np.zeros(0, np.int32)]
        row_before, row_after = self._rows[index].tolist()
        table_before, table_after = self.tables
        if row_before >= 0 and self._is_same_trace:
            ids.append(table_before.allocations(int(table_before.keys[row_before])))
        if row_after >= 0:
            ids.append(table_after.allocations(int(table_after.keys[row_after])))
        return np.unique(np.concatenate(ids))


def compare_moments(
    side_before: Side, side_after: Side, grouping: Grouping = "stack"
) -> Comparison:
    """Compare what is live at two moments, of one snapshot or of two.

    Stacks of two snapshots are the same when their frames are.
    """
    is_same_snapshot = side_before[0] is side_after[0]
    tables = []
    rows_by_name: list[dict[Hashable, int]] = []
    for snapshot, trace, event_index in (side_before, side_after):
        table = group_allocations(
            snapshot, trace, live_mask(trace, event_index), grouping
        )
        tables.append(table)
        names: list[Hashable] = table.keys.tolist()
        if not is_same_snapshot:
            # Keys of two snapshots differ.
            names = [
                _portable_name(snapshot, table, key) for key in table.keys.tolist()
            ]
        rows: dict[Hashable, int] = {}
        for row, name in enumerate(names):
            rows.setdefault(name, row)
        rows_by_name.append(rows)
    rows_before, rows_after = rows_by_name
    all_names = list(dict.fromkeys([*rows_after, *rows_before]))
    row_pairs = [
        (rows_before.get(name, -1), rows_after.get(name, -1)) for name in all_names
    ]
    return Comparison(
        (tables[0], tables[1]),
        np.array(row_pairs, np.int64).reshape(-1, 2),
        all_names,
        same=side_before[1] is side_after[1],
    )


def _portable_name(snapshot: MemorySnapshot, table: GroupTable, key: int) -> Hashable:
    """Return a name of a group that is the same in every snapshot."""
    if key < 0:
        return None
    stacks = snapshot.stacks
    texts = snapshot.texts
    match table.grouping:
        case "stack":
            return int(_frames.stack_keys(snapshot)[key])
        case "file" | "function":
            return texts[key]
        case "line":
            return texts[int(stacks.file[key])], int(stacks.line[key])
        case _:
            return table.label(key)
