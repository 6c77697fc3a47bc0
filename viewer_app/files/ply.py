"""The .ply of 3D Gaussian splatting, as inria's code and gsplat's exporters write it.

One record per Gaussian: x y z [nx ny nz] f_dc_0..2 f_rest_* opacity scale_0..2 rot_0..3, scales as
logarithms and opacities as logits. f_rest is channel-major (all of R, then G, then B). Properties may
come in any order and type; what is not needed is skipped. The layout is that of `GaussianModel.save_ply`
in graphdeco-inria/gaussian-splatting.
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files.bounds import check_memory, check_scene, clipped, whole_number
from splatview.viewer_app.files.common import SH_REST, Fields, Progress, remaining

if TYPE_CHECKING:
    from splatview.viewer_app.scene import GaussianScene

HEADER_LIMIT = 1 << 20
"""No real header comes near a mebibyte."""
MOST_LINES, MOST_ELEMENTS, MOST_PROPERTIES = 20_000, 100, 4096
"""Of a header; of an element. A Gaussian has up to 62 properties, and trainers of features add some hundred."""
BLOCK_BYTES = 4 << 20
"""Records are taken apart in blocks that stay in the processor's cache."""

TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
         "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4",
         "uint32": "u4", "float32": "f4", "float64": "f8"}
REQUIRED = ("x", "y", "z", "f_dc_0", "f_dc_1", "f_dc_2", "opacity", "scale_0", "scale_1", "scale_2",
            "rot_0", "rot_1", "rot_2", "rot_3")


@dataclass
class Element:
    """One element of a PLY header: so many records of these properties."""

    name: str
    count: int
    types: dict[str, str]
    """The numpy type of each property, byte order included, in their order."""
    list_property: str = ""
    """The first property of variable length, if there is one: its size is not known from the header."""

    @property
    def names(self) -> list[str]:
        return list(self.types)

    @property
    def dtype(self) -> np.dtype:
        """The type of a record."""
        return np.dtype(list(self.types.items()))

    @property
    def itemsize(self) -> int:
        return sum(int(t[-1]) for t in self.types.values())

    @property
    def nbytes(self) -> int:
        return self.count * self.itemsize


@dataclass
class Header:
    """A PLY header and where the data starts."""

    format: str
    elements: list[Element]
    comments: list[str]
    size: int

    def element(self, name: str) -> Element | None:
        return next((e for e in self.elements if e.name == name), None)

    def offset(self, name: str) -> int:
        """Where the records of an element start. Raises FileError if a list property lies before them."""
        at = self.size
        for e in self.elements:
            if e.list_property:
                raise FileError(f"PLY: element {e.name!r} has the list property {e.list_property!r}; "
                                "lists before or in the Gaussians cannot be read. Save the Gaussians alone.")
            if e.name == name:
                return at
            at += e.nbytes
        raise FileError(f"PLY: no element {name!r}; the file has {', '.join(x.name for x in self.elements)}")

    def seek(self, f: BinaryIO, name: str) -> None:
        """Go to the records of an element.

        Raises:
            FileError: the elements before them are larger than the file, or of unknown size.
        """
        at, size = self.offset(name), f.seek(0, os.SEEK_END)
        if at > size:
            raise FileError(f"PLY: truncated: element {name!r} starts at byte {at:,}, the file has {size:,}")
        f.seek(at)

    def said(self, *keys: str) -> str:
        """What the last comment that starts with one of these keys says after it, in lower case without spaces; ""
        for none. Spaces, colons and case of a key do not count."""
        squeezed = (re.sub(r"[\s:]", "", c).lower() for c in reversed(self.comments))
        return next((c.removeprefix(key) for c in squeezed for key in keys if c.startswith(key)), "")

    @property
    def mode(self) -> str:
        """How the scene was trained, as Brush (`SplatRenderMode: mip`) and Postshot (`antialiased 1`) say it."""
        return self.said("splatrendermode", "antialiased")


def read_header(f: BinaryIO) -> Header:
    """Parse the header. Nothing is allocated on the strength of what it claims."""
    text = f.read(HEADER_LIMIT)
    if not text.startswith(b"ply"):
        raise FileError("PLY: the file does not start with 'ply'")
    end = text.find(b"\nend_header")
    stop = text.find(b"\n", end + 1)
    if end < 0 or stop < 0:
        raise FileError("PLY: no line 'end_header'" + (
            f" within {HEADER_LIMIT:,} bytes" if len(text) == HEADER_LIMIT else "; the file is truncated"))
    try:
        lines = text[:end].decode("ascii", errors="replace").splitlines()[1:]
        if len(lines) > MOST_LINES:
            raise FileError(f"PLY: a header of {len(lines):,} lines; at most {MOST_LINES:,} are read")
        return _parse(lines, stop + 1)
    except (ValueError, IndexError) as e:
        raise FileError(f"PLY: damaged header ({e})") from None


def _parse(lines: list[str], size: int) -> Header:
    header = Header("", [], [], size)
    order = "<"
    for line in lines:
        words = line.split()
        if not words or words[0] == "obj_info":
            continue
        if words[0] == "comment":
            header.comments.append(" ".join(words[1:]))
        elif words[0] == "format":
            header.format = words[1]
            if header.format not in ("ascii", "binary_little_endian", "binary_big_endian"):
                raise FileError(f"PLY: format {clipped(words[1])!r} is not ascii, binary_little_endian or "
                                "binary_big_endian")
            order = ">" if header.format == "binary_big_endian" else "<"
        elif words[0] == "element":
            _add_element(header, words)
        elif words[0] == "property" and header.elements:
            _add_property(header.elements[-1], words, order)
        else:
            raise FileError(f"PLY: header line {line[:60]!r} is not understood")
    if not header.format:
        raise FileError("PLY: the header has no 'format' line")
    return header


def _add_element(header: Header, words: list[str]) -> None:
    name = clipped(words[1])
    if header.element(words[1]) is not None:
        raise FileError(f"PLY: element {name!r} twice")
    if len(header.elements) == MOST_ELEMENTS:
        raise FileError(f"PLY: more than {MOST_ELEMENTS} elements; at most {MOST_ELEMENTS} are read")
    header.elements.append(Element(words[1], whole_number(words[2], f"element {name!r} has a count"), {}))


def _add_property(element: Element, words: list[str], order: str) -> None:
    name = clipped(words[-1])
    if words[1] == "list":
        element.list_property = element.list_property or name
    elif words[1] not in TYPES:
        raise FileError(f"PLY: property {name!r} has type {clipped(words[1])!r}; legal are {', '.join(TYPES)} and list")
    elif words[2] in element.types:
        raise FileError(f"PLY: element {clipped(element.name)!r} has property {clipped(words[2])!r} twice")
    elif len(element.types) == MOST_PROPERTIES:
        raise FileError(f"PLY: element {clipped(element.name)!r} has more than {MOST_PROPERTIES:,} properties; at most "
                        f"{MOST_PROPERTIES:,} are read")
    else:
        element.types[words[2]] = order + TYPES[words[1]]


def read_ply(f: BinaryIO, header: Header, progress: Progress) -> GaussianScene:
    """The Gaussians of an uncompressed PLY whose header was read from `f`."""
    vertex = header.element("vertex")
    if vertex is None:
        raise FileError("PLY: no element 'vertex'; the file has "
                        f"{', '.join(e.name for e in header.elements) or 'no elements'}")
    names = vertex.names
    if missing := [p for p in REQUIRED if p not in vertex.types]:
        raise FileError(
            f"PLY: no Gaussians in it: {', '.join(missing)} missing; vertex has "
            f"{', '.join(map(clipped, names[:20])) or 'no properties'}{' ...' if len(names) > 20 else ''}")
    rest = [p for p in names if p.startswith("f_rest_")]
    if len(rest) not in SH_REST or set(rest) != {f"f_rest_{i}" for i in range(len(rest))}:
        raise FileError(f"PLY: {len(rest)} properties f_rest_*; legal are 0, 9, 24 or 45, numbered from 0")
    header.offset("vertex")  # names a list that is in the way
    n, k = vertex.count, len(rest) // 3
    blocks = _ascii_blocks if header.format == "ascii" else _binary_blocks
    source = blocks(f, header, vertex)
    first = next(source)  # checks the count against the size of the file: only then is anything allocated
    check_scene(n, k, os.fstat(f.fileno()).st_size, growth=1.5)
    fields = Fields(*(np.empty((n, *s), np.float32) for s in ((3,), (4,), (3,), (), (3,), (k, 3))))
    at = {name: i for i, name in enumerate(names)}.__getitem__
    columns = {"means": [at(c) for c in "xyz"], "quats": [at(f"rot_{i}") for i in range(4)],
               "scales": [at(f"scale_{i}") for i in range(3)], "sh0": [at(f"f_dc_{i}") for i in range(3)]}
    take = {name: _as_slice(c) for name, c in columns.items()}
    take_rest, opacity = _as_slice([at(f"f_rest_{i}") for i in range(3 * k)]), at("opacity")
    start = 0
    block: np.ndarray | None = first
    while block is not None:
        rows = slice(start, start + len(block))
        for name, c in take.items():
            getattr(fields, name)[rows] = block[:, c]
        fields.opacities[rows] = block[:, opacity]
        if k:
            for channel, part in enumerate(np.split(block[:, take_rest], 3, axis=1)):
                fields.shN[rows, :, channel] = part
        start += len(block)
        progress("reading Gaussians", start / max(n, 1))
        block = next(source, None)
    return fields.scene(mode=header.mode)


def _as_slice(columns: list[int]) -> slice | list[int]:
    """Neighbouring columns as a slice, which numpy takes without a gather."""
    if columns and columns == list(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return columns


def _binary_blocks(f: BinaryIO, header: Header, vertex: Element):
    """Blocks (rows, properties) of float32, valid until the next is asked for.

    Read, not mapped: a trainer may write the file anew meanwhile, and a mapped file that shrinks kills us.
    """
    header.seek(f, "vertex")
    left = remaining(f)
    if vertex.nbytes > left:
        raise FileError(f"PLY: truncated: {vertex.count:,} Gaussians of {vertex.itemsize} bytes take "
                        f"{vertex.nbytes:,} bytes, the file has {left:,} after its header")
    types = set(vertex.types.values())
    per_block = max(1, BLOCK_BYTES // vertex.itemsize)
    buffer = bytearray(min(per_block, vertex.count) * vertex.itemsize)
    done = 0
    while done < vertex.count or done == 0:
        rows = min(per_block, vertex.count - done)
        view = memoryview(buffer)[:rows * vertex.itemsize]
        if f.readinto(view) != len(view):  # type: ignore[attr-defined]
            raise FileError("PLY: the file became shorter while it was read")
        if len(types) == 1:
            block = np.frombuffer(view, types.copy().pop()).reshape(rows, len(vertex.types))
            yield block.astype(np.float32, copy=False)
        else:
            records = np.frombuffer(view, vertex.dtype)
            block = np.empty((rows, len(vertex.types)), np.float32)
            for i, name in enumerate(vertex.names):
                block[:, i] = records[name]
            yield block
        done += rows
        if rows == 0:
            return


def _ascii_blocks(f: BinaryIO, header: Header, vertex: Element):
    """The whole text as one block. A number takes two bytes at least, which bounds what a count may claim."""
    before = 0
    for e in header.elements:
        if e is vertex:
            break
        before += e.count * len(e.types)
    wanted = before + vertex.count * len(vertex.types)
    f.seek(header.size)
    left = remaining(f)
    if wanted > (left + 1) // 2:
        raise FileError(f"PLY: truncated: {vertex.count:,} Gaussians need {wanted:,} numbers, the file has "
                        f"{left:,} bytes after its header")
    check_memory(3 * left, f"{left:,} bytes of text")  # the text, and a float32 for each two bytes of it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # No count: given one, numpy fills up a text that is too short with whatever lies in memory.
            values = np.fromstring(f.read(left), np.float32, sep=" ")
    except (ValueError, DeprecationWarning) as e:
        raise FileError(f"PLY: the text holds something that is not a number ({e})") from None
    if len(values) < wanted:
        raise FileError(f"PLY: truncated: {wanted:,} numbers are needed, the text has {len(values):,}")
    yield values[before:wanted].reshape(vertex.count, len(vertex.types))
