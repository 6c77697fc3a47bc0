"""Niantic's .spz: planes of quantised attributes; and antimatter15's .splat.

An .spz is gzipped (versions 1 to 3) or holds streams of zstd (version 4). Layout and
constants of nianticlabs/spz, `load-spz.cc` and `splat-extensions.cc`. Axes are
right-up-back, unless an extension names others.

A .splat is 32 bytes per Gaussian and no header. Position 3 float32,
linear scale 3 float32, RGBA 4 bytes, quaternion w x y z 4 bytes as q*128+128; colour
and alpha are final (no spherical harmonics). Layout of antimatter15/splat,
`convert.py`.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST_COUNTS
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    GZIP_MAGIC,
    LOGIT_OF_BYTE,
    Fields,
    Format,
    Progress,
    Start,
    check_scene,
    open_plain,
    quats_from_smallest_three,
    read_exact,
    remaining,
)
from splatview_viewer.scene.scene import sh0_of_rgb
from splatview_viewer.scene.turning import rotation_matrices

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"NGSP"
ANTIALIASED = 1
"""Bit of the header's flags."""
EXTENSIONS = 2
"""Bit of the header's flags."""

COORDINATE_SYSTEM = 0xADBE0003
"""Adobe's extension: the axes in which the scene is stored."""
ORBIT_CAMERA = 0xADBE0002
"""Adobe's extension: limits for the camera of a viewer."""
EXTENSIONS_LIMIT = 1 << 20
"""Bytes of extensions that are read after the attributes."""
SYSTEMS = [
    "RUB",
    "LDB",
    "RDB",
    "LUB",
    "RUB",
    "LDF",
    "RDF",
    "LUF",
    "RUF",
    "LFD",
    "RFD",
    "LFU",
    "RFU",
    "LBD",
    "RBD",
    "LBU",
    "RBU",
]
"""Directions of x, y and z, by the numbers of `CoordinateSystem` in `splat-types.h`; 0,
unspecified, is right-up-back."""
DIRECTIONS = {
    "L": (-1, 0, 0),
    "R": (1, 0, 0),
    "U": (0, -1, 0),
    "D": (0, 1, 0),
    "B": (0, 0, -1),
    "F": (0, 0, 1),
}
"""Left or right, up or down, back or front, in axes that point right, down and forward.
"""

SCALE_OF_BYTE = (np.arange(256) / 16 - 10).astype(np.float32)
SH0_OF_BYTE = ((np.arange(256) / 255 - 0.5) / 0.15).astype(np.float32)
SH_OF_BYTE = ((np.arange(256) - 128) / 128).astype(np.float32)


class _Head(NamedTuple):
    """The numbers of a header after its magic number."""

    version: int
    n: int
    """Number of Gaussians."""
    degree: int
    bits: int
    """Fractional bits of a position."""
    flags: int

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each attribute, in the order in which they are stored."""
        n = self.n
        position_size = 6 if self.version == 1 else 9
        rotation_size = 3 if self.version < 3 else 4
        return {
            "positions": n * position_size,
            "alphas": n,
            "colors": 3 * n,
            "scales": 3 * n,
            "rotations": n * rotation_size,
            "sh": 3 * SH_REST_COUNTS[self.degree] * n,
        }

    def check(self, legal: tuple[int, ...], packed: int) -> None:
        """Raise FileError for a header that no file of `packed` bytes can have.

        Args:
            legal: the versions of this container.
        """
        if self.version not in legal:
            raise FileError(
                f"SPZ: version {self.version}; this container is read in versions "
                f"{', '.join(map(str, legal))}"
            )
        if self.degree >= len(SH_REST_COUNTS):
            raise FileError(
                f"SPZ: spherical harmonics of degree {self.degree}; expected 0 to 4"
            )
        if self.bits > 24:
            raise FileError(
                f"SPZ: {self.bits} fractional bits; a position has 24 bits in all"
            )
        check_scene(self.n, SH_REST_COUNTS[self.degree], packed)


class _Content(NamedTuple):
    """An unpacked SPZ."""

    head: _Head
    planes: dict[str, np.ndarray]
    """Bytes of each attribute, (N,) uint8."""
    extensions: bytes


def read_spz(path: Path, progress: Progress) -> Fields:
    """Read the Gaussians of an SPZ file."""
    with open(path, "rb") as f:
        raw = read_exact(f, remaining(f), "the file")
    is_gzip = raw[:2] == GZIP_MAGIC
    content = _unpack_gzip(raw) if is_gzip else _unpack_zstd(raw)
    progress("unpacking", 0.8)
    head = content.head
    planes = content.planes
    n = head.n
    means = _read_means(head, planes["positions"])
    quats = _read_quats(head, planes["rotations"])
    harmonics = SH_OF_BYTE[planes["sh"].reshape(n, 3 * SH_REST_COUNTS[head.degree])]
    if head.flags & EXTENSIONS:
        extensions = content.extensions
    else:
        extensions = b""
    system, notes = _read_extensions(extensions)
    axes = np.array([DIRECTIONS[letter] for letter in SYSTEMS[system]], np.float64).T
    rotation, sh_rotation = rotation_matrices(axes, head.degree)
    turned_harmonics = harmonics @ sh_rotation.astype(np.float32)
    fields = Fields(
        means=means @ axes.T.astype(np.float32),
        quats=quats @ rotation.astype(np.float32),
        scales=SCALE_OF_BYTE[planes["scales"]].reshape(n, 3),
        opacities=LOGIT_OF_BYTE[planes["alphas"]],
        sh0=SH0_OF_BYTE[planes["colors"]].reshape(n, 3),
        shN=turned_harmonics.reshape(n, SH_REST_COUNTS[head.degree], 3),
    )
    progress("unpacking", 1.0)
    is_antialiased = bool(head.flags & ANTIALIASED)
    return fields.checked(mode=is_antialiased, customary_ups=["-y"], notes=notes)


def _read_means(head: _Head, plane: np.ndarray) -> np.ndarray:
    """Return positions (N, 3) float32.

    They are float16 in version 1, otherwise fixed point of 24 bits.
    """
    if head.version == 1:
        return plane.view("<f2").astype(np.float32).reshape(head.n, 3)
    # As the upper bytes of 32 bits, so that the shift back extends the sign.
    wide = np.zeros((3 * head.n, 4), np.uint8)
    wide[:, 1:] = plane.reshape(-1, 3)
    means = (wide.view("<i4") >> 8) / np.float32(1 << head.bits)
    return means.astype(np.float32).reshape(head.n, 3)


def _read_quats(head: _Head, plane: np.ndarray) -> np.ndarray:
    """Return quaternions (N, 4), w first."""
    if head.version < 3:
        # x y z of a unit quaternion whose w is not negative.
        components = plane.reshape(head.n, 3) / np.float32(127.5) - np.float32(1)
        return quats_from_smallest_three(np.zeros(head.n, np.uint8), components)
    # 2 bits name the largest of x y z w; the others follow, the last one lowest: a sign
    # and 9 bits each.
    packed = plane.view("<u4").astype(np.uint32, copy=False)[:, None]
    shifted = packed >> np.array([20, 10, 0], np.uint32)
    sizes = (shifted & 511) / np.float32(511 * 2**0.5)
    components = np.where(shifted & 512, -sizes, sizes)
    xyzw = quats_from_smallest_three(shifted[:, 0] >> 10, components)
    return np.roll(xyzw, 1, axis=1)


def _read_extensions(data: bytes) -> tuple[int, tuple[str, ...]]:
    """Return the axes that extensions name, as an index of `SYSTEMS`, and notes.

    As in the reference, the first extension that names axes counts, and a truncated one
    does not.
    """
    system: int | None = None
    notes: tuple[str, ...] = ()
    unknown: set[str] = set()
    offset = 0
    while offset + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, offset)
        content = data[offset + 8 : offset + 8 + size]
        if len(content) < size:
            break
        offset += 8 + size
        if kind == COORDINATE_SYSTEM and size >= 4:
            system_id = int.from_bytes(content[:4], "little")
            if system_id >= len(SYSTEMS):
                notes += (
                    f"SPZ: coordinate system {system_id} is unknown; known are 1 to "
                    f"{len(SYSTEMS) - 1}: read as right-up-back",
                )
            elif system is None:
                system = system_id
        elif kind not in (COORDINATE_SYSTEM, ORBIT_CAMERA):
            unknown.add(f"{kind:#010x}")
    if unknown:
        names = ", ".join(sorted(unknown)[:8])
        notes += (f"SPZ extensions in this file are ignored: {names}",)
    return system or 0, notes


def _unpack_gzip(raw: bytes) -> _Content:
    """Unpack an SPZ of version 1 to 3, all of it in gzip. Raises FileError."""
    unpacker = zlib.decompressobj(31)
    start = unpacker.decompress(raw, 16)
    if len(start) < 16 or start[:4] != MAGIC:
        raise FileError("gzip: it holds neither an SPZ, a .splat nor a PLY")
    head = _Head._make(struct.unpack_from("<IIBBB", start, 4))
    head.check((1, 2, 3, 4), len(raw))
    total = sum(head.sizes.values())
    data = unpacker.decompress(unpacker.unconsumed_tail, total + EXTENSIONS_LIMIT)
    if len(data) < total:
        raise FileError(
            f"SPZ: truncated: {head.n:,} Gaussians take {total:,} bytes, {len(data):,} "
            "are there"
        )
    planes: dict[str, np.ndarray] = {}
    offset = 0
    for name, size in head.sizes.items():
        planes[name] = np.frombuffer(data, np.uint8, size, offset)
        offset += size
    return _Content(head, planes, data[total:])


def _unpack_zstd(raw: bytes) -> _Content:
    """Unpack an SPZ of version 4, whose attributes are streams of zstd.

    Raises FileError.
    """
    if len(raw) < 32 or raw[:4] != MAGIC:
        raise FileError("SPZ: the file starts neither as gzip nor with 'NGSP'")
    *values, count, table = struct.unpack_from("<IIBBBBI", raw, 4)
    head = _Head._make(values)
    head.check((4,), len(raw))
    _import_zstandard()
    sizes = {name: size for name, size in head.sizes.items() if size}
    if count != len(sizes) or table < 32 or table + 16 * count > len(raw):
        raise FileError(
            f"SPZ: {count} streams at byte {table}; {len(sizes)} streams within "
            f"{len(raw):,} bytes are needed"
        )
    planes = dict.fromkeys(head.sizes, np.zeros(0, np.uint8))
    start = table + 16 * count
    for i, (name, size) in enumerate(sizes.items()):
        packed, unpacked = struct.unpack_from("<QQ", raw, table + 16 * i)
        if unpacked != size or packed > len(raw) - start:
            raise FileError(
                f"SPZ: stream {name!r} claims {packed:,} bytes packed and {unpacked:,} "
                f"unpacked; {head.n:,} Gaussians need {size:,} and the file has "
                f"{len(raw) - start:,} left"
            )
        data = _unpack_stream(raw[start : start + packed], name, size)
        planes[name] = np.frombuffer(data, np.uint8)
        start += packed
    return _Content(head, planes, raw[32:table])


def _import_zstandard() -> Any:
    try:
        import zstandard  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise FileError(
            "SPZ: version 4 needs zstd: pip install zstandard, or save as version 3"
        ) from None
    return zstandard


def _unpack_stream(stream: bytes, name: str, size: int) -> bytes:
    """Unpack the stream of an attribute of `size` bytes. Raises FileError."""
    zstandard = _import_zstandard()
    try:
        with zstandard.ZstdDecompressor().stream_reader(stream) as reader:
            data = reader.read(size)
    except (zstandard.ZstdError, MemoryError) as e:
        raise FileError(f"SPZ: stream {name!r} is damaged: {e}") from None
    if len(data) != size:
        raise FileError(
            f"SPZ: stream {name!r} is truncated: {len(data):,} of {size:,} bytes"
        )
    return data


def _is_spz(start: Start) -> bool:
    return start.head.startswith((MAGIC, GZIP_MAGIC))


SPZ = Format(
    "spz",
    (".spz",),
    "Niantic SPZ",
    _is_spz,
    read_spz,
)


# -- .splat ----------------------------------------------------------------------------

RECORD = np.dtype(
    [
        ("position", "<f4", 3),
        ("scale", "<f4", 3),
        ("rgba", "u1", 4),
        ("rotation", "u1", 4),
    ]
)


def read_splat(path: Path, progress: Progress) -> Fields:
    """Read the Gaussians of a .splat file."""
    with open_plain(path, progress) as (f, packed):
        size = remaining(f)
        if size == 0 or size % RECORD.itemsize:
            raise FileError(
                f".splat: {size:,} bytes are not a multiple of {RECORD.itemsize}, "
                "which a Gaussian takes"
            )
        check_scene(size // RECORD.itemsize, 0, packed)
        records = np.frombuffer(read_exact(f, size, "the Gaussians"), RECORD)
    progress("unpacking Gaussians", 0.5)
    # A scale of 0 is legal (a flat Gaussian): the smallest normal number keeps its
    # logarithm finite.
    scales = records["scale"]
    scales = np.log(np.where(scales == 0, np.finfo(np.float32).tiny, scales))
    fields = Fields(
        means=records["position"],
        quats=(records["rotation"].astype(np.float32) - 128) / 128,
        scales=scales,
        opacities=LOGIT_OF_BYTE[records["rgba"][:, 3]],
        sh0=sh0_of_rgb(records["rgba"][:, :3] / np.float32(255)),
        shN=np.zeros((len(records), 0, 3), np.float32),
    )
    progress("unpacking Gaussians", 1.0)
    return fields.checked(customary_ups=["-y"])


def _is_packed_splat(start: Start) -> bool:
    return start.name.lower().endswith(".splat.gz")


SPLAT = Format(
    "splat",
    (".splat", ".splat.gz"),
    "antimatter15's 32-byte records",
    _is_packed_splat,
    read_splat,
    by_suffix=True,
)
