"""Pickles written as they go, in protocol 4 with the frames, the memo and the batches of Python's own C pickler."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

from numba import njit

from benchmarks.memory.allocator import ACT_FREE_COMPLETED, ACT_FREE_REQUESTED

if TYPE_CHECKING:
    from collections.abc import Mapping

FRAME = 64 << 10
BATCH = 1000
"""Items of a list that are appended at once."""
ROOM = 2048
"""Bytes that an entry takes at most; its list takes 5 for each frame."""


class Writer:
    """Opcodes into a file. What is written between `begin` and `end` is one value."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.memo = 0
        """How many things are in the memo."""
        self._out = bytearray()
        self._texts: dict[str, int] = {}
        file.write(b"\x80\x04")

    def raw(self, opcodes: bytes) -> None:
        """A whole number of opcodes."""
        self._out += opcodes
        if len(self._out) >= FRAME:
            self._flush()

    def _flush(self) -> None:
        if self._out:
            self.file.write(b"\x95" + struct.pack("<Q", len(self._out)))
            self.file.write(self._out)
            self._out = bytearray()

    def stop(self) -> None:
        self.raw(b".")
        self._flush()

    def new(self, opcode: bytes) -> int:
        """Something that goes into the memo; its number there."""
        self.raw(opcode + b"\x94")
        self.memo += 1
        return self.memo - 1

    def text(self, text: str) -> None:
        """A text that occurs once in the program's memory, so that it is pickled once."""
        if text in self._texts:
            self.raw(get(self._texts[text]))
        else:
            self._texts[text] = self.fresh(text)

    def place(self, text: str) -> int:
        """Where in the memo a text is that has been written."""
        return self._texts[text]

    def fresh(self, text: str) -> int:
        """A text that is an object of its own."""
        data = text.encode()
        head = b"\x8c" + bytes([len(data)]) if len(data) < 256 else b"X" + struct.pack("<I", len(data))
        return self.new(head + data)

    def value(self, value: object) -> None:
        """Anything that a snapshot is made of."""
        if isinstance(value, bool) or value is None:
            self.raw({True: b"\x88", False: b"\x89", None: b"N"}[value])
        elif isinstance(value, int):
            self.raw(number(value))
        elif isinstance(value, float):
            self.raw(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            self.text(value)
        elif isinstance(value, tuple):
            for item in value:
                self.value(item)
            self.new({0: b")", 1: b"\x85", 2: b"\x86", 3: b"\x87"}[len(value)])
        elif isinstance(value, list):
            self.new(b"]")
            for i in range(0, len(value), BATCH):
                self.raw(b"(")
                for item in value[i: i + BATCH]:
                    self.value(item)
                self.raw(b"e")
        elif isinstance(value, dict):
            self.items(value)
        else:
            raise TypeError(f"{value!r} is nothing that a snapshot is made of")

    def items(self, values: Mapping[str, object]) -> int:
        """A dict; its number in the memo."""
        place = self.new(b"}")
        self.raw(b"(")
        for key, value in values.items():
            self.text(key)
            self.value(value)
        self.raw(b"u")
        return place


def get(place: int) -> bytes:
    """What takes a thing from the memo."""
    return b"h" + bytes([place]) if place < 256 else b"j" + struct.pack("<I", place)


def number(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -1 << 31 <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


@njit(cache=True, nogil=True)
def _number(out, at, value):
    """`number`, into `out`."""
    if 0 <= value < 256:
        out[at] = 0x4B
        out[at + 1] = value
        return at + 2
    count, code = 4, 0x4A
    if 0 <= value < 65536:
        count, code = 2, 0x4D
    elif not -(1 << 31) <= value < 1 << 31:
        count, code = 8, 0x8A
        while count > 1 and -(1 << (8 * count - 9)) <= value < 1 << (8 * count - 9):
            count -= 1
    out[at] = code
    at += 1
    if code == 0x8A:
        out[at] = count
        at += 1
    for i in range(count):
        out[at + i] = (value >> (8 * i)) & 255
    return at + count


@njit(cache=True, nogil=True)
def _copy(out, at, blob, place):
    for i in range(place[0], place[1]):
        out[at + i - place[0]] = blob[i]
    return at + place[1] - place[0]


@njit(cache=True, nogil=True)
def _get(out, at, place):
    if place < 256:
        out[at] = 0x68
        out[at + 1] = place
        return at + 2
    out[at] = 0x6A
    for i in range(4):
        out[at + 1 + i] = (place >> (8 * i)) & 255
    return at + 5


@njit(cache=True, nogil=True)
def encode(out, events, rows, pieces, place, lists, count):
    """Trace entries as opcodes, for as long as `out` (uint8) has room and their actions and stacks are known.

    events: `allocator.Output`; rows: (begin, end). pieces: uint8, opcodes; place: int64 (5, n, 2), where in it begin
    and end: [0] the heads of the actions, [1] what stands between an action's address and size, [2] between size and
    time of a family, [3] what stands after the time of a family, [4] the lists of stacks; an end of 0: not known.
    lists: int64, by block, the memo of the list of its request to be freed, or -1. count: int64 (2,), how many things
    are in the memo, and entries in the list.
    Returns (row after the last, bytes).
    """
    at = 0
    for i in range(rows[0], rows[1]):
        action, stack, family, block = events.action[i], events.stack[i], events.family[i], events.block[i]
        if place[0, action, 1] == 0 or place[2, family, 1] == 0 or place[4, stack, 1] == 0 or at + ROOM > len(out):
            return i, at
        if count[1] % BATCH == 0:
            if count[1] > 0:
                out[at] = 0x65
                at += 1
            out[at] = 0x28
            at += 1
        at = _copy(out, at, pieces, place[0, action])
        at = _number(out, at, events.addr[i])
        at = _copy(out, at, pieces, place[1, action])
        at = _number(out, at, events.size[i])
        at = _copy(out, at, pieces, place[2, family])
        at = _number(out, at, events.time[i])
        at = _copy(out, at, pieces, place[3, family])
        count[0] += 3  # the entry, compile_context, pool_id
        count[1] += 1
        if action == ACT_FREE_COMPLETED and lists[block] >= 0:  # the list of its request
            at = _get(out, at, lists[block])
            lists[block] = -1
        else:
            if action == ACT_FREE_REQUESTED:
                lists[block] = count[0]
            at = _copy(out, at, pieces, place[4, stack])
            count[0] += 1
        out[at] = 0x75
        at += 1
    return rows[1], at
