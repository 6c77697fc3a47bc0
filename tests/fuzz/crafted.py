"""Small files whose headers claim much, or are made to be slow to look up: damage hardly ever finds these.

A function takes a seed of its target.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from functools import cache
from typing import Any

from support import scene_files as w

MANY = 30_000
LARGE = (0, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)


def _keys(count: int = MANY) -> dict[str, int]:
    return {f"key {i:06}": i for i in range(count)}


def wide_and_deep(seed: bytes) -> dict[str, bytes]:
    """Return JSON that is slow to look up, or nested."""
    document = json.loads(seed)
    made = {f"{n} levels": b'{"a": ' + b"[" * n + b"]" * n + b"}" for n in (200, 900, 980, 100_000)}
    made |= {f"{key}, {n} levels": json.dumps({**document, key: "@"}).replace('"@"', "[" * n + "]" * n).encode()
             for key in document for n in (400, 980)}
    return made | {"30,000 keys": json.dumps({**document, **_keys()}).encode(), "nested names": b'{"a":' * 100_000}


def counts_at(seed: bytes, *places: int) -> dict[str, bytes]:
    """Return a binary file with other counts of 64 bits at each of the places."""
    return {f"{at}: {n:#x}": seed[:at] + struct.pack("<Q", n) + seed[at + 8:] for at in places for n in LARGE}


# -- scenes ------------------------------------------------------------------------------------------------------------

NAMES = list(w.ply_columns(w.truth(1, degree=1)))
PACKED = [f"{m}_{s}{a}" for s in ("", "scale_") for m in ("min", "max") for a in "xyz"]


def ply(count: str = "1", *, form: str = "binary_little_endian", before: str = "",
        body: bytes = bytes(400)) -> bytes:
    properties = "".join(f"property float {name}\n" for name in NAMES)
    return f"ply\nformat {form} 1.0\n{before}element vertex {count}\n{properties}end_header\n".encode() + body


def compressed(chunks: str, count: str) -> bytes:
    words = "".join(f"property uint packed_{word}\n" for word in ("position", "rotation", "scale", "color"))
    bounds = "".join(f"property float {name}\n" for name in PACKED)
    return (f"ply\nformat binary_little_endian 1.0\nelement chunk {chunks}\n{bounds}element vertex {count}\n{words}"
            "end_header\n").encode() + bytes(600)


def spzs(seed: bytes) -> dict[str, bytes]:
    made = {}
    for n in (2**32 - 1, 1_000_000, 3_000_000):
        head = struct.pack("<4sIIBBBB", b"NGSP", 3, n, 3, 12, 0, 0)
        made[f"gzip, {n} Gaussians"] = gzip.compress(head)
        head = struct.pack("<4sIIBBBBI12x", b"NGSP", 4, n, 3, 12, 0, 6, 32)
        made[f"zstd, {n} Gaussians"] = head + struct.pack("<QQ", 2**64 - 1, n) * 6 + bytes(100)
    head = struct.pack("<4sIIBBBB", b"NGSP", 3, 3_000_000, 3, 12, 0, 0)
    return made | {"3 million zeros": gzip.compress(head + bytes(195_000_000))}


@cache
def plane_of(width: int, height: int) -> bytes:
    """A WebP of one colour: 34 bytes, whatever its size, which is 14 and 14 bits behind the signature (VP8L)."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (1, 1)).save(out, "WEBP", lossless=True, method=0)
    data = out.getvalue()
    at = data.index(b"VP8L") + 9
    (bits,) = struct.unpack_from("<I", data, at)
    return data[:at] + struct.pack("<I", bits >> 28 << 28 | height - 1 << 14 | width - 1) + data[at + 4:]


def sog(count: Any, plane: bytes, palette: bytes | None = None, *, pack: int = zipfile.ZIP_DEFLATED,
        extra: dict[str, Any] | None = None) -> bytes:
    """A SOG whose planes are all one file."""
    values = {"codebook": [0.0] * 256, "files": ["a"]}
    meta: dict[str, Any] = {"version": 2, "count": count, "quats": {"files": ["a"]}, "scales": values, "sh0": values,
                            "means": {"mins": [0] * 3, "maxs": [1] * 3, "files": ["a", "a"]}, **(extra or {})}
    if palette is not None:
        meta["shN"] = {"codebook": [0.0] * 256, "bands": 3, "files": ["b", "a"]}
    return zip_of({"meta.json": json.dumps(meta).encode(), "a": plane, "b": palette or b""}, pack)


def zip_of(files: dict[str, bytes], pack: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", pack) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def sogs(seed: bytes) -> dict[str, bytes]:
    made = {f"a count of {c}": sog(c, plane_of(64, 64)) for c in (-1, 2**26, 2**63, 1.5, True, None, "5")}
    for side in (1024, 16383):
        made[f"{side}^2 Gaussians with harmonics"] = sog(side * side, plane_of(side, side), plane_of(960, 1024))
    made["large planes for one Gaussian"] = sog(1, plane_of(16383, 16383))
    made["a large palette"] = sog(1, plane_of(1, 1), plane_of(960, 16383))
    made["30,000 keys"] = sog(1, plane_of(1, 1), extra=_keys())
    small = zip_of({"meta.json": b"{}", "a": b"a"})
    start, end = small.index(b"PK\x01\x02"), small.rindex(b"PK\x05\x06")
    for size in (2**31, 2**32 - 1):
        made[f"sizes of {size}"] = small[:start + 20] + struct.pack("<II", size, size) + small[start + 28:]
        made[f"a directory of {size}"] = small[:end + 12] + struct.pack("<I", size) + small[end + 16:]
    return made


def _tower(levels: int) -> bytes:
    """Operations that leave `levels` + 1 values on the stack, each of which holds the one before twice."""
    return b"K\x01K\x01\x86q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(levels))


ENDLESS = b"\x80\x02](" + _tower(60) + b"}h\x3cK\x01se."
"""A small pickle with a key that is hashed without end."""


def pictures(seed: bytes) -> dict[str, bytes]:
    """Of a JPEG."""
    at = seed.index(b"\xff\xc0") + 5
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0"
    return {
        **{f"a JPEG of {side} pixels": seed[:at] + struct.pack(">HH", side, side) + seed[at + 4:]
           for side in (0, 1, 10_000, 65_535)},
        "30,000 segments": seed[:2] + b"\xff\xfe\x00\x04ab" * MANY + seed[2:],
        "EXIF that refers to itself": seed[:2] + b"\xff\xe1" + struct.pack(">H", 30) + exif + seed[2:],
        **{f"a WebP of {side} pixels": plane_of(side, side) for side in (4000, 11_000, 16_383)}}


def npys(seed: bytes) -> dict[str, bytes]:
    fields = ", ".join(f"('f{i:05}', '<f4')" for i in range(60_000))
    headers = {"60,000 fields": f"[{fields}], 'fortran_order': False, 'shape': (1,)"} | {
        f"a shape of {shape[:24]}": f"'<f4', 'fortran_order': False, 'shape': ({shape})"
        for shape in ("-1, 4", f"{2**40}, 4, 3", f"{2**63}, 4, 3", "65536, " * 8, "1, " * MANY, "0, 99999999999999, 3")}
    return {name: b"\x93NUMPY\x02\0" + struct.pack("<I", len(text) + 11) + b"{'descr': " + text.encode() + b"}"
            + bytes(100) for name, text in headers.items()}
