"""Crafted inputs: small files whose headers claim much, or are made to be slow to look up.

Mutation hardly ever finds these. Each format has counts that no number type holds, tens of thousands of properties,
keys and entries, and planes, palettes and streams that decode to far more than the file. `fuzz.run` runs them within
limits of CPU time and memory: generous for linear readers, too small for quadratic ones.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from support import scene_files as w

from fuzz import SEEDS, crafted
from fuzz.demo_files import TRANSFORMS, colmap_files
from fuzz.files import CAMERAS, INDEX_OF, T

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTS = ["-1", "0", "1", str(2**31), str(2**32 - 1), str(2**40), str(2**63), str(10**19), "9" * 4299,
          "1" + "0" * 4300, "1_000", "+5", " 7", "\u0663", "1e9", "nan", "inf", "-inf", "0x10", "1.5", "", "\0", "True"]
"""What a text may have in place of a count."""
NUMBERS: list[Any] = [-1, 2**31, 2**40, 2**63, 10**19, 10**4000, 1e300, 1.5, True, None, "5", [], {}, float("nan"),
                      float("inf"), -float("inf")]
"""What JSON may have in place of a count."""
DEEP = b"[" * 100_000
MANY = 30_000


def _json_counts(document: Any, *path: Any) -> Iterator[tuple[str, bytes]]:
    """The document with each of NUMBERS at a place in it, and with 10^4300, which json refuses."""
    for value in [*NUMBERS, "@"]:
        made = json.loads(json.dumps(document))
        holder = made
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value
        yield f"{path[-1]} {str(value)[:24]}", json.dumps(made).replace('"@"', "1" + "0" * 4300).encode()


def _keys(count: int = MANY) -> dict[str, int]:
    return {f"key {i:06}": i for i in range(count)}


# -- scenes ------------------------------------------------------------------------------------------------------------

NAMES = list(w.ply_columns(T))
PACKED = [f"{m}_{s}{a}" for s in ("", "scale_") for m in ("min", "max") for a in "xyz"]


def ply(count: str = "1", *, form: str = "binary_little_endian", before: str = "", more: str = "",
         body: bytes = bytes(400)) -> bytes:
    properties = "".join(f"property float {name}\n" for name in NAMES)
    return f"ply\nformat {form} 1.0\n{before}element vertex {count}\n{properties}{more}end_header\n".encode() + body


def compressed(chunks: str, count: str, sh: str = "") -> bytes:
    words = "".join(f"property uint packed_{word}\n" for word in ("position", "rotation", "scale", "color"))
    bounds = "".join(f"property float {name}\n" for name in PACKED)
    return (f"ply\nformat binary_little_endian 1.0\nelement chunk {chunks}\n{bounds}element vertex {count}\n{words}{sh}"
            "end_header\n").encode() + bytes(600)


@crafted("scene_ply")
def _plys() -> dict[str, bytes]:
    made = {}
    for count in COUNTS:
        shown = count[:24]
        for form in ("ascii", "binary_little_endian", "binary_big_endian"):
            made[f"{form}, {shown} Gaussians"] = ply(count, form=form)
            made[f"{form}, {shown} before"] = ply(form=form, before=f"element a {count}\nproperty double x\n")
        made[f"{shown} chunks"] = compressed(count, "300")
        made[f"{shown} packed"] = compressed(count, count)
        made[f"{shown} harmonics"] = compressed("2", "1", f"element sh {count}\nproperty uchar f_rest_0\n")
    lines = {
        "60,000 properties": "".join(f"property char {i:06}\n" for i in range(60_000)),
        "the same property": "property char a\n" * 60_000,
        "f_rest_* without end": "".join(f"property char f_rest_{i}\n" for i in range(40_000)),
    }
    for name, text in lines.items():
        made[name] = ply().replace(b"end_header", text.encode("utf-8", "surrogateescape") + b"end_header")
    made["60,000 elements"] = ply(before="".join(f"element e{i} 0\n" for i in range(60_000)))
    made["100,000 comments"] = ply(before="comment \n" * 100_000)
    made["no end"] = b"ply\n" + b"comment x\n" * 300_000
    return made


@crafted("scene_splat")
def _splats() -> dict[str, bytes]:
    return {"33 bytes": bytes(33), "zeros": bytes(32_000), "ones": b"\xff" * 32_000}


@crafted("scene_spz")
def _spzs() -> dict[str, bytes]:
    made = {}
    for n in (2**31, 2**32 - 1, 1_000_000, 3_000_000):
        for version in (1, 2, 3):
            head = struct.pack("<4sIIBBBB", b"NGSP", version, n, 3, 12, 0, 0)
            made[f"gzip {version}, {n} Gaussians"] = gzip.compress(head)
        head = struct.pack("<4sIIBBBBI12x", b"NGSP", 4, n, 3, 12, 0, 6, 32)
        for size in (n, 2**64 - 1):
            made[f"zstd, {n} Gaussians of {size}"] = head + struct.pack("<QQ", size, size) * 6 + bytes(100)
    head = struct.pack("<4sIIBBBB", b"NGSP", 3, 3_000_000, 3, 12, 0, 0)
    made["3 million zeros"] = gzip.compress(head + bytes(195_000_000))
    return made


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


def _odd_zips(first: str) -> Iterator[tuple[str, bytes]]:
    """Zips whose directories are wrong, with an entry that makes them one of a format."""
    yield "30,000 entries", zip_of({first: b"{}", **{f"{i}": b"" for i in range(MANY)}})
    small = zip_of({first: b"{}", "a": b"a"})
    end = small.rindex(b"PK\x05\x06")
    start = small.index(b"PK\x01\x02")
    entries = small[start:end] * 50_000
    yield "a directory of 5 MB", small[:start] + entries + struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, len(entries), start, 0)
    for size in (2**31, 2**32 - 1):
        yield f"sizes of {size}", small[:start + 20] + struct.pack("<II", size, size) + small[start + 28:]
        yield f"a directory of {size}", small[:end + 12] + struct.pack("<I", size) + small[end + 16:]


@crafted("scene_sog")
def _sogs() -> dict[str, bytes]:
    made = {f"a count of {str(c)[:24]}": sog(c, plane_of(64, 64)) for c in NUMBERS}
    for side in (1024, 4096, 16383):
        made[f"{side}^2 Gaussians"] = sog(side * side, plane_of(side, side))
        made[f"{side}^2 Gaussians with harmonics"] = sog(side * side, plane_of(side, side), plane_of(960, 1024))
    made["large planes for one Gaussian"] = sog(1, plane_of(16383, 16383))
    made["a large palette"] = sog(1, plane_of(1, 1), plane_of(960, 16383))
    made["30,000 keys"] = sog(1, plane_of(1, 1), extra=_keys())
    made["nested"] = zip_of({"meta.json": DEEP})
    made["a plane of zeros"] = zip_of({"meta.json": sog_meta(), "a": bytes(300 << 20)}, zipfile.ZIP_DEFLATED)
    made["meta.json of zeros"] = zip_of({"meta.json": bytes(64 << 20)}, zipfile.ZIP_DEFLATED)
    return {**made, **dict(_odd_zips("meta.json"))}


def sog_meta() -> bytes:
    with zipfile.ZipFile(io.BytesIO(sog(1, plane_of(1, 1)))) as archive:
        return archive.read("meta.json")


@crafted("sog_meta_json")
def _sog_metas() -> dict[str, bytes]:
    return {str(i): bytes([i]) for i in range(100)}  # each is a seed of odd values in meta.json


# -- checkpoints -------------------------------------------------------------------------------------------------------


def tower(levels: int, kind: str) -> bytes:
    """Operations that leave `levels` + 1 values on the stack, each of which holds the one before twice."""
    if kind == "tuple":
        return b"K\x01K\x01\x86q\x00" + b"".join(
            b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(levels))
    return b"]q\x00" + b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(levels))


TOWERS = {
    "a key that is hashed without end": b"\x80\x02](" + tower(60, "tuple") + b"}h\x3cK\x01se.",
    "a name that is printed without end": b"\x80\x02](" + tower(60, "list") + b")Re.",
    "an argument that is printed without end": b"\x80\x02](" + tower(60, "list") + b"h\x3c\x85Qe.",
    "a list in itself": b"\x80\x02]q\x00(h\x00h\x00e.",
    "numbers whose hashes are all 0": b"\x80\x02}(" + b"".join(
        b"\x8a\x0c" + ((i << 61) - i).to_bytes(12, "little") + b"N" for i in range(1, MANY)) + b"u.",
}
"""Pickles that are small and take a time or memory without bound to use."""


@crafted("checkpoint_pt")
def _checkpoints() -> dict[str, bytes]:
    import torch

    def saved(value: Any) -> bytes:
        out = io.BytesIO()
        torch.save(value, out)
        return out.getvalue()

    def pickled(data: bytes) -> bytes:
        return zip_of({"a/data.pkl": data, "a/version": b"3\n", "a/byteorder": b"little"})

    made = {"30,000 keys": saved({f"k{i:05}.means": 0 for i in range(MANY)}),
            "3,000 tensors": saved({f"k{i}.means": torch.zeros(1) for i in range(3000)}),
            "4 million mappings": pickled(b"\x80\x02](" + b"}" * 4_000_000 + b"e."),
            "a pickle of 5 MB": pickled(b"\x80\x02](" + b"N" * 5_000_000 + b"e."),
            "a float of strides 0": saved({name: torch.zeros(1).expand(4_000_000, 3) for name in ("means", "scales")}),
            "10^4300": pickled(b"\x80\x02\x8b" + struct.pack("<i", 1800) + b"\x7f" * 1800 + b".")}
    # Values without end are not in it: their reader is ended by its own limit (test_files_checkpoint).
    return {**made, **dict(_odd_zips("a/data.pkl"))}


@crafted("memory_snapshot")
def _snapshots() -> dict[str, bytes]:
    # Values without end as keys are not in it: their reader is ended by its own limit (test_memory_hostile).
    made = {name: data for name, data in TOWERS.items() if "hash" not in name}
    made["30,000 keys"] = pickle.dumps({"segments": [], "device_traces": [], **_keys()}, 4)
    made["30,000 settings"] = pickle.dumps({"segments": [], "device_traces": [], "allocator_settings": _keys()}, 4)
    for levels in (30, 60):
        inner = b"\x80\x02}X\x0d\x00\x00\x00device_traces](" + tower(levels, "list") + b"es."
        made[f"{levels} levels in the traces"] = inner
        made[f"{levels} levels in the settings"] = inner.replace(b"\x0d\x00\x00\x00device_traces",
                                                                 b"\x12\x00\x00\x00allocator_settings")
    for number in (2**63, 10**19, 10**4000):
        made[f"a size of {str(number)[:24]}"] = pickle.dumps(
            {"segments": [], "device_traces": [[{"action": "alloc", "addr": 512, "size": number, "stream": 0}]]}, 4)
    made["a gzip of 200 MB"] = gzip.compress(b"\x80\x04" + b"N0" * (100 << 20) + b"N.", 1)
    made["a million lists"] = b"\x80\x02](" + b"]" * 1_000_000 + b"e."
    made["nested"] = b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."
    return made


@crafted("memory_columns")
def _columns() -> dict[str, bytes]:
    whole = SEEDS["memory_columns"]()[0]
    return {f"{at}: {value:#x}": whole[:at] + struct.pack("<Q", value) + whole[at + 8:]
            for at in range(0, 64, 8) for value in (0, 2**31, 2**63, 2**64 - 1)}


# -- pictures ----------------------------------------------------------------------------------------------------------


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, data: bytes = b"", more: bytes = b"") -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + more + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


@crafted("picture_png")
def _pngs() -> dict[str, bytes]:
    sizes = [(2**31 - 1, 2**31 - 1), (60_000, 60_000), (16_000, 8_000), (2**31 - 1, 1), (1, 100_000_000), (0, 0)]
    made = {f"{x}x{y}": png(x, y, zlib.compress(bytes(1000))) for x, y in sizes}
    text = zlib.compress(bytes(30 << 20), 9)
    made["a text that unpacks to 30 MB"] = png(4, 4, zlib.compress(bytes(52)), _chunk(b"zTXt", b"a\0\0" + text) * 10)
    made["30,000 texts"] = png(4, 4, zlib.compress(bytes(52)), b"".join(
        _chunk(b"tEXt", f"key {i}\0x".encode()) for i in range(MANY)))
    made["a chunk of 2^31"] = png(4, 4) .replace(struct.pack(">I", 13), struct.pack(">I", 2**31 - 1))
    return made


@crafted("picture_jpg")
def _jpgs() -> dict[str, bytes]:
    seed = SEEDS["picture_jpg"]()[0]
    at = seed.index(b"\xff\xc0") + 5
    made = {f"{side} pixels": seed[:at] + struct.pack(">HH", side, side) + seed[at + 4:]
            for side in (0, 1, 10_000, 65_500, 65_535)}
    made["30,000 segments"] = seed[:2] + b"\xff\xfe\x00\x04ab" * MANY + seed[2:]
    made["EXIF that refers to itself"] = seed[:2] + b"\xff\xe1" + struct.pack(
        ">H", 30) + b"Exif\0\0II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0" + seed[2:]
    return made


@crafted("picture_webp")
def _webps() -> dict[str, bytes]:
    from PIL import Image

    made = {f"{side} pixels of one colour": plane_of(side, side) for side in (4000, 11_000, 16_383)}
    out = io.BytesIO()
    frames = [Image.new("RGB", (64, 64), (i, 0, 0)) for i in range(100)]
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    made["100 frames"] = out.getvalue()
    return made


@crafted("array_npy")
def _npys() -> dict[str, bytes]:
    def npy(header: str, body: bytes = bytes(100)) -> bytes:
        return b"\x93NUMPY\x02\0" + struct.pack("<I", len(header) + 1) + header.encode() + b"\n" + body

    made = {f"a side of {c[:24]}": npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({c}, 4, 3)}}")
            for c in COUNTS if "\0" not in c}
    shape = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s)}"
    made["65,536 times 65,536 times"] = npy(shape % ("65536, " * 8))
    made["30,000 dimensions"] = npy(shape % ("1, " * MANY))
    fields = ", ".join(f"('f{i:05}', '<f4')" for i in range(60_000))
    made["60,000 fields"] = npy(f"{{'descr': [{fields}], 'fortran_order': False, 'shape': (1,)}}")
    made["zeros of one side 0"] = npy(shape % "0, 99999999999999, 3")
    return made


# -- recordings and cameras --------------------------------------------------------------------------------------------


@crafted("recorded_gaussians")
def _recorded() -> dict[str, bytes]:
    fields = {"count": 1, "coefficients": 0, "sh_degree": 0, "activated": False, "antialiased": False}
    made = {}
    for name, header in (pair for key in fields for pair in _json_counts(fields, key)):
        made[name] = b"SVSCENE1" + struct.pack("<I", len(header)) + header + bytes(100)
    made["a header of 2^32"] = b"SVSCENE1" + b"\xff" * 4 + bytes(100)
    return made


@crafted("recording_json")
def _recordings() -> dict[str, bytes]:
    made = dict(_json_counts(INDEX_OF, "snapshots", 0, "count")) | dict(_json_counts(INDEX_OF, "every"))
    made["30,000 snapshots"] = json.dumps({**INDEX_OF, "snapshots": INDEX_OF["snapshots"] * MANY}).encode()
    made["30,000 keys"] = json.dumps({**INDEX_OF, **_keys()}).encode()
    return made | {"nested": DEEP, "nested names": b'{"a":' * 100_000}


@crafted("camera_json")
def _cameras() -> dict[str, bytes]:
    made = {}
    for camera in CAMERAS:
        for key in camera:
            made |= {f"{key}, {name}": data for name, data in _json_counts(camera, key)}
    return made | {"30,000 keys": json.dumps({**CAMERAS[1], **_keys(2000)}).encode(), "nested": b'{"viewmat":' + DEEP}


@crafted("camera_path_json")
def _paths() -> dict[str, bytes]:
    frame = {"camera_to_world": np.eye(4).ravel().tolist(), "fov": 50}
    document = {"camera_path": [frame] * 3, "fps": 30, "render_width": 64, "render_height": 48, "seconds": 1}
    made = {}
    for key in ("fps", "render_width", "seconds", "camera_path"):
        made |= dict(_json_counts(document, key))
    made |= dict(_json_counts(document, "camera_path", 0, "fov"))
    made |= dict(_json_counts(document, "camera_path", 0, "camera_to_world"))
    made["30,000 frames"] = json.dumps({**document, "camera_path": [frame] * MANY}).encode()
    made["30,000 keys"] = json.dumps({**document, **_keys()}).encode()
    return made | {"nested": DEEP}


@crafted("memo_json")
def _memos() -> dict[str, bytes]:
    made = {f"{n} levels": b'{"bookmarks/x": ' + b"[" * n + b"]" * n + b"}" for n in (200, 400, 900, 980)}
    made["30,000 keys"] = json.dumps(_keys()).encode()
    made["numbers of 4,000 digits"] = json.dumps({"bookmarks/x": {"9" * 4000: {}, "1": {"camera": 10**4000}}}).encode()
    return made | {"nested": DEEP}


# -- data sets ---------------------------------------------------------------------------------------------------------

LARGE = (2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)


@crafted("colmap_cameras_bin")
def _cameras_bin() -> dict[str, bytes]:
    whole = colmap_files()["cameras.bin"]
    made = {f"{n} cameras": struct.pack("<Q", n) + whole[8:] for n in LARGE}
    made |= {f"{n} pixels": whole[:16] + struct.pack("<QQ", n, n) + whole[32:] for n in (0, *LARGE)}
    return made | {"30,000 cameras": struct.pack("<Q", MANY) + whole[8:] * MANY}


@crafted("colmap_images_bin")
def _images_bin() -> dict[str, bytes]:
    whole = colmap_files()["images.bin"]
    entry = whole[8:8 + 64 + 6 + 8]
    made = {f"{n} images": struct.pack("<Q", n) + whole[8:] for n in LARGE}
    made |= {f"{n} observations": struct.pack("<Q", 2) + entry[:-8] + struct.pack("<Q", n) + entry for n in LARGE}
    made["no end of a name"] = struct.pack("<Q", 9) + entry[:64] + b"x" * 900_000
    made["a name of a device"] = whole.replace(b"0.png\0", b"/dev/zero\0")
    made["a name in another folder"] = whole.replace(b"0.png\0", b"../../../x.png\0")
    return made


@crafted("colmap_points3D_bin")
def _points_bin() -> dict[str, bytes]:
    whole = colmap_files()["points3D.bin"]
    made = {f"{n} points": struct.pack("<Q", n) + whole[8:] for n in LARGE}
    return made | {f"a track of {n}": whole[:8 + 43] + struct.pack("<Q", n) + whole[8 + 51:] for n in LARGE}


@crafted("transforms_json")
def _transforms() -> dict[str, bytes]:
    made = {}
    for key in ("w", "h", "fl_x", "frames"):
        made |= dict(_json_counts(TRANSFORMS, key))
    for key in ("file_path", "transform_matrix"):
        made |= dict(_json_counts(TRANSFORMS, "frames", 0, key))
    made["30,000 keys"] = json.dumps({**TRANSFORMS, **_keys()}).encode()
    return made | {"nested": DEEP, "nested frames": b'{"frames": ' + b"[" * 900 + b"]" * 900 + b"}"}
