"""From what the machine made to what `convert` takes: the traces as columns, and the rest as Python's objects."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.memory.loading.entries import ACTION, COLUMNS, OTHER, Tables
from splatview_viewer.memory.loading.machine import (
    BIG,
    DICT,
    ENTRY,
    FALSE,
    FLOAT,
    INT,
    LIST,
    NONE,
    PAIR,
    STACK,
    TEXT,
    TRACE,
    TRUE,
    TUPLE,
    USED_STACK,
    OddError,
    run_machine,
)
from splatview_viewer.memory.loading.stacks import Known
from splatview_viewer.memory.model import UNKNOWN_POOL, Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.memory.loading.machine import Made, Words

MAX_NESTED = 50
"""Tuples in tuples."""


def read_quickly(read: Callable[[Any], int]) -> tuple[Any, Tables]:
    """What a pickle holds, as `convert` takes it, without making the objects of traces. `read` as in `run_machine`.

    Raises:
        OddError: it is to be read in the general way.
        FileError: likewise; it is no snapshot.
        MemoryError: it asks for more memory than there is.
    """
    tables = Tables()
    return _Converted(run_machine(read), tables).result(), tables


class Rows:
    """Stands where a trace was: its rows."""

    def __init__(self, made: _Converted, first: int, count: int) -> None:
        self._made, self._first, self.count = made, first, count

    def events(self) -> Events:
        """The columns."""
        return self._made.events(self._first, self._first + self.count)


class _Converted:
    """The objects, texts and stacks of what was made."""

    def __init__(self, made: Made, tables: Tables) -> None:
        self._made, self._tables = made, tables
        self._kinds, self._contents = made.things.kinds, made.things.contents
        self._texts: dict[int, str] = {}
        self._objects: dict[int, Any] = {}
        self._waiting: list[int] = []
        self._stacks: np.ndarray | None = None

    def result(self) -> Any:
        """What the pickle holds, with Rows where traces are and Known where the lists of frames are."""
        _check(self._made.words)
        value = self._value(*self._made.result)
        self._fill()
        return value

    def _fill(self) -> None:
        while self._waiting:
            o = self._waiting.pop()
            made = self._objects[o]
            values = [self._value(*v) for v in self._content(o)]
            if type(made) is dict:
                try:
                    made.update(zip(values[::2], values[1::2], strict=True))
                except TypeError:
                    raise OddError("a list as a key") from None
            else:
                made.extend(values)

    def _content(self, o: int) -> list[tuple[int, int]]:
        """Kinds and numbers of the values of an object."""
        cells, tags = self._made.things.cells, self._made.things.cell_tags
        at = int(self._contents[o])
        out: list[tuple[int, int]] = []
        while at >= 0:
            a, b = at + 3, at + 3 + int(cells[at + 1])
            out += zip(tags[a:b].tolist(), cells[a:b].tolist(), strict=True)
            at = int(cells[at])
        return out

    def _value(self, tag: int, number: int, depth: int = 0) -> Any:
        if tag in (INT, BIG):
            return number + (tag == BIG) * 2**64
        if tag == TEXT:
            return self.text(number)
        if tag in (DICT, LIST, TUPLE):
            made = self._objects.get(number)
            return self._begun(tag, number, depth) if made is None else made
        if tag in (NONE, FALSE, TRUE):
            return {NONE: None, FALSE: False, TRUE: True}[tag]
        if tag == FLOAT:
            return struct.unpack("<d", struct.pack("<q", number))[0]
        if tag == PAIR:
            return tuple(self._made.numbers.pools[number].tolist())
        raise OddError(f"a value of kind {tag}")

    def _begun(self, tag: int, o: int, depth: int) -> Any:
        """An object as it is before it is filled; a tuple is whole at once."""
        kind = self._kinds[o]
        if tag == TUPLE and depth >= MAX_NESTED:
            raise OddError("tuples in tuples")
        if kind == ENTRY:
            raise OddError("an event that is in no trace")
        if kind == TRACE:
            first, count = self._made.numbers.traces[int(self._contents[o])].tolist()
            made: Any = Rows(self, first, count)
        elif tag == TUPLE:
            made = tuple([self._value(*v, depth + 1) for v in self._content(o)])
        elif kind in (STACK, USED_STACK):
            made = Known(int(self.stacks()[int(self._contents[o])]))
        else:
            made = {} if tag == DICT else []
            self._waiting.append(o)
        self._objects[o] = made
        return made

    def text(self, number: int) -> str:
        found = self._texts.get(number)
        if found is None:
            a, b = self._made.words.start[number: number + 2].tolist()
            found = self._texts[number] = self._made.words.blob[a:b].tobytes().decode("utf-8", "surrogatepass")
        return found

    def stacks(self) -> np.ndarray:
        """The interner's numbers int32 of all stacks, and -1 behind them."""
        if self._stacks is None:
            made, interner = self._made, self._tables.interner
            used = np.unique(made.stacks.frames).tolist()
            waiting, self._waiting = self._waiting, []
            frames = [self._value(DICT, o) for o in used]
            self._fill()
            self._waiting = waiting
            number = {o: interner.frame(f, lambda: "a frame") for o, f in zip(used, frames, strict=True)}
            ends = made.stacks.start.tolist()
            flat = list(map(number.__getitem__, made.stacks.frames.tolist()))
            self._stacks = np.array([*(interner.stack(flat[a:b]) for a, b in pairwise(ends)), -1], np.int32)
        return self._stacks

    def events(self, first: int, last: int) -> Events:
        """The columns of some rows. Only what stands in them gets a number of the snapshot's."""
        rows = {name: column[first:last] for name, column in self._made.columns._asdict().items()}
        t, numbers = self._tables, self._made.numbers

        def text(number: int) -> int:
            return t.interner.text(self.text(number))

        ways: dict[str, Callable[[int], int]] = {
            "action": lambda number: ACTION.get(self.text(number), OTHER), "context": text, "metadata": text,
            "stream": lambda number: t.stream(int(numbers.streams[number]), "stream"),
            "pool": lambda number: t.pool(tuple(numbers.pools[number].tolist()), "pool_id")}
        columns = dict(rows, stack=self.stacks()[rows["stack"]])
        for name, way in ways.items():
            counts = np.bincount(rows[name] + 1)
            numbered = np.full(len(counts), UNKNOWN_POOL if name == "pool" else -1, np.int32)
            for number in np.flatnonzero(counts[1:]).tolist():
                numbered[number + 1] = way(number)
            columns[name] = numbered[rows[name] + 1]
        return Events(**{name: columns[name].astype(dtype, copy=False) for name, dtype in COLUMNS.items()},
                      allocation=np.full(last - first, -1, np.int32))


def _check(words: Words) -> None:
    """Raises OddError if there are bytes that are no text, also where nobody reads them."""
    begin = words.start[:-1][np.diff(words.start) > 0]
    try:
        words.blob.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise OddError("bytes that are no text") from None
    if bool(((words.blob[begin] & 0xC0) == 0x80).any()):
        raise OddError("a text that begins within a letter")
