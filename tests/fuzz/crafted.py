"""Small files whose headers claim much, or are made to be slow to look up: damage hardly ever finds these.

A function takes a seed of its target.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from functools import cache

from support import scene_files as w


def wide_and_deep(seed: bytes) -> dict[str, bytes]:
    """Return JSON that is slow to look up, or nested."""
    document = json.loads(seed)
    made = {f"{n} levels": b'{"a": ' + b"[" * n + b"]" * n + b"}" for n in (200, 900, 980, 100_000)}
    made |= {f"{key}, {n} levels": json.dumps({**document, key: "@"}).replace('"@"', "[" * n + "]" * n).encode()
             for key in document for n in (400, 980)}
    many = {f"key {i:06}": i for i in range(30_000)}
    return made | {"30,000 keys": json.dumps(document | many).encode(), "nested names": b'{"a":' * 100_000}


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


def zip_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


ENDLESS = (b"\x80\x02](K\x01K\x01\x86q\x00" + b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(60))
           + b"}h\x3cK\x01se.")
"""A small pickle with a key that is hashed without end: a tower of values that each hold the one before twice."""
