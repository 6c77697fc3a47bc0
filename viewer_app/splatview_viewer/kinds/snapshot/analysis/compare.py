"""What grew from one moment to another, of the same snapshot or of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.live import live_ids
from splatview_viewer.kinds.snapshot.analysis.tables import By, Table, Tables

if TYPE_CHECKING:
    from collections.abc import Hashable

    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace


class Side(NamedTuple):
    """A moment of a device's trace."""

    snapshot: Snapshot
    trace: Trace
    moment: int


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
    comparison: Comparison

    @property
    def change(self) -> int:
        """Bytes, after less before."""
        return self.after - self.before

    @property
    def allocations(self) -> tuple[np.ndarray, np.ndarray]:
        """int32 ids, before and after."""
        tables = self.comparison.tables
        none = np.zeros(0, np.int32)
        before, after = (table.allocations(key) if key > -2 else none
                         for table, key in zip(tables, self.rows, strict=True))
        return before, after


class Comparison(Sequence[Change]):
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

    @overload
    def __getitem__(self, index: int) -> Change: ...
    @overload
    def __getitem__(self, index: slice) -> list[Change]: ...
    def __getitem__(self, index: int | slice) -> Change | list[Change]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        a, b = (table[int(row)] if row >= 0 else None
                for table, row in zip(self.tables, self._rows[index], strict=True))
        named = b or a
        assert named is not None  # a row is there at one side at least
        return Change(named.label, a.bytes if a else 0, b.bytes if b else 0, a.count if a else 0, b.count if b else 0,
                      (a.key if a else -2, b.key if b else -2), self)


def compare(a: Side | tuple[Snapshot, Trace, int], b: Side | tuple[Snapshot, Trace, int],
            by: By = "stack") -> Comparison:
    """Compare what is live at two moments. Stacks of two snapshots are the same when they say the same.

    Raises: ValueError for a moment that a trace does not have, or an unknown `by`.
    """
    sides = Side(*a), Side(*b)
    tables = tuple(Tables(s.snapshot).group(s.trace, live_ids(s.trace, s.moment), by) for s in sides)
    names = [_names(side, table, by, sides[0].snapshot is sides[1].snapshot)
             for side, table in zip(sides, tables, strict=True)]
    places = [{name: i for i, name in reversed(list(enumerate(of)))} for of in names]
    everything = dict.fromkeys([*names[1], *names[0]])
    rows = np.array([(places[0].get(name, -1), places[1].get(name, -1)) for name in everything], np.int64)
    return Comparison((tables[0], tables[1]), rows.reshape(-1, 2))


def _names(side: Side, table: Table, by: By, same: bool) -> list[Hashable]:
    """What the rows of a table are known by at the other side."""
    keys = table.key.tolist()
    if same:
        return keys
    if by == "stack":
        of_stack = _frames.stack_keys(side.snapshot)
        return [int(of_stack[key]) if key >= 0 else None for key in keys]
    texts, stacks = side.snapshot.texts, side.snapshot.stacks
    if by in ("file", "function"):
        return [texts[key] if key >= 0 else None for key in keys]
    if by == "line":
        return [(texts[int(stacks.file[key])], int(stacks.line[key])) if key >= 0 else None for key in keys]
    return [row.label for row in table]
