"""Faults of files raise FileError alone, before memory is taken for a false size."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz.targets import TARGETS
from PIL import Image
from support import scene_files as w

from splatview_viewer.core.errors import CameraError, FileError
from splatview_viewer.core.host import Memo
from splatview_viewer.formats import open_file, silent
from splatview_viewer.formats.camera_paths import read_path
from splatview_viewer.formats.spz import SPLAT
from splatview_viewer.geometry.camera_text import camera_from_json
from splatview_viewer.recording.packed import read_packed
from splatview_viewer.recording.recording import INDEX, read_index

T = w.truth(20, degree=1)


@pytest.fixture(autouse=True)
def no_huge_allocation() -> Iterator[None]:
    with w.little_memory():
        yield


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "name", [name for name, target in TARGETS.items() if target.format]
)
def test_files_truncated_anywhere_are_refused(name: str) -> None:
    target = TARGETS[name]
    for seed in target.seeds():
        sizes = set(range(min(len(seed), 40)))
        sizes.update(np.linspace(0, len(seed) - 1, 60).astype(int).tolist())
        for size in sorted(sizes):
            target.run(seed[:size])


# -- false claims -------------------------------------------------------------------


def _header(*lines: str) -> bytes:
    return (
        "ply\nformat binary_little_endian 1.0\n" + "\n".join(lines) + "\nend_header\n"
    ).encode()


def _ply(*lines: str, count: str = "1", body: bytes = bytes(400)) -> bytes:
    return _header(f"element vertex {count}", *FLOATS, *lines) + body


def _compressed(chunks: str, count: str) -> bytes:
    bounds = []
    for prefix in ("min_", "max_", "min_scale_", "max_scale_"):
        bounds += [f"property float {prefix}{axis}" for axis in "xyz"]
    packed = ["position", "rotation", "scale", "color"]
    properties = [f"property uint packed_{name}" for name in packed]
    return _header(
        f"element chunk {chunks}", *bounds, f"element vertex {count}", *properties
    ) + bytes(600)


def _picture(side: int, form: str, mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (side, side)).save(out, form, lossless=True, method=0)
    return out.getvalue()


def _npy(array: np.ndarray, size: int) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()[:size]


FLOATS = [f"property float {c}" for c in w.ply_columns(w.truth(1, 0))]


def damaged_files() -> list[tuple[str, bytes, str]]:
    """List names and contents of files, and the message that each is refused with."""
    return [
        (
            "a.ply",
            _header("element vertex 1", "property float x", "property uchar red")
            + bytes(5),
            r"no Gaussians in it: y, z, f_dc_0.* missing; vertex has x, red",
        ),
        (
            "a.ply",
            _ply(count="99999999999999"),
            r"truncated: 99,999,999,999,999 records of element 'vertex'",
        ),
        (
            "a.ply",
            _ply(count="1_000"),
            "header line 'element vertex .*' is not understood",
        ),
        (
            "a.ply",
            _ply(count="-1"),
            "header line 'element vertex .*' is not understood",
        ),
        ("a.ply", _ply(count="9" * 4299), "damaged, or not what"),
        (
            "a.ply",
            _ply("element vertex 1"),
            "header line 'element vertex 1' is not understood",
        ),
        (
            "a.ply",
            _ply(*(f"property float f_rest_{i}" for i in range(7))),
            "7 properties f_rest_.; expected 0, 9, 24, 45, 72",
        ),
        (
            "a.ply",
            _ply("property list uchar int vertex_indices", body=b"\xff" * 400),
            "truncated: of element 'vertex' a list is not whole",
        ),
        (
            "a.ply",
            _ply("property list char int vertex_indices", body=b"\xff" * 400),
            "a list of element 'vertex' has a length of -1",
        ),
        (
            "a.ply",
            _header(
                "element x 9",
                "property list uint double y",
                "element vertex 1",
                *FLOATS,
            )
            + b"\xff\xff\xff\x7f" * 200,
            "truncated: of element 'x' a list is not whole",
        ),
        (
            "a.ply",
            _header(
                "element x 9", *(f"property list uint uint y{i}" for i in range(65))
            ),
            "element 'x' has 65 lists; at most 64",
        ),
        (
            "a.ply",
            _ply("property float x"),
            "header line 'property float x' is not understood",
        ),
        (
            "a.ply",
            _ply("property quad q"),
            "header line 'property quad q' is not understood",
        ),
        (
            "a.ply",
            _header("element face 0", "property float x"),
            "no element 'vertex'; the file has face",
        ),
        (
            "a.ply",
            b"ply\n" + b"comment x\n" * 200_000,
            "no line 'end_header' within 1,048,576",
        ),
        (
            "a.ply",
            _ply(body=b"1 2 x " * 80).replace(b"binary_little_endian", b"ascii"),
            "text holds something that is not a number",
        ),
        (
            "a.ply",
            _ply(body=b"1" * 400).replace(b"binary_little_endian", b"ascii"),
            "truncated: of element 'vertex' 1 records are missing",
        ),
        (
            "a.ply",
            _ply(count="99999", body=b"1 " * 400).replace(
                b"binary_little_endian", b"ascii"
            ),
            "truncated: 99,999 records of element 'vertex' take",
        ),
        ("a.ply.gz", gzip.compress(_ply())[:-9], "gzip: damaged or truncated"),
        (
            "a.ply.gz",
            gzip.compress(bytes(1 << 27)),
            "gzip: it holds neither an SPZ, a .splat nor a PLY",
        ),
        (
            "a.ply.gz",
            gzip.compress(_ply(count="9", body=bytes(1 << 26)), 1),
            "gzip: made to exhaust memory: .* unpack to more than 67,108,864",
        ),
        ("a.ply", _compressed("1", "300"), "1 chunks of 256 cannot hold 300 Gaussians"),
        ("a.splat", bytes(33), "33 bytes are not a multiple of 32"),
        (
            "a.spz",
            gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 9, 1, 0, 12, 0, 0)),
            "version 9; this container is read in versions 1, 2, 3, 4",
        ),
        (
            "a.spz",
            gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 3, 2**32 - 1, 3, 12, 0, 0)),
            "truncated, or .*: 4,294,967,295 Gaussians",
        ),
        ("a.npy", _npy(np.array([{}], object), 999), "Python objects in dtype"),
        (
            "a.npy",
            _npy(np.zeros((1000, 1000, 3), np.uint8), 5000),
            "damaged, or not what",
        ),
        ("a.xyz", b"hello", r"of no known format. These can be opened:\n.*\.ply"),
        ("a.png", b"hello", r"named \.png but its content is none"),
        ("a.ply", b"", "the file is empty"),
        ("a.pt", pickle.dumps({"means": 1}), "Nothing is unpickled here"),
    ]


def test_messages_name_the_fault_of_a_file(tmp_path: Path) -> None:
    for name, data, message in damaged_files():
        with pytest.raises(FileError, match=f"(?s){name}: .*{message}") as caught:
            open_file(put(tmp_path / name, data))
        assert str(caught.value).startswith(f"{tmp_path / name}: "), message


def test_files_larger_than_the_free_memory_name_the_memory_needed(
    tmp_path: Path,
) -> None:
    """The files are sparse: large in name alone."""
    for name, head in (
        ("a.splat", b""),
        ("a.spz", b"NGSP"),
        ("a.ply", _ply(count=str(10**10), body=b"")),
        ("b.ply", _compressed(str(10**9), str(10**9))),
    ):
        path = put(tmp_path / name, head)
        os.truncate(path, 1 << 40)
        with pytest.raises(
            FileError,
            match=r"need [\d,.]+ GB of memory, [\d,.]+ [GM]B are free: end other programs",
        ):
            open_file(path)


def test_small_file_cannot_claim_millions_of_gaussians(tmp_path: Path) -> None:
    """All planes are of one colour, which compresses well."""
    files = w.sog_files(T)
    planes = dict.fromkeys(files, _picture(2000, "WEBP"))
    planes["meta.json"] = files["meta.json"].replace(
        b'"count": 20', b'"count": 4000000', 1
    )
    path = w.write_zip(tmp_path / "a.sog", planes)
    with pytest.raises(FileError, match=r"exhaust memory: 4,000,000 Gaussians"):
        open_file(path)


def test_pictures_of_too_many_pixels_are_refused(tmp_path: Path) -> None:
    """Planes of a SOG may not be far larger than its count."""
    plane = w.write_zip(
        tmp_path / "a.sog", {**w.sog_files(T), "quats.webp": _picture(3000, "WEBP")}
    )
    large = put(tmp_path / "a.png", _picture(12_000, "PNG", "1"))
    for path, message in (
        (plane, "for 20 Gaussians, has 3000x3000"),
        (large, "has 12000x12000 pixels; at most"),
    ):
        with pytest.raises(FileError, match=message):
            open_file(path)


def test_long_headers_are_read_or_refused_at_once(
    tmp_path: Path,
) -> None:
    """Long headers are read or refused at once.

    Each name was compared with all before it, for minutes; Pillow reads comments byte
    by byte, and joins pieces of EXIF one by one.
    """
    columns = w.ply_columns(T)
    path = w.write_ply(tmp_path / "a.ply", columns)
    head, end, body = path.read_bytes().partition(b"end_header\n")
    # Only the first Gaussian has bytes for the further properties.
    head = head.replace(b"vertex %d" % len(T.means), b"vertex 1")
    further_properties = b"".join(
        b"property uchar extra_%d\n" % i for i in range(30_000)
    )
    path.write_bytes(
        head + further_properties + end + body[: 4 * len(columns)] + bytes(30_000)
    )
    scene = open_file(path)
    np.testing.assert_allclose(scene.means[0], T.means[0])
    comment = b"P6\n# " + b"x" * 20_000_000 + b"\n1 1\n255\n123"
    with pytest.raises(FileError, match="without a size"):
        open_file(put(tmp_path / "a.ppm", comment))
    exif = b"\xff\xe1\x00\x10Exif\0\0MM\0*\0\0\0\x08"
    with pytest.raises(FileError, match="100 pieces"):
        open_file(put(tmp_path / "a.jpg", b"\xff\xd8" + exif * 400_000))
    picture = io.BytesIO()
    Image.new("RGB", (8, 8), (90, 90, 90)).save(picture, "JPEG")
    data = picture.getvalue()
    with_exif = data[:2] + exif * 90 + data[2:]
    assert open_file(put(tmp_path / "b.jpg", with_exif)).shape == (8, 8, 3)


def test_names_in_a_sog_cannot_leave_its_folder(tmp_path: Path) -> None:
    files = w.sog_files(T)
    put(tmp_path / "secret.webp", files["quats.webp"])
    (tmp_path / "scene").mkdir()
    for name, data in files.items():
        put(tmp_path / "scene" / name, data)
    for name in ("../secret.webp", str(tmp_path / "secret.webp"), "..", ""):
        meta: dict[str, Any] = json.loads(files["meta.json"])
        meta["quats"]["files"] = [name]
        (tmp_path / "scene" / "meta.json").write_text(json.dumps(meta))
        with pytest.raises(FileError, match="not the plain name of a file"):
            open_file(tmp_path / "scene")


def test_readers_raise_nothing_but_fileerror(tmp_path: Path) -> None:
    path = w.write_splat(tmp_path / "a.splat", T)
    for error in (
        ValueError("x" * 5000),
        KeyError("x"),
        RecursionError(),
        struct.error("x"),
        MemoryError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "\ud800"),
        SyntaxError("x"),
        StopIteration(),
    ):

        def read(*_args: object, error: Exception = error) -> None:
            raise error

        with pytest.raises(FileError) as caught:
            open_file(path, silent, (replace(SPLAT, read=read),))
        assert str(caught.value).startswith(f"{path}: ")
        assert len(str(caught.value)) < 1000
        assert caught.value.__cause__ is error
        str(caught.value).encode()


def _read_camera(path: Path) -> object:
    return camera_from_json(str(path), 64, 48)


def test_readers_refuse_special_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading a pipe or a device would never end."""
    special = tmp_path / INDEX
    device = tmp_path / "scene.ply"
    os.mkfifo(special)
    device.symlink_to("/dev/zero")
    for path in (special, device):
        for read in (open_file, read_path, read_packed, _read_camera):
            with pytest.raises((FileError, CameraError)):
                read(path)
    with pytest.raises(FileError, match="cannot be read"):
        read_index(tmp_path)
    memo = Memo(special)
    assert memo.get("x", 5) == 5
    assert "cannot be used" in caplog.text
