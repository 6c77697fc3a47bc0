"""The .ply of 3D Gaussian splatting, as inria's code and gsplat's exporters write it.

One record per Gaussian: x y z [nx ny nz] f_dc_0..2 f_rest_* opacity scale_0..2 rot_0..3, scales as
logarithms and opacities as logits. f_rest is channel-major (all of R, then G, then B). Properties may
come in any order and type; what is not needed is skipped. The layout is that of `GaussianModel.save_ply`
in graphdeco-inria/gaussian-splatting. Besides it: a colour as red green blue (nerfstudio) or r g b, integers or
0 to 1, one scale for all axes, and names that begin with scalar_ (CloudCompare). Files are written in inria's order
of properties, so that other programs read them as well.

SuperSplat's compressed .ply: chunks of 256 Gaussians, each quantised within the bounds of its chunk.

Layout as in playcanvas/splat-transform, `decompress-ply.ts`: positions and log scales 11+10+11 bits
between the chunk's minima and maxima, rotations as the index of the largest component and three times 10
bits, colour and alpha 8 bits each, and an optional element `sh` with one byte per higher coefficient
(channel-major, -4 to 4).
"""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.bounds import check_memory, check_scene, clipped, whole_number
from splatview_viewer.formats.common import (
    LOGIT_OF_BYTE,
    SH_PROPERTIES,
    Fields,
    Format,
    Progress,
    quats_from_smallest_three,
    read_exact,
    remaining,
    silent,
)
from splatview_viewer.scene.scene import sh0_of_rgb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from splatview_viewer.scene.scene import GaussianScene

HEADER_LIMIT = 1 << 20
"""No real header comes near a mebibyte."""
MOST_LINES, MOST_ELEMENTS, MOST_PROPERTIES = 20_000, 100, 4096
"""Of a header; of an element. A Gaussian has up to 62 properties, and trainers of features add some hundred."""
BLOCK_BYTES = 4 << 20
"""Records are taken apart in blocks that stay in the processor's cache."""

TYPES = {"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
         "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4",
         "uint32": "u4", "float32": "f4", "float64": "f8"}
COLORS = ("f_dc_0", "f_dc_1", "f_dc_2"), ("red", "green", "blue"), ("r", "g", "b")
"""The names of the colour, in the order in which they are looked for."""
ROTATION = ("rot_0", "rot_1", "rot_2", "rot_3")

_ROWS = 1 << 16
"""Gaussians that are written in one piece."""
_LEAST_SCALE, _NEAREST_OPACITY = 1e-37, 2.0 ** -24
"""What logarithms and logits of 0 and 1 are taken of, so that they are finite."""

CHUNK = 256
PACKED = ("packed_position", "packed_rotation", "packed_scale", "packed_color")
_CHUNK_POSITION = tuple(f"{m}_{a}" for m in ("min", "max") for a in "xyz")
_CHUNK_SCALE = tuple(f"{m}_scale_{a}" for m in ("min", "max") for a in "xyz")
_CHUNK_COLOR = tuple(f"{m}_{a}" for m in ("min", "max") for a in "rgb")

_byte = np.arange(256, dtype=np.float32)
_SH_OF_BYTE = (np.where(_byte == 0, 0, np.where(_byte == 255, 1, (_byte + 0.5) / 256)) - 0.5) * 8


@dataclass
class Element:
    """One element of a PLY header: so many records of these properties."""

    name: str
    count: int
    types: dict[str, str]
    """The numpy type of each property, byte order included, in their order."""
    list_property: str = ""
    """The first property of variable length, if there is one: its size is not known from the header."""
    steps: list[tuple[str, str]] = field(default_factory=list)
    """All properties in their order: the numpy type of a list's length, or "", and that of its items."""

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

    def before(self, name: str) -> list[Element]:
        """Return the elements before one whose records have a fixed size. Raises FileError if there is no such one."""
        at = next((i for i, e in enumerate(self.elements) if e.name == name), None)
        if at is None:
            raise FileError(f"PLY: no element {name!r}; the file has {', '.join(x.name for x in self.elements)}")
        if wrong := self.elements[at].list_property:
            raise FileError(f"PLY: element {name!r} has the list property {wrong!r}; lists in the Gaussians cannot be "
                            "read. Save the Gaussians alone.")
        return self.elements[:at]

    def seek(self, f: BinaryIO, name: str) -> None:
        """Go to the records of an element.

        Raises:
            FileError: the elements before them are larger than the file.
        """
        f.seek(self.size)
        at, size = self.size, self.size + remaining(f)

        def number(offset: int, kind: str) -> int:
            f.seek(at + offset)
            return int.from_bytes(f.read(int(kind[-1])), "big" if kind[0] == ">" else "little", signed=kind[1] == "i")

        for e in self.before(name):
            at += _reach(e, size - at, lambda kind: int(kind[-1]), number)
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
    types, key = words[2 if words[1] == "list" else 1:-1], words[-1].removeprefix("scalar_")
    key = words[-1] if key in element.types else key
    if wrong := next((t for t in types if t not in TYPES), None):
        raise FileError(f"PLY: property {name!r} has type {clipped(wrong)!r}; legal are {', '.join(TYPES)} and list")
    if key in element.types:
        raise FileError(f"PLY: element {clipped(element.name)!r} has property {name!r} twice")
    if len(element.steps) == MOST_PROPERTIES:
        raise FileError(f"PLY: element {clipped(element.name)!r} has more than {MOST_PROPERTIES:,} properties; at most "
                        f"{MOST_PROPERTIES:,} are read")
    *length, item = (order + TYPES[t] for t in types)
    if len(length) != (words[1] == "list") or "f" in "".join(length):
        raise FileError(f"PLY: header line {' '.join(words)[:60]!r} is not understood")
    element.steps.append((length[0] if length else "", item))
    if length:
        element.list_property = element.list_property or name
    else:
        element.types[key] = item


def _reach(element: Element, end: int, size: Callable[[str], int], number: Callable[[int, str], int]) -> int:
    """Return how far an element reaches from its begin, in bytes, or numbers of a text, as `end` and `size`, that of a
    numpy type. `number`: the value of a type at an offset, 0 beyond the end."""
    if not element.list_property:
        return element.count * sum(size(item) for _, item in element.steps)
    at = 0
    for _ in range(element.count):
        for length, item in element.steps:
            count = number(at, length) if length else 1
            if count < 0:
                raise FileError(f"PLY: damaged: a list of {count} in element {clipped(element.name)!r}")
            at += count * size(item) + (size(length) if length else 0)
        if at > end:
            raise FileError(f"PLY: truncated: the file ends in element {clipped(element.name)!r}")
    return at


def read_ply(f: BinaryIO, header: Header, progress: Progress) -> Fields:
    """The Gaussians of an uncompressed PLY whose header was read from `f`."""
    vertex = header.element("vertex")
    if vertex is None:
        raise FileError("PLY: no element 'vertex'; the file has "
                        f"{', '.join(e.name for e in header.elements) or 'no elements'}")
    names = vertex.names
    colors = next((c for c in COLORS if set(c) <= vertex.types.keys()), COLORS[0])
    scales = [p for p in names if p.startswith("scale_")]
    scales = scales if scales == ["scale_0"] else ["scale_0", "scale_1", "scale_2"]
    if missing := [p for p in (*"xyz", *colors, "opacity", *scales, *ROTATION) if p not in vertex.types]:
        raise FileError(
            f"PLY: no Gaussians in it: {', '.join(missing)} missing; vertex has "
            f"{', '.join(map(clipped, names[:20])) or 'no properties'}{' ...' if len(names) > 20 else ''}")
    rest = [p for p in names if p.startswith("f_rest_")]
    if len(rest) not in SH_PROPERTIES or set(rest) != {f"f_rest_{i}" for i in range(len(rest))}:
        raise FileError(f"PLY: {len(rest)} properties f_rest_*; legal are {', '.join(map(str, SH_PROPERTIES))}, "
                        "numbered from 0")
    header.before("vertex")  # names a list that is in the way
    n, k = vertex.count, len(rest) // 3
    blocks = _ascii_blocks if header.format == "ascii" else _binary_blocks
    source = blocks(f, header, vertex)
    first = next(source)  # checks the count against the size of the file: only then is anything allocated
    check_scene(n, k, os.fstat(f.fileno()).st_size, growth=1.5)
    fields = Fields(*(np.empty((n, *s), np.float32) for s in ((3,), (4,), (3,), (), (3,), (k, 3))))
    fields.means = fields.means.astype(first.dtype)
    at = {name: i for i, name in enumerate(names)}.__getitem__
    columns = {"means": [at(c) for c in "xyz"], "quats": [at(c) for c in ROTATION],
               "scales": [at(c) for c in scales], "sh0": [at(c) for c in colors]}
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
    if colors is not COLORS[0]:
        white = [1 if vertex.types[c][1] == "f" else 65535 if vertex.types[c][1:] == "u2" else 255 for c in colors]
        fields.sh0 = sh0_of_rgb(fields.sh0 / np.array(white, np.float32))
    return fields.checked(mode=header.mode, up=header.said("verticalaxis"))


def _as_slice(columns: list[int]) -> slice | list[int]:
    """Neighbouring columns as a slice, which numpy takes without a gather."""
    if columns and columns == list(range(columns[0], columns[0] + len(columns))):
        return slice(columns[0], columns[0] + len(columns))
    return columns


def _numbers(vertex: Element) -> type[np.floating]:
    """Return what holds its positions."""
    return np.float64 if any(vertex.types[c][1:] == "f8" for c in "xyz") else np.float32


def _binary_blocks(f: BinaryIO, header: Header, vertex: Element):
    """Blocks (rows, properties) of float32, or float64 where positions are, valid until the next is asked for.

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
            yield block.astype(_numbers(vertex), copy=False)
        else:
            records = np.frombuffer(view, vertex.dtype)
            block = np.empty((rows, len(vertex.types)), _numbers(vertex))
            for i, name in enumerate(vertex.names):
                block[:, i] = records[name]
            yield block
        done += rows
        if rows == 0:
            return


def _ascii_blocks(f: BinaryIO, header: Header, vertex: Element):
    """The whole text as one block. A number takes two bytes at least, which bounds what a count may claim."""
    others, need = header.before("vertex"), vertex.count * len(vertex.types)
    wanted = need + sum(e.count * len(e.steps) for e in others)  # at least: a list may be long
    f.seek(header.size)
    left = remaining(f)
    if wanted > (left + 1) // 2:
        raise FileError(f"PLY: truncated: {vertex.count:,} Gaussians need {wanted:,} numbers, the file has "
                        f"{left:,} bytes after its header")
    check_memory(5 * left, f"{left:,} bytes of text")  # the text, and a number for each two bytes of it
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # No count: given one, numpy fills up a text that is too short with whatever lies in memory.
            values = np.fromstring(f.read(left), _numbers(vertex), sep=" ")
    except (ValueError, DeprecationWarning) as e:
        raise FileError(f"PLY: the text holds something that is not a number ({e})") from None
    for e in others:
        values = values[_reach(e, len(values), lambda kind: 1,
                               lambda at, kind, v=values: int(v[at]) if at < len(v) else 0):]
    if len(values) < need:
        raise FileError(f"PLY: truncated: {need:,} numbers are needed, the text has {len(values):,}")
    yield values[:need].reshape(vertex.count, len(vertex.types))


def is_compressed(header: Header) -> bool:
    """Whether the header is of this format."""
    vertex = header.element("vertex")
    return vertex is not None and "packed_position" in vertex.types


def read_compressed_ply(f: BinaryIO, header: Header, progress: Progress) -> Fields:
    """The Gaussians of a compressed PLY whose header was read from `f`."""
    if header.format == "ascii":
        raise FileError("compressed PLY: format ascii; only the binary forms exist")
    vertex, chunk, sh = (header.element(name) for name in ("vertex", "chunk", "sh"))
    if vertex is None or chunk is None:
        raise FileError("compressed PLY: the elements 'chunk' and 'vertex' are needed")
    n = vertex.count
    if chunk.count * CHUNK < n:
        raise FileError(f"compressed PLY: {chunk.count:,} chunks of {CHUNK} cannot hold {n:,} Gaussians")
    _need(chunk, _CHUNK_POSITION + _CHUNK_SCALE, "f4")
    _need(vertex, PACKED, "u4")
    colored = "min_r" in chunk.types  # files before SuperSplat 0.23 leave the colour bounds out: 0 to 1
    if colored:
        _need(chunk, _CHUNK_COLOR, "f4")
    k = 0
    if sh is not None:
        if sh.count != n or len(sh.types) not in SH_PROPERTIES:
            raise FileError(f"compressed PLY: element 'sh' has {sh.count:,} times {len(sh.types)} "
                            f"properties; {n:,} times {', '.join(map(str, SH_PROPERTIES[1:]))} is needed")
        _need(sh, tuple(f"f_rest_{i}" for i in range(len(sh.types))), "u1")
        k = len(sh.types) // 3
    check_scene(n, k, os.fstat(f.fileno()).st_size)
    chunks, records = (_records(f, header, e) for e in (chunk, vertex))
    progress("unpacking Gaussians", 0.3)
    of = np.arange(n) // CHUNK
    packed = {name: records[name].astype(np.uint32, copy=False) for name in PACKED}
    fields = Fields(
        means=_of_chunks(chunks, _CHUNK_POSITION, of, _unpack_11_10_11(packed["packed_position"])),
        quats=_unpacked_rotations(packed["packed_rotation"]),
        scales=_of_chunks(chunks, _CHUNK_SCALE, of, _unpack_11_10_11(packed["packed_scale"])),
        opacities=LOGIT_OF_BYTE[packed["packed_color"] & 255],
        sh0=_colors(packed["packed_color"], chunks if colored else None, of),
        shN=np.zeros((n, 0, 3), np.float32))
    progress("unpacking Gaussians", 0.7)
    if sh is not None and k:
        bands = _records(f, header, sh)
        order = np.array([sh.names.index(f"f_rest_{i}") for i in range(3 * k)])
        rest = bands.view(np.uint8).reshape(n, 3 * k)[:, order]
        fields.shN = _SH_OF_BYTE.astype(np.float32)[rest.reshape(n, 3, k).transpose(0, 2, 1)]
    progress("unpacking Gaussians", 1.0)
    return fields.checked(mode=header.mode, up=header.said("verticalaxis"))


def _need(element: Element, names: tuple[str, ...], kind: str) -> None:
    for name in names:
        if element.types.get(name, "")[1:] != kind:
            raise FileError(f"compressed PLY: element {element.name!r} has no property {name!r} of type "
                            f"{kind}; it has {', '.join(map(clipped, element.names[:20])) or 'none'}")


def _records(f: BinaryIO, header: Header, element: Element) -> np.ndarray:
    header.seek(f, element.name)
    data = read_exact(f, element.nbytes, f"compressed PLY: element {element.name!r}")
    return np.frombuffer(data, element.dtype)


def _unpack_11_10_11(v: np.ndarray) -> np.ndarray:
    """(N, 3) float32 in [0, 1]."""
    out = np.empty((len(v), 3), np.float32)
    out[:, 0] = (v >> 21) / np.float32(2047)
    out[:, 1] = ((v >> 11) & 1023) / np.float32(1023)
    out[:, 2] = (v & 2047) / np.float32(2047)
    return out


def _of_chunks(chunks: np.ndarray, names: tuple[str, ...], of: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Values (N, 3) at the fractions `t` between the bounds of their chunks."""
    bounds = np.stack([chunks[name] for name in names], axis=1).astype(np.float32)
    low, high = bounds[of, :3], bounds[of, 3:]
    with np.errstate(invalid="ignore"):  # a bound may be infinite: the logarithm of a scale of 0
        return np.where(t < 1, low * (1 - t), 0) + np.where(t > 0, high * t, 0)


def _colors(v: np.ndarray, chunks: np.ndarray | None, of: np.ndarray) -> np.ndarray:
    rgb = np.stack([(v >> s) & 255 for s in (24, 16, 8)], axis=1).astype(np.float32) / np.float32(255)
    if chunks is not None:
        rgb = _of_chunks(chunks, _CHUNK_COLOR, of, rgb)
    return sh0_of_rgb(rgb)


def _unpacked_rotations(v: np.ndarray) -> np.ndarray:
    rest = np.stack([(v >> s) & 1023 for s in (20, 10, 0)], axis=1).astype(np.float32) / np.float32(1023)
    return quats_from_smallest_three(v >> 30, (rest - np.float32(0.5)) * np.float32(2 ** 0.5))


def write_ply(scene: GaussianScene, path: Path, *, antialiased: bool = False, keep: torch.Tensor | None = None,
              progress: Progress = silent) -> tuple[Path, int]:
    """Write an activated scene on the CPU, or a part of it. The file appears at once and whole, or not at all.

    Args:
        scene: activated; Gaussians of opacity 0 are left out, since nothing of them is to be seen.
        path: where; if that exists, the same with a number behind it, so that nothing is lost.
        antialiased: whether the scene was trained so, which stands in a comment that other programs know.
        keep: (N,) bool, which Gaussians to write; None: all of them.
        progress: told how far it is.

    Returns the file's path and how many Gaussians are in it.

    Raises:
        FileError: none is left to be written, or the file cannot be written.
    """
    drawn = scene.opacities > 0
    index = (drawn if keep is None else drawn & keep).nonzero()[:, 0]
    if not len(index):
        raise FileError("PLY: none of the Gaussians is left to be written")
    try:
        with output_file(path, numbered=True) as out:
            _write(out.file, scene, index, antialiased, progress)
    except OSError as e:
        raise FileError(str(e)) from e
    return out.path, len(index)


def _write(f: BinaryIO, scene: GaussianScene, index: torch.Tensor, antialiased: bool, progress: Progress) -> None:
    rest = 3 * scene.shN.shape[1]
    names = ["x", "y", "z", "nx", "ny", "nz", *(f"f_dc_{i}" for i in range(3)), *(f"f_rest_{i}" for i in range(rest)),
             "opacity", *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4))]
    wide = "double" if scene.means.dtype.itemsize == 8 else "float"
    record = np.dtype([("means", "<f8" if wide == "double" else "<f4", 3), ("rest", "<f4", len(names) - 3)])
    comments = ["comment SplatRenderMode: mip"] if antialiased else []
    f.write("\n".join(["ply", "format binary_little_endian 1.0", *comments, f"element vertex {len(index)}",
                       *(f"property {wide if name in 'xyz' else 'float'} {name}" for name in names),
                       "end_header", ""]).encode())
    for start in range(0, len(index), _ROWS):
        part = scene[index[start: start + _ROWS]]
        records = np.zeros(len(part), record)
        records["means"], block = part.means.numpy(), records["rest"]
        block[:, 3:6] = part.sh0.numpy()
        # Channel by channel, while tensors go coefficient by coefficient.
        block[:, 6: 6 + rest] = part.shN.transpose(1, 2).flatten(1).numpy()
        block[:, 6 + rest] = part.opacities.double().clamp(1e-37, 1 - _NEAREST_OPACITY).logit().numpy()
        block[:, 7 + rest: 10 + rest] = part.scales.double().clamp(_LEAST_SCALE).log().numpy()
        block[:, 10 + rest:] = part.quats.numpy()
        f.write(records.data)
        progress("writing Gaussians", min(start + _ROWS, len(index)) / len(index))


def read(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of a PLY, compressed or not."""
    with open(path, "rb") as f:
        header = read_header(f)
        return (read_compressed_ply if is_compressed(header) else read_ply)(f, header, progress)


PLY = Format("ply", (".ply",), "3D Gaussian splatting PLY (inria, gsplat), SuperSplat's compressed PLY",
             lambda start: start.head[:3] == b"ply" and start.head[3:4] in (b"\n", b"\r", b" "), read)
