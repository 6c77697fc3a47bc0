"""The header of a PLY and its elements: records in binary or as text.

A record without lists has a size, so that an element after it is where it must be.
Records with lists, and texts, are read one after the other from the beginning: as runs
of records whose lists have the same lengths, each run one structured array. Numbers of
a text become float64, which holds every number that a PLY can name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    Progress,
    check_memory,
    clipped,
    remaining,
    silent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_LIMIT = 1 << 20
"""No real header comes near a mebibyte."""
BLOCK_BYTES = 4 << 20
"""Records are taken apart in blocks that stay in the processor's cache."""
TEXT_BYTES = 1 << 20
"""Text that is taken apart at a time."""
FIRST_RECORDS = 64
"""Records with lists whose lengths are compared at a time, at first; more while they
are equal."""
MAX_RUNS = 1 << 20
"""Runs of lists of equal lengths in one element. Each takes some 20 us."""
MAX_LISTS = 64
"""Properties of one element that are lists."""
MAX_RECORD_BYTES = 1 << 30
LONGEST_NUMBER = 400
"""Characters of a number in a text: the longest float64 has some 330 when it is written
without an exponent."""

TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "float": "f4",
    "double": "f8",
    "int8": "i1",
    "uint8": "u1",
    "int16": "i2",
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "float32": "f4",
    "float64": "f8",
}


class Property(NamedTuple):
    """One property of an element, as its header names it."""

    name: str
    kind: str
    """The numpy type of the value, or of a list's items, byte order included."""
    length_kind: str = ""
    """The numpy type of a list's length; "" for a single value."""


@dataclass
class Element:
    """One element of a PLY header: this many records of these properties."""

    name: str
    count: int
    properties: list[Property] = field(default_factory=list)
    """All properties, in their order."""

    @property
    def types(self) -> dict[str, str]:
        """The numpy type of each property of a fixed size, byte order included."""
        return {p.name: p.kind for p in self.properties if not p.length_kind}

    @property
    def lists(self) -> list[Property]:
        """The properties of variable length."""
        return [p for p in self.properties if p.length_kind]

    def record(
        self, lengths: tuple[int, ...] = (), *, is_text: bool = False
    ) -> np.dtype[Any]:
        """Return the type of a record whose lists have these lengths.

        The numbers of a text are all float64.
        """
        fields: list[tuple[Any, ...]] = []
        list_index = 0
        for p in self.properties:
            kind = "<f8" if is_text else p.kind
            if not p.length_kind:
                fields.append((p.name, kind))
                continue
            length_kind = "<f8" if is_text else p.length_kind
            # Names of the header hold no spaces.
            fields.append((f"length {list_index}", length_kind))
            fields.append((f"items {list_index}", kind, (lengths[list_index],)))
            list_index += 1
        return np.dtype(fields)

    def min_bytes(self, *, is_text: bool) -> int:
        """Return the bytes that all records take if every list is empty."""
        if is_text:
            return 2 * len(self.properties) * self.count
        sizes = [int((p.length_kind or p.kind)[2:]) for p in self.properties]
        return sum(sizes) * self.count

    def need(self, names: tuple[str, ...], kind: str) -> None:
        """Raise FileError unless a compressed PLY has these properties, of this type."""
        types = self.types
        for name in names:
            if types.get(name, "")[1:] == kind:
                continue
            present = ", ".join(map(clipped, [*types][:20])) or "none"
            raise FileError(
                f"compressed PLY: element {self.name!r} has no property {name!r} of "
                f"type {kind}; it has {present}"
            )


@dataclass
class PlyHeader:
    """The header of a PLY: everything before its records."""

    elements: dict[str, Element]
    """By name, in their order."""
    comments: list[str]
    """Comments and lines of `obj_info`, in their order."""
    is_text: bool
    size: int
    """Bytes of the header: the first record begins after them."""

    def elements_before(self, name: str) -> list[Element]:
        """Return the elements before the one of this name, in their order."""
        names = [*self.elements]
        return [self.elements[n] for n in names[: names.index(name)]]

    def check(self, f: BinaryIO, name: str) -> None:
        """Raise FileError for a file too short for an element and those before it."""
        f.seek(self.size)
        left = max(remaining(f), 0)
        for element in (*self.elements_before(name), self.elements[name]):
            # The last number of a text needs no space after it.
            needed = element.min_bytes(is_text=self.is_text) - self.is_text
            if needed > left:
                raise FileError(
                    f"PLY: truncated: {element.count:,} records of element "
                    f"{element.name!r} take {needed:,} bytes, the file has {left:,} "
                    "left"
                )
            left -= needed


def read_header(f: BinaryIO) -> PlyHeader:
    """Read the header of a PLY.

    Nothing is allocated on the strength of what it claims. Raises FileError.
    """
    text = f.read(HEADER_LIMIT)
    end = text.find(b"\nend_header")
    stop = text.find(b"\n", end + 1)
    if end < 0 or stop < 0:
        if len(text) < HEADER_LIMIT:
            raise FileError("PLY: no line 'end_header'; it is truncated")
        raise FileError(f"PLY: no line 'end_header' within {HEADER_LIMIT:,} bytes")
    header = PlyHeader({}, [], is_text=False, size=stop + 1)
    order = ""
    last = Element("", 0)
    # The names of the last element, so that a header of very many takes no longer for
    # each.
    names: set[str] = set()
    # Comments may hold what `splitlines` takes for an end of line.
    for line in text[:end].decode("utf-8", errors="replace").split("\n")[1:]:
        match line.split():
            case []:
                pass
            case ["comment" | "obj_info", *text_words]:
                header.comments.append(" ".join(text_words))
            case [
                "format",
                ("ascii" | "binary_little_endian" | "binary_big_endian") as form,
                *_,
            ]:
                header.is_text = form == "ascii"
                order = ">" if form == "binary_big_endian" else "<"
            case ["element", name, count] if (
                name not in header.elements and count.isdigit()
            ):
                last = Element(name, int(count))
                header.elements[name] = last
                names = set()
            case ["property", "list", length, kind, name] if (
                order and last.name and length in TYPES and kind in TYPES
            ):
                last.properties.append(
                    Property(name, order + TYPES[kind], order + TYPES[length])
                )
            case ["property", kind, name] if (
                order and last.name and kind in TYPES and name not in names
            ):
                # CloudCompare's prefix, unless the short name is taken.
                short_name = name.removeprefix("scalar_")
                unique_name = short_name
                if short_name in names:
                    unique_name = name
                names.add(unique_name)
                last.properties.append(Property(unique_name, order + TYPES[kind]))
            case _:
                raise FileError(f"PLY: header line {line[:60]!r} is not understood")
    for element in header.elements.values():
        if len(element.lists) > MAX_LISTS:
            raise FileError(
                f"PLY: element {clipped(element.name)!r} has {len(element.lists)} "
                f"lists; at most {MAX_LISTS} are read"
            )
    return header


# -- records ---------------------------------------------------------------------------


def read_blocks(
    f: BinaryIO, header: PlyHeader, name: str, progress: Progress = silent
) -> Iterator[np.ndarray]:
    """Return the records of an element, block by block.

    A block is valid until the next is asked for. That the file is long enough is
    checked at once.

    Args:
        f: the file, seekable.
        header: its header.
        name: the element's.
        progress: called while elements before it are passed over.

    Raises:
        FileError: the file is too short, or damaged; the latter also from the iterator.
    """
    header.check(f, name)
    element = header.elements[name]
    offset = header.size
    passed: list[Element] = []
    for earlier in header.elements_before(name):
        if header.is_text or passed or earlier.lists:
            passed.append(earlier)
        else:
            offset += earlier.count * earlier.record().itemsize
    if not (header.is_text or passed or element.lists):
        return _read_fixed(f, offset, element)
    f.seek(offset)
    records = _Text(f) if header.is_text else _Bytes(f)
    return _read_behind(records, passed, element, progress)


def read_records(f: BinaryIO, header: PlyHeader, name: str) -> np.ndarray:
    """Read all records of an element as one structured array, without its lists.

    Raises FileError.
    """
    element = header.elements[name]
    blocks = read_blocks(f, header, name)
    types = element.types
    record = np.dtype([*types.items()])
    check_memory(element.count * record.itemsize, f"element {clipped(name)!r}")
    records = np.empty(element.count, record)
    start = 0
    for block in blocks:
        end = start + len(block)
        for column in types:
            records[column][start:end] = block[column]
        start = end
    return records


def _read_fixed(f: BinaryIO, offset: int, element: Element) -> Iterator[np.ndarray]:
    """Yield the records of an element without lists, in one buffer.

    They are read, not mapped: a trainer may write the file again meanwhile, and a mapped
    file that shrinks kills the process.
    """
    record = element.record()
    if not record.itemsize:
        return
    f.seek(offset)
    block_size = max(1, BLOCK_BYTES // record.itemsize)
    buffer = bytearray(min(block_size, element.count) * record.itemsize)
    for start in range(0, element.count, block_size):
        count = min(block_size, element.count - start)
        view = memoryview(buffer)[: count * record.itemsize]
        if f.readinto(view) != len(view):  # type: ignore[attr-defined]
            raise FileError("PLY: the file became shorter while it was read")
        yield np.frombuffer(view, record)


class _Bytes:
    """The records of a binary file, one after the other, read ahead in blocks."""

    is_text = False

    def __init__(self, f: BinaryIO) -> None:
        self.left = remaining(f)
        """Bytes of records that can come yet, at most."""
        self._file = f
        self._buffer = b""
        self._position = 0

    def peek(self, size: int) -> memoryview:
        """Return the next bytes without skipping them.

        They are at least `size`, unless the file ends before.
        """
        missing = size - (len(self._buffer) - self._position)
        if missing > 0:
            chunks = [self._buffer[self._position :]]
            while missing > 0 and (chunk := self._read(missing)):
                chunks.append(chunk)
                missing -= len(chunk)
            self._buffer = b"".join(chunks)
            self._position = 0
        return memoryview(self._buffer)[self._position :]

    def skip(self, size: int) -> None:
        """Skip the next `size` bytes, which were peeked at."""
        self._position += size
        self.left -= size

    def _read(self, size: int) -> bytes:
        return self._file.read(max(size, BLOCK_BYTES))


class _Text(_Bytes):
    """The records of a text, one after the other: its numbers as float64."""

    is_text = True

    def __init__(self, f: BinaryIO) -> None:
        super().__init__(f)
        self.left = 8 * ((self.left + 1) // 2)
        self._tail = b""

    def _read(self, size: int) -> bytes:
        while True:
            text = self._file.read(TEXT_BYTES)
            is_last = len(text) < TEXT_BYTES
            text = self._tail + text
            self._tail = b""
            tokens = text.split()
            # The last token of a block may go on in the next one.
            if tokens and not is_last and not text[-1:].isspace():
                self._tail = tokens.pop()
            longest = max(map(len, tokens), default=0)
            if max(longest, len(self._tail)) > LONGEST_NUMBER:
                raise FileError("PLY: the text holds something that is not a number")
            if tokens or is_last:
                break
        try:
            return np.fromiter(map(float, tokens), "<f8", len(tokens)).tobytes()
        except ValueError as e:
            raise FileError(
                f"PLY: the text holds something that is not a number ({e!s:.80})"
            ) from None


def _read_behind(
    records: _Bytes, passed: list[Element], element: Element, progress: Progress
) -> Iterator[np.ndarray]:
    """Yield the records of an element that lies after those of `passed`."""
    for earlier in passed:
        for _ in _read_runs(records, earlier):
            progress(f"passing over {clipped(earlier.name)}", 0.0)
    yield from _read_runs(records, element)


def _read_runs(records: _Bytes, element: Element) -> Iterator[np.ndarray]:
    """Yield the records of an element as arrays.

    The lists of all records of an array have the same lengths.
    """
    has_lists = bool(element.lists)
    left = element.count if element.properties else 0
    max_count = FIRST_RECORDS
    runs = 0
    while left:
        lengths = _peek_lengths(records, element)
        record = element.record(lengths, is_text=records.is_text)
        block_count = max(1, BLOCK_BYTES // record.itemsize)
        if not has_lists:
            max_count = block_count
        count = min(left, max_count)
        data = records.peek(count * record.itemsize)
        count = min(count, len(data) // record.itemsize)
        if not count:
            raise _truncated(element, left)
        block = np.frombuffer(data, record, count)
        for i, length in enumerate(lengths):
            differs = block[f"length {i}"] != length
            if differs.any():
                block = block[: int(differs.argmax())]
        if len(block) == count:
            max_count = min(4 * count, block_count)
        else:
            max_count = FIRST_RECORDS
            runs += 1
        if runs > MAX_RUNS:
            raise FileError(
                f"PLY: the lists of element {clipped(element.name)!r} change their "
                f"length more than {MAX_RUNS:,} times: save the Gaussians alone"
            )
        yield block
        records.skip(len(block) * record.itemsize)
        left -= len(block)


def _peek_lengths(records: _Bytes, element: Element) -> tuple[int, ...]:
    """Return the lengths of the lists of the next record.

    Raises FileError where the file cannot hold them.
    """
    if not element.lists:
        return ()
    lengths: list[int] = []
    size = 0
    for p in element.properties:
        kind = np.dtype("<f8" if records.is_text else p.kind)
        if not p.length_kind:
            size += kind.itemsize
            continue
        length_kind = np.dtype("<f8" if records.is_text else p.length_kind)
        data = records.peek(size + length_kind.itemsize)
        if len(data) < size + length_kind.itemsize:
            raise _truncated(element)
        length = float(np.frombuffer(data, length_kind, 1, size)[0])
        if not (length >= 0 and length.is_integer()):
            raise FileError(
                f"PLY: a list of element {clipped(element.name)!r} has a length of "
                f"{length:g}"
            )
        size += length_kind.itemsize + int(length) * kind.itemsize
        if size > records.left or size > MAX_RECORD_BYTES:
            raise _truncated(element)
        lengths.append(int(length))
    if size > BLOCK_BYTES:
        check_memory(2 * size, f"a record of element {clipped(element.name)!r}")
    return tuple(lengths)


def _truncated(element: Element, left: int = 0) -> FileError:
    """Return the error for a file that ends `left` records too early; 0: in a list."""
    missing = "a list is not whole"
    if left:
        missing = f"{left:,} records are missing"
    return FileError(f"PLY: truncated: of element {clipped(element.name)!r} {missing}")
