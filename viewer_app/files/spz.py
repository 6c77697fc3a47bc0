"""Niantic's .spz: planes of quantised attributes, gzipped (versions 1 to 3) or in zstd streams (version 4).

Layout and constants of nianticlabs/spz, `load-spz.cc`. SPZ stores right-up-back axes; scenes here are
right-down-forward, so y and z change sign, and with them two parts of the quaternion and the coefficients of
those spherical harmonics that are odd in them.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from splatview.ipc.kinds import SH_REST
from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files.bounds import check_scene
from splatview.viewer_app.files.common import (
    LOGIT_OF_BYTE,
    Fields,
    Progress,
    quats_from_smallest_three,
    read_exact,
    remaining,
)

if TYPE_CHECKING:
    from splatview.viewer_app.scene import GaussianScene

MAGIC = b"NGSP"
ANTIALIASED, EXTENSIONS = 1, 2
"""Bits of the header's flags."""

# How Y_k(x, -y, -z) relates to Y_k(x, y, z) for k = 1 .. 24, in gsplat's order:
# y z x | xy yz zz xz xx-yy | y(3xx-yy) xyz y(4zz..) z(2zz..) x(4zz..) z(xx-yy) x(xx-3yy)
# | xy(xx-yy) yz(3xx-yy) xy(7zz-1) yz(7zz-3) zz(35zz-30) xz(7zz-3) (xx-yy)(7zz-1) xz(xx-3yy) xxxx-6xxyy+yyyy
SH_SIGNS = np.array([-1, -1, 1, -1, 1, 1, -1, 1, -1, 1, -1, -1, 1, -1, 1,
                     -1, 1, -1, 1, 1, -1, 1, -1, 1], np.float32)
SCALE_OF_BYTE = (np.arange(256) / 16 - 10).astype(np.float32)
SH0_OF_BYTE = ((np.arange(256) / 255 - 0.5) / 0.15).astype(np.float32)
SH_OF_BYTE = ((np.arange(256) - 128) / 128).astype(np.float32)


def read_spz(f: BinaryIO, progress: Progress) -> GaussianScene:
    """The Gaussians of an SPZ file, positioned at its start."""
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


def _read_gzip(raw: bytes, progress: Progress) -> GaussianScene:
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
        # A max_length of 0 would mean no limit.
        data = unpacker.decompress(unpacker.unconsumed_tail, total) if total else b""
    except zlib.error as e:
        raise FileError(f"SPZ: the gzip stream is damaged: {e}") from None
    if len(data) < total:
        raise FileError(f"SPZ: truncated: {n:,} Gaussians take {total:,} bytes, {len(data):,} are there")
    parts, at = {}, 0
    for name, size in sizes.items():
        parts[name] = np.frombuffer(data, np.uint8, size, at)
        at += size
    return _decode(parts, n, (version, degree, bits, flags), progress)


def _read_zstd(raw: bytes, progress: Progress) -> GaussianScene:
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
    return _decode(parts, n, (version, degree, bits, flags), progress)


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


def _decode(parts: dict[str, np.ndarray], n: int, header: tuple[int, int, int, int],
            progress: Progress) -> GaussianScene:
    version, degree, bits, flags = header
    if version == 1:
        means = parts["positions"].view("<f2").astype(np.float32).reshape(n, 3)
    else:  # 24 bits, signed: as the upper bytes of 32 bits, the shift back extends the sign
        wide = np.zeros((3 * n, 4), np.uint8)
        wide[:, 1:] = parts["positions"].reshape(-1, 3)
        means = ((wide.view("<i4") >> 8) / np.float32(1 << bits)).astype(np.float32).reshape(n, 3)
    k = SH_REST[degree]
    sh = SH_OF_BYTE[parts["sh"].reshape(n, k, 3)] * SH_SIGNS[:k, None]
    progress("unpacking", 0.9)
    notes = []
    if flags & EXTENSIONS:
        notes.append("SPZ extensions in this file are ignored")
    fields = Fields(means=means * np.array([1, -1, -1], np.float32),
                    quats=_rotations(parts["rotations"], n, version) * np.array([1, 1, -1, -1], np.float32),
                    scales=SCALE_OF_BYTE[parts["scales"]].reshape(n, 3),
                    opacities=LOGIT_OF_BYTE[parts["alphas"]],
                    sh0=SH0_OF_BYTE[parts["colors"]].reshape(n, 3), shN=sh)
    progress("unpacking", 1.0)
    return fields.scene(mode=bool(flags & ANTIALIASED), notes=tuple(notes))


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
