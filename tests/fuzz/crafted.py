"""Crafted inputs: small files whose headers claim much, or are made to be slow to look up.

Mutation hardly ever finds these. Each format has counts that no number type holds, tens of thousands of properties,
keys and entries, and planes, palettes and streams that decode to far more than the file. `fuzz.limits` runs them within
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
from fuzz.demo_files import TRANSFORMS, colmap_files, npz_arrays
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


def _ply(count: str = "1", *, form: str = "binary_little_endian", before: str = "", more: str = "",
         body: bytes = bytes(400)) -> bytes:
    properties = "".join(f"property float {name}\n" for name in NAMES)
    return f"ply\nformat {form} 1.0\n{before}element vertex {count}\n{properties}{more}end_header\n".encode() + body


def _compressed(chunks: str, count: str, sh: str = "") -> bytes:
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
            made[f"{form}, {shown} Gaussians"] = _ply(count, form=form)
            made[f"{form}, {shown} before"] = _ply(form=form, before=f"element a {count}\nproperty double x\n")
        made[f"{shown} chunks"] = _compressed(count, "300")
        made[f"{shown} packed"] = _compressed(count, count)
        made[f"{shown} harmonics"] = _compressed("2", "1", f"element sh {count}\nproperty uchar f_rest_0\n")
    lines = {
        "60,000 properties": "".join(f"property char {i:06}\n" for i in range(60_000)),
        "the same property": "property char a\n" * 60_000,
        "60,000 lists": "".join(f"property list uchar int {i}\n" for i in range(25_000)),
        "f_rest_* without end": "".join(f"property char f_rest_{i}\n" for i in range(40_000)),
        "a name of 900 kB": f"property float {'x' * 900_000}\n", "no name": "property float\n", "nothing": "property\n",
        "names of one space": "property float  \n", "not UTF-8": "property float \udc80\udcff\n",
    }
    for name, text in lines.items():
        made[name] = _ply().replace(b"end_header", text.encode("utf-8", "surrogateescape") + b"end_header")
    made["60,000 elements"] = _ply(before="".join(f"element e{i} 0\n" for i in range(60_000)))
    made["60,000 elements of one name"] = _ply(before="element e 0\n" * 60_000)
    made["100,000 comments"] = _ply(before="comment \n" * 100_000)
    made["a comment of 1 MB"] = _ply(before=f"comment {'splat ' * 170_000}\n")
    made["no end"] = b"ply\n" + b"comment x\n" * 300_000
    made["an element without a name"] = _ply(before="element\n") + _ply(before="element x\n")
    made["text without end"] = _ply("0", form="ascii", body=b"1 " * 100_000)
    made["NUL"] = _ply(before="element \0 0\n")
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
        sections = [9 * n, n, 3 * n, 3 * n, 4 * n, 135 * n]
        made[f"zstd, {n} Gaussians as they ought to be"] = head + b"".join(
            struct.pack("<QQ", 50, size) for size in sections) + bytes(300)
    made["3 million zeros"] = _packed_zeros(struct.pack("<4sIIBBBB", b"NGSP", 3, 3_000_000, 3, 12, 0, 0), 195_000_000)
    made["a stream table at 2^32"] = struct.pack("<4sIIBBBBI12x", b"NGSP", 4, 1, 0, 12, 0, 5, 2**32 - 1) + bytes(100)
    return made


def _packed_zeros(head: bytes, size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return packer.compress(head) + b"".join(
        packer.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packer.flush()


@cache
def _plane(width: int, height: int) -> bytes:
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
    return _zip({"meta.json": json.dumps(meta).encode(), "a": plane, "b": palette or b""}, pack)


def _zip(files: dict[str, bytes], pack: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", pack) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def _odd_zips(first: str) -> Iterator[tuple[str, bytes]]:
    """Zips whose directories are wrong, with an entry that makes them one of a format."""
    yield "30,000 entries", _zip({first: b"{}", **{f"{i}": b"" for i in range(MANY)}})
    small = _zip({first: b"{}", "a": b"a"})
    end = small.rindex(b"PK\x05\x06")
    start = small.index(b"PK\x01\x02")
    entries = small[start:end] * 50_000
    yield "a directory of 5 MB", small[:start] + entries + struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, len(entries), start, 0)
    for size in (2**31, 2**32 - 1):
        yield f"sizes of {size}", small[:start + 20] + struct.pack("<II", size, size) + small[start + 28:]
        yield f"a directory of {size}", small[:end + 12] + struct.pack("<I", size) + small[end + 16:]
    yield "entries in each other", small[:start] + small[start:end] * 1000 + struct.pack(
        "<4s4H2LH", b"PK\5\6", 0, 0, 2000, 2000, 1000 * (end - start), start, 0)


@crafted("scene_sog")
def _sogs() -> dict[str, bytes]:
    made = {f"a count of {str(c)[:24]}": sog(c, _plane(64, 64)) for c in NUMBERS}
    for side in (1024, 4096, 16383):
        made[f"{side}^2 Gaussians"] = sog(side * side, _plane(side, side))
        made[f"{side}^2 Gaussians with harmonics"] = sog(side * side, _plane(side, side), _plane(960, 1024))
    made["large planes for one Gaussian"] = sog(1, _plane(16383, 16383))
    made["a large palette"] = sog(1, _plane(1, 1), _plane(960, 16383))
    made["a palette as large as a scene"] = sog(4_000_000, _plane(2048, 2048), _plane(960, 16000))
    made["30,000 keys"] = sog(1, _plane(1, 1), extra=_keys())
    made["30,000 files"] = sog(1, _plane(1, 1), extra={"x": {"files": [str(i) for i in range(MANY)]}})
    made["a codebook of 300,000"] = sog(1, _plane(1, 1), extra={"scales": {"codebook": [0] * 300_000, "files": ["a"]}})
    made["nested"] = _zip({"meta.json": DEEP})
    made["a plane of zeros"] = _zip({"meta.json": sog_meta(), "a": bytes(300 << 20)}, zipfile.ZIP_DEFLATED)
    made["meta.json of zeros"] = _zip({"meta.json": bytes(64 << 20)}, zipfile.ZIP_DEFLATED)
    made["meta.json of lists"] = _zip({"meta.json": b"[" + b"[]," * 1_300_000 + b"0]"}, zipfile.ZIP_DEFLATED)
    return {**made, **dict(_odd_zips("meta.json"))}


def sog_meta() -> bytes:
    with zipfile.ZipFile(io.BytesIO(sog(1, _plane(1, 1)))) as archive:
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
        return _zip({"a/data.pkl": data, "a/version": b"3\n", "a/byteorder": b"little"})

    deep: Any = 0
    for _ in range(300):
        deep = {"means": deep}
    made = {"30,000 keys": saved({f"k{i:05}.means": 0 for i in range(MANY)}),
            "30,000 keys in each": saved({name: {f"{i}.xyz": 0 for i in range(MANY)} for name in ("splats", "model")}),
            "30,000 keys of one prefix": saved({f"means.{i}": 0 for i in range(MANY)}),
            "3,000 tensors": saved({f"k{i}.means": torch.zeros(1) for i in range(3000)}), "nested": saved(deep),
            "4 million mappings": pickled(b"\x80\x02](" + b"}" * 4_000_000 + b"e."),
            "a pickle of 5 MB": pickled(b"\x80\x02](" + b"N" * 5_000_000 + b"e."),
            "a float of strides 0": saved({name: torch.zeros(1).expand(4_000_000, 3) for name in ("means", "scales")}),
            "memo 2^31": pickled(b"\x80\x02Nr\xff\xff\xff\x7f."),
            "text of 2^31": pickled(b"\x80\x02X\xff\xff\xff\x7fx."),
            "10^4300": pickled(b"\x80\x02\x8b" + struct.pack("<i", 1800) + b"\x7f" * 1800 + b".")}
    made |= {name: pickled(data) for name, data in TOWERS.items()}
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
    made["a profile of 30 MB"] = png(4, 4, zlib.compress(bytes(52)), _chunk(b"iCCP", b"a\0\0" + text))
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

    made = {f"{side} pixels of one colour": _plane(side, side) for side in (4000, 11_000, 16_383)}
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
    made["nested"] = npy(shape % ("(" * 5000 + ")" * 5000))
    made["signs"] = npy(shape % ("-" * 9000 + "1"))
    fields = ", ".join(f"('f{i:05}', '<f4')" for i in range(60_000))
    made["60,000 fields"] = npy(f"{{'descr': [{fields}], 'fortran_order': False, 'shape': (1,)}}")
    made["a header of 2^31"] = b"\x93NUMPY\x02\0" + struct.pack("<I", 2**31) + b"{}"
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
    made["30,000 key frames"] = json.dumps({"keyframes": [{"matrix": frame["camera_to_world"]}] * MANY}).encode()
    nested = "[" * 900 + "]" * 900
    made["a matrix of lists"] = b'{"camera_path": [{"camera_to_world": %b}]}' % nested.encode()
    made["a type of lists"] = b'{"camera_path": [{}], "camera_type": %b}' % nested.encode()
    made["a long type"] = json.dumps({**document, "camera_type": "x" * 1_000_000}).encode()
    made["a matrix in a text in lists"] = json.dumps({"keyframes": [{"matrix": nested * 3000}]}).encode()
    return made | {"nested": DEEP}


@crafted("memo_json")
def _memos() -> dict[str, bytes]:
    made = {f"{n} levels": b'{"bookmarks/x": ' + b"[" * n + b"]" * n + b"}" for n in (200, 400, 900, 980)}
    made |= {f"{n} levels of a camera": b'{"bookmarks/x": {"1": {"camera": ' + b"[" * n + b"]" * n + b"}}}"
             for n in (200, 400, 900, 980)}
    made["30,000 keys"] = json.dumps(_keys()).encode()
    made["30,000 bookmarks"] = json.dumps({"bookmarks/x": {f"{i}": {} for i in range(MANY)}}).encode()
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


@crafted("colmap_cameras_txt")
def _cameras_txt() -> dict[str, bytes]:
    made = {f"{c[:24]} pixels": f"7 PINHOLE {c} {c} 9 9 4 4\n".encode() for c in COUNTS}
    made |= {f"camera {c[:24]}": f"{c} PINHOLE 8 8 9 9 4 4\n".encode() for c in COUNTS}
    return made | {"a line of numbers": b"7 PINHOLE 8 8 " + b"1 " * 300_000, "30,000 cameras": b"".join(
        b"%d PINHOLE 8 8 9 9 4 4\n" % i for i in range(MANY)), "comments": b"# x\n" * 200_000}


@crafted("colmap_images_txt")
def _images_txt() -> dict[str, bytes]:
    pose = "1 0 0 0 0 0 3"
    made = {f"camera {c[:24]}": f"1 {pose} {c} 0.png\n\n".encode() for c in COUNTS}
    made |= {f"a pose of {c[:24]}": f"1 {pose[:-1]}{c} 7 0.png\n\n2 {pose} 7 1.png\n\n".encode() for c in COUNTS}
    return made | {"empty lines": b"\n" * 900_000, "a long name": f"1 {pose} 7 {'x' * 500_000}\n\n".encode()}


@crafted("colmap_points3D_txt")
def _points_txt() -> dict[str, bytes]:
    made = {f"at {c[:24]}": f"1 {c} 1 2 9 8 7 0.5\n".encode() for c in COUNTS}
    made |= {f"of {c[:24]}": f"1 0 1 2 {c} 8 7 0.5\n".encode() for c in COUNTS}
    return made | {"columns": b"1 " * 400_000, "rows that differ": b"1 2 3 4 5 6 7\n1 2\n" * 1000}


@crafted("transforms_json")
def _transforms() -> dict[str, bytes]:
    made = {}
    for key in ("w", "h", "fl_x", "frames"):
        made |= dict(_json_counts(TRANSFORMS, key))
    for key in ("file_path", "transform_matrix"):
        made |= dict(_json_counts(TRANSFORMS, "frames", 0, key))
    for path in ("/dev/zero", "../../../etc/passwd", "\0", "x" * 5000, "\ud800"):
        document = json.loads(json.dumps(TRANSFORMS))
        document["frames"][0]["file_path"] = document["ply_file_path"] = path
        made[f"a path {path[:20]!r}"] = json.dumps(document).encode()
        made[f"points {path[:20]!r}"] = json.dumps({**TRANSFORMS, "ply_file_path": path}).encode()
    made["30,000 keys"] = json.dumps({**TRANSFORMS, **_keys()}).encode()
    made["30,000 keys and 3,000 frames"] = json.dumps(
        {**_keys(), **TRANSFORMS, "frames": [{"file_path": "none"}] * 3000}).encode()
    made["frames as a text"] = json.dumps({"frames": "x" * 500_000}).encode()
    return made | {"nested": DEEP, "nested frames": b'{"frames": ' + b"[" * 900 + b"]" * 900 + b"}"}


@crafted("capture_npz")
def _npzs() -> dict[str, bytes]:
    def npz(pack: int = zipfile.ZIP_DEFLATED, /, **changed: bytes) -> bytes:
        files = {}
        for name, array in npz_arrays().items():
            out = io.BytesIO()
            np.save(out, array)
            files[f"{name}.npy"] = out.getvalue()
        return _zip(files | {f"{name}.npy": data for name, data in changed.items()}, pack)

    made = {f"means3d, {name}": npz(means3d=data) for name, data in _npys().items()}
    for shape in ("(400000000, 3)", "(99999999999, 3)", "(9999999999999999999, 3)"):
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
        made[f"points {shape}"] = npz(means3d=b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (3, 10000, 10000, 3)}\n"
    made["pictures of zeros"] = npz(images=b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header
                                    + bytes(900_000_000 >> 2))
    for name in ("width", "height"):
        for number in (0, -1, 2**31, 2**62):
            out = io.BytesIO()
            np.save(out, np.array(number))
            made[f"a {name} of {number}"] = npz(**{name: out.getvalue()})
    return {**made, **dict(_odd_zips("means3d.npy"))}


@crafted("points_ply")
def _points_plys() -> dict[str, bytes]:
    axes = "".join(f"property float {a}\n" for a in "xyz")

    def ply(count: str, form: str, more: str = "") -> bytes:
        return f"ply\nformat {form} 1.0\nelement vertex {count}\n{axes}{more}end_header\n1 2 3\n4 5 6\n".encode()

    made = {f"{form}, {c[:24]}": ply(c, form) for c in COUNTS for form in ("ascii", "binary_little_endian")}
    made["60,000 properties"] = ply("1", "ascii", "".join(f"property char {i}\n" for i in range(60_000)))
    made["60,000 properties of a name"] = ply("1", "ascii", "property char a\n" * 60_000)
    made["60,000 binary properties"] = ply("1", "binary_little_endian", "".join(
        f"property char {i}\n" for i in range(60_000)))
    made["60,000 elements"] = ply("1", "ascii", "".join(f"element a{i} 0\nproperty char x\n" for i in range(60_000)))
    made["100,000 comments"] = ply("1", "ascii", "comment\n" * 100_000)
    made["no end"] = ply("1", "ascii").replace(b"end_header\n", b"comment \n" * 90_000)
    made["empty lines"] = b"ply\n" + b"\n" * 90_000 + b"end_header\n"
    return made | {"a first line alone": b"end_header\n", "list": ply("1", "ascii", "property list uchar int a\n")}


@crafted("class_names")
def _class_names() -> dict[str, bytes]:
    made = {"30,000 names": b"a\n" * MANY, "a mapping": json.dumps(_keys()).encode(), "nested": DEEP,
            "parentheses": b"(" * 100_000, "signs": b"-" * 500_000 + b"1", "nots": b"not " * 100_000 + b"1",
            "sums": b"1+" * 100_000 + b"1j", "braces": b"{" * 100_000,
            "an inline list": b"names: [" + b"a'," * MANY + b"]", "quotes": b"names: [" + b"\"'" * MANY + b"]",
            "deep lists": b"[" * 90 + b"]" * 90, "open quotes": b"names: [" + b"'" * 300_000 + b"]",
            "attributes": b"a" + b".a" * 100_000, "an empty name": b"names: \n  : \n",
            "not UTF-8": b"\xff\xfe\n", "NUL": b"a\0b\n", "half a pair": b'["\\ud800"]'}
    made |= {f"number {c[:24]}": b'{"%b": "cat"}' % c.replace("\0", "").encode() for c in COUNTS}
    return made | {f"row {c[:24]}": b"names:\n  %b: cat\n" % c.encode() for c in COUNTS}


