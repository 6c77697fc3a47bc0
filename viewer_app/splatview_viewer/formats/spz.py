"""Niantic's .spz: planes of quantised attributes, gzipped (versions 1 to 3) or in zstd streams (version 4).

Layout and constants of nianticlabs/spz, `load-spz.cc` and `splat-extensions.cc`. SPZ stores right-up-back axes
unless an extension names others.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.bounds import check_scene
from splatview_viewer.formats.common import (
    LOGIT_OF_BYTE,
    Fields,
    Format,
    Progress,
    quats_from_smallest_three,
    read_exact,
    remaining,
)
from splatview_viewer.scene.turning import turns

if TYPE_CHECKING:
    from pathlib import Path


MAGIC = b"NGSP"
ANTIALIASED, EXTENSIONS = 1, 2
"""Bits of the header's flags."""

COORDINATE_SYSTEM = 0xADBE0003
"""The extension whose content is a number into `SYSTEMS`."""
EXTENSIONS_LIMIT = 1 << 20
"""Bytes of extensions that are read behind the attributes."""
SYSTEMS = "RUB LDB RDB LUB RUB LDF RDF LUF RUF LFD RFD LFU RFU LBD RBD LBU RBU".split()
"""Where x, y and z point, `CoordinateSystem` in `splat-types.h`: left or right, down or up, back or forward."""
DIRECTIONS = {"L": (-1, 0, 0), "R": (1, 0, 0), "U": (0, -1, 0), "D": (0, 1, 0), "B": (0, 0, -1), "F": (0, 0, 1)}

SCALE_OF_BYTE = (np.arange(256) / 16 - 10).astype(np.float32)
SH0_OF_BYTE = ((np.arange(256) / 255 - 0.5) / 0.15).astype(np.float32)
SH_OF_BYTE = ((np.arange(256) - 128) / 128).astype(np.float32)


def read(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of an SPZ file."""
    with open(path, "rb") as f:
        raw = read_exact(f, remaining(f), "the file")
    return (_read_gzip if raw[:2] == b"\x1f\x8b" else _read_zstd)(raw, progress)


def _sections(n: int, k: int, version: int) -> dict[str, int]:
    """Bytes of each attribute, in the order in which they are stored."""
    return {"positions": n * (6 if version == 1 else 9), "alphas": n, "colors": 3 * n, "scales": 3 * n,
            "rotations": n * (3 if version < 3 else 4), "sh": 3 * k * n}


def _check(version: int, degree: int, bits: int, legal: tuple[int, ...]) -> None:
    if version not in legal:
        raise FileError(f"SPZ: version {version}; this container is read in versions "
                        f"{', '.join(map(str, legal))}")
    if degree >= len(SH_REST):
        raise FileError(f"SPZ: spherical harmonics of degree {degree}; legal are 0 to 4")
    if bits > 24:
        raise FileError(f"SPZ: {bits} fractional bits; a position has 24 bits in all")


def _read_gzip(raw: bytes, progress: Progress) -> Fields:
    unpacker = zlib.decompressobj(31)
    try:
        head = unpacker.decompress(raw, 16)
        if len(head) < 16 or head[:4] != MAGIC:
            raise FileError("SPZ: no SPZ in this gzip file: it does not start with 'NGSP'")
        version, n, degree, bits, flags, _ = struct.unpack("<IIBBBB", head[4:])
        _check(version, degree, bits, (1, 2, 3))
        sizes = _sections(n, SH_REST[degree], version)
        total = sum(sizes.values())
        check_scene(n, SH_REST[degree], len(raw))
        progress("unpacking", 0.1)
        data = unpacker.decompress(unpacker.unconsumed_tail, total + EXTENSIONS_LIMIT)
    except zlib.error as e:
        raise FileError(f"SPZ: the gzip stream is damaged: {e}") from None
    if len(data) < total:
        raise FileError(f"SPZ: truncated: {n:,} Gaussians take {total:,} bytes, {len(data):,} are there")
    parts, at = {}, 0
    for name, size in sizes.items():
        parts[name] = np.frombuffer(data, np.uint8, size, at)
        at += size
    return _decode(parts, n, (version, degree, bits, flags), data[total:], progress)


def _read_zstd(raw: bytes, progress: Progress) -> Fields:
    if len(raw) < 32 or raw[:4] != MAGIC:
        raise FileError("SPZ: the file starts neither as gzip nor with 'NGSP'")
    version, n, degree, bits, flags, count, at = struct.unpack_from("<IIBBBBI", raw, 4)
    _check(version, degree, bits, (4,))
    sizes = {name: size for name, size in _sections(n, SH_REST[degree], version).items() if size}
    if count != len(sizes) or at < 32 or at + 16 * count > len(raw):
        raise FileError(f"SPZ: {count} streams at byte {at}; {len(sizes)} streams within {len(raw):,} bytes "
                        "are needed")
    check_scene(n, SH_REST[degree], len(raw))
    parts = {"sh": np.empty(0, np.uint8)}
    start = at + 16 * count
    for i, (name, size) in enumerate(sizes.items()):
        packed, unpacked = struct.unpack_from("<QQ", raw, at + 16 * i)
        if unpacked != size or packed > len(raw) - start:
            raise FileError(f"SPZ: stream {name!r} claims {packed:,} bytes packed and {unpacked:,} unpacked; "
                            f"{n:,} Gaussians need {size:,} and the file has {len(raw) - start:,} left")
        parts[name] = np.frombuffer(_zstd(raw[start:start + packed], size, name), np.uint8)
        start += packed
        progress("unpacking", 0.8 * (i + 1) / count)
    for name in _sections(n, 0, version):
        parts.setdefault(name, np.empty(0, np.uint8))
    return _decode(parts, n, (version, degree, bits, flags), raw[32:at], progress)


def _zstd(packed: bytes, size: int, name: str) -> bytes:
    try:
        import zstandard  # pyright: ignore[reportMissingImports]  (optional: only version 4 needs it)
    except ImportError:
        raise FileError("SPZ: version 4 needs zstd: pip install zstandard, or save as version 3") from None
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            data = reader.read(size)
    except (zstandard.ZstdError, MemoryError) as e:
        raise FileError(f"SPZ: stream {name!r} is damaged: {e}") from None
    if len(data) != size:
        raise FileError(f"SPZ: stream {name!r} is truncated: {len(data):,} of {size:,} bytes")
    return data


def _axes(extensions: bytes, notes: list[str]) -> np.ndarray:
    """Return what makes the positions right-down-forward (3, 3); add to `notes` what is ignored."""
    system, ignored, at = None, set(), 0
    while at < len(extensions):
        kind, size = struct.unpack_from("<II", extensions.ljust(at + 8, b"\0"), at)
        at += 8
        if at + size > len(extensions):
            raise FileError(f"SPZ: extension {kind:#010x} is truncated: it ends at byte {at + size:,} of "
                            f"{len(extensions):,}")
        if kind != COORDINATE_SYSTEM:
            ignored.add(f"{kind:#010x}")
        elif system is None:
            system = int.from_bytes(extensions[at:at + min(size, 4)], "little")
        at += size
    if ignored:
        notes.append(f"SPZ extensions in this file are ignored: {', '.join(sorted(ignored)[:8])}")
    if system is not None and not 0 < system < len(SYSTEMS):
        notes.append(f"SPZ: coordinate system {system} is unknown; legal are 1 to {len(SYSTEMS) - 1}: read as RUB")
        system = None
    return np.array([DIRECTIONS[letter] for letter in SYSTEMS[system or 0]], np.float64).T


def _decode(parts: dict[str, np.ndarray], n: int, header: tuple[int, int, int, int], extensions: bytes,
            progress: Progress) -> Fields:
    version, degree, bits, flags = header
    if version == 1:
        means = parts["positions"].view("<f2").astype(np.float32).reshape(n, 3)
    else:  # 24 bits, signed: as the upper bytes of 32 bits, the shift back extends the sign
        wide = np.zeros((3 * n, 4), np.uint8)
        wide[:, 1:] = parts["positions"].reshape(-1, 3)
        means = ((wide.view("<i4") >> 8) / np.float32(1 << bits)).astype(np.float32).reshape(n, 3)
    k = SH_REST[degree]
    sh = SH_OF_BYTE[parts["sh"].reshape(n, k, 3)]
    progress("unpacking", 0.9)
    notes: list[str] = []
    axes = _axes(extensions if flags & EXTENSIONS else b"", notes)
    fields = Fields(means=means, quats=_rotations(parts["rotations"], n, version),
                    scales=SCALE_OF_BYTE[parts["scales"]].reshape(n, 3),
                    opacities=LOGIT_OF_BYTE[parts["alphas"]],
                    sh0=SH0_OF_BYTE[parts["colors"]].reshape(n, 3), shN=sh)
    progress("unpacking", 1.0)
    turn, sh_turn = (matrix.astype(np.float32) for matrix in turns(axes, degree))
    fields.means, fields.quats = fields.means @ axes.T.astype(np.float32), fields.quats @ turn
    fields.shN = (fields.shN.reshape(n, 3 * k) @ sh_turn).reshape(n, k, 3)
    return fields.checked(mode=bool(flags & ANTIALIASED), notes=tuple(notes))


def _rotations(data: np.ndarray, n: int, version: int) -> np.ndarray:
    """Quaternions (N, 4) w x y z in SPZ's own axes."""
    if version < 3:  # x y z of a unit quaternion whose w is not negative
        return quats_from_smallest_three(np.zeros(n, np.uint8),
                                         data.reshape(n, 3) / np.float32(127.5) - np.float32(1))
    # 2 bits name the largest of x y z w; the others follow, the last one lowest: a sign and 9 bits each.
    v = data.view("<u4").astype(np.uint32, copy=False)
    rest = np.empty((n, 3), np.float32)
    for i in range(3):
        field = v >> np.uint32(20 - 10 * i)
        size = (field & 511) / np.float32(511 * 2 ** 0.5)
        rest[:, i] = np.where(field & 512, -size, size)
    return np.roll(quats_from_smallest_three(v >> 30, rest), 1, axis=1)


SPZ = Format("spz", (".spz",), "Niantic SPZ", lambda start: start.head.startswith((MAGIC, b"\x1f\x8b")), read)
