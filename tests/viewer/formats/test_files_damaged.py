"""Whatever is wrong with a file, the reader says so with a FileError: nothing else, and no memory taken for a lie."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import socket
import struct
import zipfile

import numpy as np
import pytest
from support import scene_files as w

from splatview_viewer.core.errors import CameraError, FileError
from splatview_viewer.core.memo import Memo
from splatview_viewer.formats import load_scene, open_file
from splatview_viewer.formats.nerfstudio import read_path
from splatview_viewer.geometry.cameras import camera_from_json
from splatview_viewer.recording.packed import read_packed
from splatview_viewer.recording.recording import INDEX, read_index
from splatview_viewer.scene.scene import GaussianScene

T = w.truth(20, degree=1)


def _png(folder):
    from PIL import Image

    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(folder / "picture.png")
    return folder / "picture.png"


def _npy(folder):
    np.save(folder / "array.npy", np.zeros((6, 5, 3), np.float32))
    return folder / "array.npy"


VALID = {
    "ply": lambda p: w.write_ply(p / "scene.ply", w.ply_columns(T)),
    "ascii": lambda p: w.write_ply(p / "ascii.ply", w.ply_columns(T), order="a"),
    "mixed": lambda p: w.write_ply(p / "mixed.ply", w.ply_columns(T), types={"x": "f8"}, order=">"),
    "compressed": lambda p: w.write_compressed_ply(p / "c.ply", T),
    "splat": lambda p: w.write_splat(p / "scene.splat", T),
    "spz": lambda p: w.write_spz(p / "scene.spz", T),
    "spz 4": lambda p: w.write_spz_4(p / "four.spz", T, lambda data: data),
    "sog": lambda p: w.write_zip(p / "scene.sog", w.sog_files(T)),
    "checkpoint": lambda p: w.write_checkpoint(p / "checkpoint.pt", T),
    "png": _png,
    "npy": _npy,
}


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """One small valid file of each kind: name -> (its name, its bytes)."""
    folder = tmp_path_factory.mktemp("valid")
    paths = {kind: write(folder) for kind, write in VALID.items()}
    return {kind: (path.name, path.read_bytes()) for kind, path in paths.items()}


@pytest.fixture(autouse=True)
def no_huge_allocation():
    with w.little_memory():
        yield


def _scene_or_error(path):
    """What a reader gave; anything but a scene, a picture or a FileError of its own goes up."""
    try:
        value = open_file(path)
    except FileError as e:
        assert "not enough memory" not in str(e) and str(e).startswith(str(path)) and len(str(e)) < 2000
        return None
    if isinstance(value, GaussianScene):
        n = len(value)
        assert value.quats.shape == (n, 4) and value.shN.shape[0] == n and value.opacities.shape == (n,)
    return value


@pytest.mark.parametrize("kind", VALID)
def test_truncated_anywhere(kind, valid, tmp_path):
    name, data = valid[kind]
    path = tmp_path / name
    whole_numbers_of_records = 0
    for size in sorted({*range(0, min(len(data), 40)), *np.linspace(0, len(data) - 1, 60).astype(int).tolist()}):
        path.write_bytes(data[:size])
        if _scene_or_error(path) is not None:
            whole_numbers_of_records += 1
            # A .splat has no header; the last bytes of a text may belong to its last number, those of a PNG and of
            # an SPZ's gzip stream to checksums.
            assert kind in ("splat", "ascii", "png", "spz") and (size % 32 == 0 or size > len(data) - 24), size
    assert whole_numbers_of_records < 30


def test_a_sog_with_a_wrong_length_of_a_name_is_refused_briefly(valid, tmp_path):
    """The zip then takes what follows the name for a part of it."""
    name, data = valid["sog"]
    changed = bytearray(data)
    changed[27] = 8
    (tmp_path / name).write_bytes(bytes(changed))
    assert _scene_or_error(tmp_path / name) is None


def _header(*lines):
    return ("ply\nformat binary_little_endian 1.0\n" + "\n".join(lines) + "\nend_header\n").encode()


FLOATS = [f"property float {c}" for c in w.ply_columns(w.truth(1, 0))]
BAD = {
    "ply without Gaussians": ("a.ply", _header("element vertex 1", "property float x", "property uchar red") + bytes(5),
                              r"no Gaussians in it: y, z, f_dc_0.* missing; vertex has x, red"),
    "a lying count": ("a.ply", _header("element vertex 99999999999999", *FLOATS) + bytes(500),
                      r"truncated: 99,999,999,999,999 Gaussians of 68 bytes"),
    "a negative count": ("a.ply", _header("element vertex -1", *FLOATS), "count of -1"),
    "seven f_rest": ("a.ply", _header("element vertex 1", *FLOATS, *(f"property float f_rest_{i}" for i in range(7))
                                      ) + bytes(200), "7 properties f_rest_.; legal are 0, 9, 24, 45, 72"),
    "a list in vertex": ("a.ply", _header("element vertex 1", *FLOATS, "property list uchar int vertex_indices"
                                          ) + bytes(200), "list property 'vertex_indices'"),
    "more faces than bytes": ("a.ply", _header("element face 99999999999999", "property list uchar int i",
                                               "element vertex 1", *FLOATS) + bytes(200), "ends in element 'face'"),
    "a property twice": ("a.ply", _header("element vertex 1", *FLOATS, "property float x") + bytes(200), "'x' twice"),
    "an unknown type": ("a.ply", _header("element vertex 1", "property quad x"), "type 'quad'; legal are char"),
    "an unknown format": ("a.ply", b"ply\nformat binary_middle_endian 1.0\nend_header\n", "is not ascii, binary"),
    "no vertex": ("a.ply", _header("element face 0", "property float x"), "no element 'vertex'; the file has face"),
    "a header without end": ("a.ply", b"ply\n" + b"comment x\n" * 200_000, "no line 'end_header' within 1,048,576"),
    "text that is none": ("a.ply", _header("element vertex 1", *FLOATS).replace(b"binary_little_endian", b"ascii")
                          + b"1 2 x " * 20, "not a number|numbers are needed"),
    "chunks missing": ("a.ply", w.write_compressed_ply, "1 chunks of 256 cannot hold 300 Gaussians"),
    "splat of 33 bytes": ("a.splat", bytes(33), "33 bytes are not a multiple of 32"),
    "spz of a later version": ("a.spz", gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 9, 1, 0, 12, 0, 0)),
                               "version 9; this container is read in versions 1, 2, 3"),
    "spz with a lying count": ("a.spz", gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 3, 2**32 - 1, 3, 12, 0, 0)),
                               "truncated, or .*: 4,294,967,295 Gaussians"),
    "npy of objects": ("a.npy", None, "Python objects in dtype"),
    "npy of a lying shape": ("a.npy", None, "damaged or unreadable"),
    "an unknown kind": ("a.xyz", b"hello", r"of no known format. These can be opened:\n.*\.ply"),
    "text named png": ("a.png", b"hello", r"named \.png but its content is none"),
    "an empty file": ("a.ply", b"", "the file is empty"),
    "a plain pickle": ("a.pt", pickle.dumps({"means": 1}), "Nothing is unpickled here"),
}


def test_what_is_wrong_is_said(tmp_path):
    for case, (name, data, message) in BAD.items():
        path = tmp_path / name
        if case == "chunks missing":
            w.write_compressed_ply(path, w.truth(300, 0))
            path.write_bytes(path.read_bytes().replace(b"element chunk 2", b"element chunk 1"))
        elif case == "npy of objects":
            np.save(path, np.array([{}], object), allow_pickle=True)
        elif case == "npy of a lying shape":
            np.save(path, np.zeros((1000, 1000, 3), np.uint8))
            path.write_bytes(path.read_bytes()[:5000])
        else:
            path.write_bytes(data)
        with pytest.raises(FileError, match=f"(?s){path.name}: .*{message}") as caught:
            open_file(path)
        assert str(caught.value).startswith(f"{path}: "), case


def test_zip_bombs_and_paths(tmp_path):
    files = w.sog_files(T)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("meta.json", bytes(64 << 20))
    (tmp_path / "bomb.sog").write_bytes(bomb.getvalue())
    with pytest.raises(FileError, match="unpacks to more than"):
        load_scene(tmp_path / "bomb.sog")
    large = {**files, "quats.webp": w.webp(np.zeros((3000, 3000, 4)))}
    with pytest.raises(FileError, match=r"'quats\.webp' is 3000x3000 pixels for 20 Gaussians"):
        load_scene(w.write_zip(tmp_path / "large.sog", large))
    many = {**files, "meta.json": files["meta.json"].replace(b'"count": 20,', b'"count": 60000000,')}
    with pytest.raises(FileError, match="the positions of 60,000,000 Gaussians"):
        load_scene(w.write_zip(tmp_path / "many.sog", many))
    (tmp_path / "secret.webp").write_bytes(files["quats.webp"])
    (tmp_path / "scene").mkdir()
    for name, data in files.items():
        (tmp_path / "scene" / name).write_bytes(data)
    for name in ("../secret.webp", str(tmp_path / "secret.webp"), "..", ""):
        meta = json.loads(files["meta.json"])
        meta["quats"]["files"] = [name]
        (tmp_path / "scene" / "meta.json").write_text(json.dumps(meta))
        with pytest.raises(FileError, match="not the plain name of a file"):
            load_scene(tmp_path / "scene")
    zeros = tmp_path / "zeros.pt"
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", bytes(1 << 20))
    with pytest.raises(FileError, match=r"'x/data\.pkl' is compressed"):
        load_scene(zeros)


# -- pipes, devices, sockets: reading one would never end --------------------------------------------------------------


@pytest.fixture(params=["pipe", "device", "socket"])
def special(request, tmp_path):
    path = tmp_path / "scene.ply"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
    return path


def test_readers_refuse_special_files(special, caplog):
    pipe = special.is_fifo() or special.is_char_device()
    with pytest.raises(FileError, match="no file but a pipe, a device" if pipe else "No such device or address"):
        open_file(special)
    with pytest.raises(CameraError):
        camera_from_json(str(special), 64, 48)
    with pytest.raises(CameraError, match="cannot be read"):
        read_path(special)
    with pytest.raises(FileError, match="cannot be read"):
        read_packed(special)
    special.rename(special.with_name(INDEX))
    with pytest.raises(FileError, match="cannot be read"):
        read_index(special.parent)
    memo = Memo(special.with_name(INDEX))
    assert memo.get("x", 5) == 5 and "cannot be used" in caplog.text
