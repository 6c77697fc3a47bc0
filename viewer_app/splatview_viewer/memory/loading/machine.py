"""Reading the pickle of a long trace without making its objects: its opcodes, compiled, straight to columns.

`torch.cuda.memory._dump_snapshot` writes each event as a mapping that holds a list of its own, of frames that are
shared: 60 opcodes. The objects that Python makes of them take most of the time of loading, and ten times the memory.
Here the same machine of opcodes runs over numbers: an event becomes a row when its mapping is filled, a list of frames
the number of its stack, and only what is left, segments and settings, becomes objects.

It knows what PyTorch's files hold. Whatever else a pickle may say makes it stop with OddError, and who called reads the
file in the general way, which also finds the words for what is wrong. So nothing is refused here, and nothing is made
that the general way would make otherwise.

Opcodes: Lib/pickletools.py of CPython, protocols 2 to 5.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.memory._kept import kept
from splatview_viewer.memory.loading.entries import MAX_DEVICES, MAX_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.memory.loading.opening import Opened

# What a value is. Its number: the number itself (BIG: less 2^64), its bits, or the place of a text, object or pair.
NONE, FALSE, TRUE, INT, BIG, FLOAT, TEXT, DICT, LIST, TUPLE, PAIR, UNSET = range(12)
# What is known of an object, and what its content is: a cell, or the number of a row, a stack or a trace.
NEW, MAPPING, FRAME, ENTRY, SEQUENCE, TRACE, STACK, USED_STACK, USED_EMPTY = range(9)
# Places of the counters.
(AT, END, DEPTH, MARKS, MEMO, OBJECTS, CELLS, TEXTS, BLOB, ROWS, STACKS, FRAMES, STREAMS, POOLS, TRACES, SEED,
 NEEDED) = range(17)
COUNTERS = NEEDED + 1
# Why the kernel stopped: for more bytes, at the end, at something that it does not know, or for lack of room.
(MORE, DONE, ODD, ROOM_OPERANDS, ROOM_MARKS, ROOM_MEMO, ROOM_OBJECTS, ROOM_CELLS, ROOM_TEXTS, ROOM_BLOB, ROOM_ROWS,
 ROOM_STACKS, ROOM_FRAMES) = range(13)

KNOWN = ("action", "addr", "size", "time_us", "stream", "pool_id", "frames", "compile_context", "user_metadata",
         "device_free", "filename", "oom", "N/A", "")
"""Texts whose numbers the kernel knows: their places here."""
KERNEL = "_machine_kernel"
LONG = 24 << 20
"""Bytes from which on it is worth to load the kernel: half a second, in which Python makes 120,000 events."""
VERY_LONG = 16 * LONG
"""And to compile it, where that has never been done."""
PACKED = 12
"""How much longer than a packed file its content is, at least."""
BATCH = 1000
"""Python's pickle fills lists by so many values at a time: a shorter one that grows again was written by another."""
MAX_PIECE = 64 << 20
"""Bytes of one opcode's text, at most."""
PIECE = 4 << 20


class OddError(Exception):
    """The pickle holds something that this machine does not know."""


class Operands(NamedTuple):
    """The machine's stack and its memo: what a value is, and its number."""

    tags: np.ndarray
    values: np.ndarray
    marks: np.ndarray
    """Where marks are on the stack."""
    memo_tags: np.ndarray
    memo: np.ndarray


class Things(NamedTuple):
    """Mappings, lists and tuples: what is known of each, and its content, which may lie in cells.

    Cells: the next cell or -1, how many values there are, the last cell, then the values; what they are beside them.
    """

    kinds: np.ndarray
    contents: np.ndarray
    cell_tags: np.ndarray
    cells: np.ndarray


class Words(NamedTuple):
    """Different texts, one behind the other, and a table of their numbers by their hashes."""

    blob: np.ndarray
    start: np.ndarray
    table: np.ndarray


class Columns(NamedTuple):
    """The rows of all traces. Texts, streams, pools and stacks by their numbers here; -1: none."""

    action: np.ndarray
    addr: np.ndarray
    size: np.ndarray
    time_us: np.ndarray
    stream: np.ndarray
    pool: np.ndarray
    stack: np.ndarray
    context: np.ndarray
    metadata: np.ndarray


class Stacks(NamedTuple):
    """Different stacks: their hashes, where they begin in `frames`, a table of their numbers, the objects of frames."""

    hashes: np.ndarray
    start: np.ndarray
    table: np.ndarray
    frames: np.ndarray


class Numbers(NamedTuple):
    """Streams, pairs (pools) and tables of their numbers; first row and count of each trace."""

    streams: np.ndarray
    stream_table: np.ndarray
    pools: np.ndarray
    pool_table: np.ndarray
    traces: np.ndarray


@dataclass
class Made:
    """What a pickle made: everything as long as it is."""

    things: Things
    words: Words
    columns: Columns
    stacks: Stacks
    numbers: Numbers
    result: tuple[int, int]
    """The value at the end: what it is, and its number."""


class Machine:
    """Takes a pickle in pieces. Not for several threads."""

    def __init__(self) -> None:
        from splatview_viewer.memory.loading._machine_kernel import run
        from splatview_viewer.memory.loading._machine_tables import hash_texts, rehash

        self._run, self._rehash, self._hash_texts = run, rehash, hash_texts
        self.counters = c = np.zeros(COUNTERS, np.int64)
        c[SEED] = secrets.randbits(62)  # nobody can write texts that all lie at one place of a table
        self._operands = Operands(np.empty(1 << 12, np.uint8), np.empty(1 << 12, np.int64), np.empty(1 << 8, np.int64),
                                  np.full(1 << 16, UNSET, np.uint8), np.empty(1 << 16, np.int64))
        self._things = Things(np.empty(1 << 16, np.uint8), np.empty(1 << 16, np.int64), np.empty(1 << 16, np.uint8),
                              np.empty(1 << 16, np.int64))
        known = [text.encode() for text in KNOWN]
        blob, start = np.empty(1 << 18, np.uint8), np.zeros(1 << 12, np.int64)
        start[1: len(known) + 1] = np.cumsum([len(text) for text in known])
        c[TEXTS], c[BLOB] = len(known), start[len(known)]
        blob[: c[BLOB]] = np.frombuffer(b"".join(known), np.uint8)
        self._words = Words(blob, start, _table(len(start)))
        self._hash_texts(*self._words[:2], c, self._words.table)
        n, m = np.int32, np.int64
        self._columns = Columns(*(np.empty(1 << 16, dtype) for dtype in (n, m, m, m, n, n, n, n, n)))
        self._stacks = Stacks(np.empty(1 << 12, np.int64), np.zeros(1 << 12, np.int64), _table(1 << 12),
                              np.empty(1 << 16, np.int32))
        most = MAX_TABLE + 1
        self._numbers = Numbers(np.empty(most, np.int64), _table(most), np.empty((most, 2), np.int64), _table(most),
                                np.zeros((MAX_DEVICES, 2), np.int64))

    def take(self, data: np.ndarray, count: int) -> tuple[int, bool]:
        """Work through data[:count], uint8.

        Returns how many bytes of it are done, and whether the pickle ends there; the rest is to come again with what
        follows it. Raises OddError and MemoryError.
        """
        c = self.counters
        c[AT], c[END] = 0, count
        while True:
            why = self._run(data, c, self._operands, self._things, self._words, self._columns, self._stacks,
                                   self._numbers)
            if why == MORE or why == DONE:
                return int(c[AT]), why == DONE
            if why == ODD:
                raise OddError(f"at {int(c[AT])} of {count}")
            self._grow(why, int(c[NEEDED]))

    def _grow(self, why: int, needed: int) -> None:
        """Room for `needed` of what there was not enough room for."""
        o, t, w, s = self._operands, self._things, self._words, self._stacks
        if why == ROOM_OPERANDS:
            self._operands = o._replace(tags=_more(o.tags, needed), values=_more(o.values, needed))
        elif why == ROOM_MARKS:
            self._operands = o._replace(marks=_more(o.marks, needed))
        elif why == ROOM_MEMO:
            self._operands = o._replace(memo_tags=_more(o.memo_tags, needed), memo=_more(o.memo, needed))
            self._operands.memo_tags[len(o.memo):] = UNSET
        elif why == ROOM_OBJECTS:
            self._things = t._replace(kinds=_more(t.kinds, needed), contents=_more(t.contents, needed))
        elif why == ROOM_CELLS:
            self._things = t._replace(cell_tags=_more(t.cell_tags, needed), cells=_more(t.cells, needed))
        elif why == ROOM_BLOB:
            self._words = w._replace(blob=_more(w.blob, needed))
        elif why == ROOM_TEXTS:
            start = _more(w.start, needed)
            self._words = Words(w.blob, start, _table(len(start)))
            self._hash_texts(w.blob, start, self.counters, self._words.table)
        elif why == ROOM_ROWS:
            for name, column in self._columns._asdict().items():  # one after the other: that takes less memory
                self._columns = self._columns._replace(**{name: _more(column, needed)})
        elif why == ROOM_FRAMES:
            self._stacks = s._replace(frames=_more(s.frames, needed))
        else:
            hashes = _more(s.hashes, needed)
            self._stacks = Stacks(hashes, _more(s.start, needed), _table(len(hashes)), s.frames)
            self._rehash(hashes, int(self.counters[STACKS]), self._stacks.table)

    def made(self) -> Made:
        """What there is at the end."""
        c = self.counters.tolist()
        t, w, s, n, o = self._things, self._words, self._stacks, self._numbers, self._operands
        return Made(
            Things(t.kinds[:c[OBJECTS]], t.contents[:c[OBJECTS]], t.cell_tags[:c[CELLS]], t.cells[:c[CELLS]]),
            Words(w.blob[:c[BLOB]], w.start[:c[TEXTS] + 1], w.table),
            Columns(*(column[:c[ROWS]] for column in self._columns)),
            Stacks(s.hashes[:c[STACKS]], s.start[:c[STACKS] + 1], s.table, s.frames[:c[FRAMES]]),
            n._replace(streams=n.streams[:c[STREAMS]], pools=n.pools[:c[POOLS]], traces=n.traces[:c[TRACES]]),
            (int(o.tags[0]), int(o.values[0])))


def is_worth(opened: Opened) -> bool:
    """Whether a file is so long that loading what reads it quickly takes less than it saves."""
    size = opened.size * (PACKED if opened.packed else 1)
    return size >= (LONG if kept(__file__, KERNEL) else VERY_LONG)


def run_machine(read: Callable[[Any], int]) -> Made:
    """What a pickle makes.

    Args:
        read: fills a buffer as far as it can, and says how far; 0 at the end.

    Raises:
        OddError: it is to be read in another way.
        MemoryError: it asks for more memory than there is.
    """
    machine = Machine()
    data = np.empty(PIECE + (1 << 16), np.uint8)
    rest = 0
    while True:
        count = read(memoryview(data)[rest:])  # type: ignore[arg-type]
        if count == 0:
            raise OddError("it ends early")
        done, whole = machine.take(data, rest + count)
        if whole:
            return machine.made()
        left = rest + count - done
        if left > len(data) // 2:
            if len(data) > MAX_PIECE:
                raise OddError("an opcode takes too much")
            data = np.concatenate([data[done: rest + count], np.empty(2 * len(data) - left, np.uint8)])
        else:
            data[:left] = data[done: rest + count].copy()
        rest = left


def _more(a: np.ndarray, needed: int) -> np.ndarray:
    out = np.empty(max(4 * len(a), needed + needed // 8), a.dtype)
    out[: len(a)] = a
    return out


def _table(count: int) -> np.ndarray:
    """An empty table for so many numbers, never more than half full."""
    return np.full(1 << (2 * count).bit_length(), -1, np.int32)
