"""Whatever is wrong with a file, the reader says so with a FileError: nothing else, and no memory taken for a lie."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support import scene_files as w
from support.repetitions import exhaustive

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.files import load_image, load_scene, open_file
from splatview.viewer_app.scene import GaussianScene

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
    for size in sorted({*range(0, min(len(data), 60)), *np.linspace(0, len(data) - 1, 150).astype(int).tolist()}):
        path.write_bytes(data[:size])
        if _scene_or_error(path) is not None:
            whole_numbers_of_records += 1
            # A .splat has no header; the last bytes of a text may belong to its last number, those of a PNG and of
            # an SPZ's gzip stream to checksums.
            assert kind in ("splat", "ascii", "png", "spz") and (size % 32 == 0 or size > len(data) - 24), size
    assert whole_numbers_of_records < 30


@pytest.mark.parametrize("count", [50, exhaustive(250)])
@pytest.mark.parametrize("kind", VALID)
def test_mutated(kind, count, valid, tmp_path):
    name, data = valid[kind]
    path = tmp_path / name
    near_the_start = st.integers(0, min(len(data) - 1, 1200))
    near_the_end = st.integers(max(len(data) - 1200, 0), len(data) - 1)
    place = st.one_of(near_the_start, near_the_end, st.integers(0, len(data) - 1))
    edit = st.tuples(place, st.integers(0, 4), st.binary(max_size=6))

    @settings(max_examples=count, deadline=None, derandomize=True, database=None,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
    @given(edits=st.lists(edit, min_size=1, max_size=4), cut=st.one_of(st.none(), place))
    @example(edits=[], cut=None)
    def check(edits, cut):
        changed = bytearray(data)
        for at, removed, added in edits:
            changed[at:at + removed] = added
        path.write_bytes(bytes(changed[:cut]))
        _scene_or_error(path)

    check()


def test_mutated_inside_the_gzip_of_an_spz(valid, tmp_path):
    """Damage behind the compression, which edits of the file itself hardly ever reach."""
    raw = gzip.decompress(valid["spz"][1])

    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(at=st.integers(0, 15), value=st.integers(0, 255), cut=st.integers(0, len(raw)))
    def check(at, value, cut):
        changed = bytearray(raw)
        changed[at] = value
        path = tmp_path / "a.spz"
        path.write_bytes(gzip.compress(bytes(changed[:cut]), 1))
        _scene_or_error(path)

    check()


def test_a_sog_with_a_wrong_length_of_a_name_is_refused_briefly(valid, tmp_path):
    """The zip then takes what follows the name for a part of it."""
    name, data = valid["sog"]
    changed = bytearray(data)
    changed[27] = 8
    (tmp_path / name).write_bytes(bytes(changed))
    with pytest.raises(FileError, match=r"'meta\.json' in the zip is damaged: File name in directory"):
        load_scene(tmp_path / name)
    assert _scene_or_error(tmp_path / name) is None


@pytest.mark.exhaustive
def test_mutated_meta_json(tmp_path):
    files = w.sog_files(T)
    meta = json.loads(files["meta.json"])
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    odd = [None, -1, 0, 1 << 70, 1e308, "x", "../meta.json", "/etc/passwd", "\0", [], {}, [1, 2, 3], [[[]]], True,
           [None] * 256, ["a"] * 256, {"0": 1}, float("nan"), ["meta.json"] * 2, 67_000_000]
    places = [(k,) for k in meta] + [(k, j) for k, v in meta.items() if isinstance(v, dict) for j in v]
    for place in places:
        for value in odd:
            changed = json.loads(files["meta.json"])
            holder = changed if len(place) == 1 else changed[place[0]]
            holder[place[-1]] = value
            (tmp_path / "meta.json").write_text(json.dumps(changed))
            _scene_or_error(tmp_path)
    for text in (b"", b"[]", b"[" * 100_000, b"{}", b"\xff\xfe", b'{"means": {}}', b'{"version": 7, "means": {}}'):
        (tmp_path / "meta.json").write_bytes(text)
        assert _scene_or_error(tmp_path) is None


def _header(*lines):
    return ("ply\nformat binary_little_endian 1.0\n" + "\n".join(lines) + "\nend_header\n").encode()


FLOATS = [f"property float {c}" for c in w.ply_columns(w.truth(1, 0))]
BAD = {
    "ply without Gaussians": ("a.ply", _header("element vertex 1", "property float x", "property uchar red") + bytes(5),
                              r"no Gaussians in it: y, z, f_dc_0.* missing; vertex has x, red"),
    "a lying count": ("a.ply", _header("element vertex 99999999999999", *FLOATS) + bytes(500),
                      r"truncated: 99,999,999,999,999 Gaussians of 68 bytes"),
    "a lying count of text": ("a.ply", _header("element vertex 99999999999", *FLOATS).replace(
        b"binary_little_endian", b"ascii") + b"1 2 3\n", "truncated: 99,999,999,999 Gaussians need"),
    "a negative count": ("a.ply", _header("element vertex -1", *FLOATS), "count of -1"),
    "a count of words": ("a.ply", _header("element vertex many", *FLOATS), "damaged header"),
    "seven f_rest": ("a.ply", _header("element vertex 1", *FLOATS, *(f"property float f_rest_{i}" for i in range(7))
                                      ) + bytes(200), "7 properties f_rest_.; legal are 0, 9, 24 or 45"),
    "f_rest with a gap": ("a.ply", _header("element vertex 1", *FLOATS, *(
        f"property float f_rest_{i}" for i in range(1, 10))) + bytes(200), "numbered from 0"),
    "a list in vertex": ("a.ply", _header("element vertex 1", *FLOATS, "property list uchar int vertex_indices"
                                          ) + bytes(200), "list property 'vertex_indices'"),
    "a list before vertex": ("a.ply", _header("element face 1", "property list uchar int v", "element vertex 1",
                                              *FLOATS) + bytes(200), "list property 'v'"),
    "a property twice": ("a.ply", _header("element vertex 1", *FLOATS, "property float x") + bytes(200), "'x' twice"),
    "an unknown type": ("a.ply", _header("element vertex 1", "property quad x"), "type 'quad'; legal are char"),
    "an unknown format": ("a.ply", b"ply\nformat binary_middle_endian 1.0\nend_header\n", "is not ascii, binary"),
    "no format": ("a.ply", b"ply\nelement vertex 0\nend_header\n", "no 'format' line"),
    "no vertex": ("a.ply", _header("element face 0", "property float x"), "no element 'vertex'; the file has face"),
    "a line of nonsense": ("a.ply", _header("element vertex 1", "colour me"), "'colour me' is not understood"),
    "a header without end": ("a.ply", b"ply\n" + b"comment x\n" * 200_000, "no line 'end_header' within 1,048,576"),
    "text that is none": ("a.ply", _header("element vertex 1", *FLOATS).replace(b"binary_little_endian", b"ascii")
                          + b"1 2 x " * 20, "not a number|numbers are needed"),
    "chunks missing": ("a.ply", w.write_compressed_ply, "1 chunks of 256 cannot hold 300 Gaussians"),
    "splat of 33 bytes": ("a.splat", bytes(33), "33 bytes are not a multiple of 32"),
    "gzip of something": ("a.spz", gzip.compress(b"hello world, this is text"), "does not start with 'NGSP'"),
    "spz of a later version": ("a.spz", gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 9, 1, 0, 12, 0, 0)),
                               "version 9; this container is read in versions 1, 2, 3"),
    "spz of degree 7": ("a.spz", gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 3, 1, 7, 12, 0, 0)),
                        "degree 7; legal are 0 to 4"),
    "spz with a lying count": ("a.spz", gzip.compress(struct.pack("<4sIIBBBB", b"NGSP", 3, 2**32 - 1, 3, 12, 0, 0)),
                               "truncated, or .*: 4,294,967,295 Gaussians"),
    "npy of objects": ("a.npy", None, "Python objects in dtype"),
    "npy of a lying shape": ("a.npy", None, "damaged or unreadable"),
    "an unknown kind": ("a.xyz", b"hello", r"of no known format. These can be opened:\n.*\.ply"),
    "text named png": ("a.png", b"hello", r"named \.png but its content is none"),
    "an empty file": ("a.ply", b"", "the file is empty"),
    "a plain pickle": ("a.pt", pickle.dumps({"means": 1}), "Nothing is unpickled here"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said(case, tmp_path):
    name, data, message = BAD[case]
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
    assert str(caught.value).startswith(f"{path}: ")


def test_what_is_no_file_is_said(tmp_path):
    with pytest.raises(FileError, match="no such file or folder"):
        load_scene(tmp_path / "none.ply")
    with pytest.raises(FileError, match=r"folder without meta\.json"):
        load_scene(tmp_path)
    with pytest.raises(FileError, match="cannot be read"):
        load_image("\0.png")
    if os.geteuid():
        (tmp_path / "shut.ply").write_bytes(b"ply\n")
        (tmp_path / "shut.ply").chmod(0)
        with pytest.raises(FileError, match="Permission denied"):
            load_scene(tmp_path / "shut.ply")


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
    zeros = struct.pack("<4sIIBBBB", b"NGSP", 3, 3_000_000, 3, 12, 0, 0) + bytes(65 * 3_000_000)
    (tmp_path / "zeros.spz").write_bytes(gzip.compress(zeros, 1))
    with pytest.raises(FileError, match="exhaust memory: 3,000,000 Gaussians"):
        load_scene(tmp_path / "zeros.spz")
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


def test_pictures_that_claim_too_many_pixels(tmp_path):
    import zlib

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    for size in ((60_000, 60_000), (2**31 - 1, 2**31 - 1)):
        head = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
        (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
                                         + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b""))
        with pytest.raises(FileError, match="pixels"):
            load_image(tmp_path / "a.png")
