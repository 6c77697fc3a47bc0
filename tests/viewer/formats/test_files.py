"""Formats give the same scene in the same axes, and are recognised by content."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import zstandard
from PIL import Image
from support import scene_files as w
from support.memory_data import event, snapshot
from support.renderer_cases import Chance, activated, random_scene

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import open_file, silent
from splatview_viewer.formats.checkpoint import read_tensors
from splatview_viewer.formats.ply import write_ply
from splatview_viewer.kinds.files import read_untrusted, recognise
from splatview_viewer.recording.packed import pack, read_packed, unpack, write_packed
from splatview_viewer.render.cameras.photos import read_photo
from splatview_viewer.scene.scene import FIELDS, GaussianScene

# Tolerances follow the steps of each format: means in units of a scene 4 wide, alpha
# and colour mostly half an 8-bit step, harmonics summed over up to 15 coefficients. SPZ
# before version 3 leaves w out, which is imprecise near 0.
COMPRESSED = {
    "means": 2.1e-3,
    "degrees": 0.25,
    "scales": 2.6e-3,
    "alpha": 2e-3,
    "color": 0.05,
}
SPLAT = {"means": 1e-6, "degrees": 1.3, "scales": 1e-6, "alpha": 2e-3, "color": 2e-3}
SPZ = {"means": 1.3e-4, "degrees": 0.25, "scales": 0.032, "alpha": 2e-3, "color": 0.02}
SOG = {"means": 1e-4, "degrees": 0.9, "scales": 0.01, "alpha": 2e-3, "color": 0.02}
PNG = {"means": 1e-4, "degrees": 0.9, "scales": 0.01, "alpha": 6e-3, "color": 0.06}
T = w.truth(5)


def _square(t):
    """Return the first 289 Gaussians, which fill a square of 17 by 17."""
    return w.Truth(*(getattr(t, name)[:289] for name in FIELDS))


def _shuffled(t):
    columns = w.ply_columns(t, normals=False)
    names = list(np.random.default_rng(3).permutation(list(columns)))
    extra = {"label": np.arange(len(t.means)) % 200}
    return {
        **{n: columns[n] for n in names[:20]},
        **extra,
        **{n: columns[n] for n in names[20:]},
    }


def _with_lists(path, t, order="<"):
    """Write a PLY with lists before and after the vertices."""
    return w.write_ply(
        path,
        w.ply_columns(t),
        order=order,
        header=w.FACES,
        before=w.faces(order),
        footer=w.FACES.replace("face", "hole"),
        after=w.faces(order),
    )


def _with_lists_inside(path, t):
    """Write a PLY whose vertices hold a list of varying length before a property."""
    columns = w.ply_columns(t)
    path = w.write_ply(path, columns)
    head, _, _ = path.read_bytes().partition(b"end_header\n")
    head = head.replace(
        b"property float opacity\n",
        b"property list uchar short seen_by\nproperty float opacity\n",
    )
    rows = np.stack(list(columns.values()), axis=1).astype("<f4")
    opacity_column = list(columns).index("opacity")
    body = b""
    for i, row in enumerate(rows):
        length = i // 70
        list_bytes = bytes([length]) + bytes(2 * length)
        body += row[:opacity_column].tobytes() + list_bytes
        body += row[opacity_column:].tobytes()
    path.write_bytes(head + b"end_header\n" + body)
    return path


def _gzipped(path):
    path.write_bytes(gzip.compress(path.read_bytes(), 1))
    return path.rename(f"{path}.gz")


def _as_text(path):
    """Rewrite a compressed PLY as a text."""
    head, _, body = path.read_bytes().partition(b"end_header\n")
    kinds = {"float": "<f4", "uint": "<u4", "uchar": "u1"}
    lines = []
    offset = 0
    for element in head.decode().split("element ")[1:]:
        title, *properties = element.split("\nproperty ")
        record = [(f"{i}", kinds[p.split()[0]]) for i, p in enumerate(properties)]
        rows = np.frombuffer(body, record, int(title.split()[1]), offset)
        offset += rows.nbytes
        lines += [" ".join(map(repr, row)) for row in rows.tolist()]
    text = head.replace(b"binary_little_endian", b"ascii") + b"end_header\r\n"
    path.write_bytes(text + "\r\n".join(lines).encode())
    return path


def _folder(path, files):
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


class FormatCase(NamedTuple):
    """A way to write a scene: its function, tolerances, and degree of harmonics."""

    write: Callable[[Path, w.Truth], Path]
    tolerance: dict[str, float]
    degree: int


CASES: dict[str, FormatCase] = {}


def case(name, tolerance, degree):
    """Register the decorated function, which writes a scene into a folder, by name."""

    def register(write):
        CASES[name] = FormatCase(write, tolerance, degree)
        return write

    return register


@case("ply", w.EXACT, 3)
def _write_plain_ply(folder, t):
    return w.write_ply(folder / "a.ply", w.ply_columns(t))


@case("ply big endian", w.EXACT, 4)
def _write_big_endian_ply(folder, t):
    return w.write_ply(folder / "a.ply", w.ply_columns(t), order=">")


@case("ply as a text", w.EXACT, 4)
def _write_text_ply(folder, t):
    return w.write_ply(folder / "a.ply", w.ply_columns(t), order="a")


@case("ply with lists", w.EXACT, 2)
def _write_ply_with_lists(folder, t):
    return _with_lists(folder / "a.ply", t)


@case("ply with lists, big endian", w.EXACT, 1)
def _write_big_endian_ply_with_lists(folder, t):
    return _with_lists(folder / "a.ply", t, ">")


@case("ply with lists, as a text", w.EXACT, 1)
def _write_text_ply_with_lists(folder, t):
    return _with_lists(folder / "a.ply", t, "a")


@case("ply with lists in it", w.EXACT, 1)
def _write_ply_with_lists_inside(folder, t):
    return _with_lists_inside(folder / "a.ply", t)


@case("ply in gzip", w.EXACT, 1)
def _write_gzipped_ply(folder, t):
    return _gzipped(_write_plain_ply(folder, t))


@case("ply doubles", w.EXACT, 0)
def _write_ply_of_doubles(folder, t):
    columns = w.ply_columns(t)
    return w.write_ply(folder / "a.ply", columns, types=dict.fromkeys(columns, "f8"))


@case("ply any order and types", w.EXACT, 3)
def _write_shuffled_ply(folder, t):
    return w.write_ply(
        folder / "a.ply",
        _shuffled(t),
        types={"label": "u1", "x": "f8", "rot_2": "f8"},
        header="obj_info x\nelement camera 2\nproperty short id\nproperty double t\n",
        before=bytes(20),
    )


@case("ply with CloudCompare's names", w.EXACT, 1)
def _write_ply_of_cloud_compare(folder, t):
    columns = {}
    for name, column in w.ply_columns(t).items():
        is_position = name in "xyz"
        columns[name if is_position else f"scalar_{name}"] = column
    return w.write_ply(folder / "a.ply", columns)


@case("compressed ply", COMPRESSED, 3)
def _write_compressed_ply(folder, t):
    return w.write_compressed_ply(folder / "a.ply", t)


@case("compressed ply without colour bounds", COMPRESSED, 0)
def _write_compressed_ply_without_color_bounds(folder, t):
    return w.write_compressed_ply(folder / "a.ply", t, False)


@case("compressed ply as a text", COMPRESSED, 2)
def _write_compressed_text_ply(folder, t):
    return _as_text(w.write_compressed_ply(folder / "a.ply", t))


@case("splat", SPLAT, 0)
def _write_splat(folder, t):
    return w.write_splat(folder / "a.splat", t)


@case("splat in gzip", SPLAT, 0)
def _write_gzipped_splat(folder, t):
    return _gzipped(_write_splat(folder, t))


@case("spz 1", SPZ | {"means": 1e-3, "degrees": 9}, 3)
def _write_spz_1(folder, t):
    return w.write_spz(folder / "a.spz", t, 1)


@case("spz 2", SPZ | {"degrees": 9}, 2)
def _write_spz_2(folder, t):
    return w.write_spz(folder / "a.spz", t, 2)


@case("spz 3", SPZ, 4)
def _write_spz_3(folder, t):
    return w.write_spz(folder / "a.spz", t)


@case("spz 4", SPZ, 3)
def _write_spz_4(folder, t):
    compress = zstandard.ZstdCompressor().compress
    return w.write_spz_4(folder / "a.spz", t, compress)


@case("sog zip", SOG, 3)
def _write_sog_zip(folder, t):
    return w.write_zip(folder / "a.sog", w.sog_files(t))


@case("sog zip with a folder inside", SOG, 2)
def _write_sog_zip_with_a_folder(folder, t):
    files = {f"scene/{name}": data for name, data in w.sog_files(t).items()}
    return w.write_zip(folder / "a.zip", files)


@case("sog folder", SOG, 1)
def _write_sog_folder(folder, t):
    return _folder(folder / "scene", w.sog_files(t))


@case("sog meta.json", SOG, 0)
def _write_sog_meta(folder, t):
    return _write_sog_folder(folder, t) / "meta.json"


@case("sog of version 1", SOG | {"alpha": 0.02, "color": 0.025}, 3)
def _write_sog_1_zip(folder, t):
    return w.write_zip(folder / "a.sog", w.sog_files(t, 1))


@case("sog folder of version 1", SOG | {"alpha": 0.02, "color": 0.025}, 0)
def _write_sog_1_folder(folder, t):
    return _folder(folder / "scene", w.sog_files(t, 1))


@case("png folder", PNG, 3)
def _write_png_folder(folder, t):
    return _folder(folder / "compression", w.gsplat_png_files(_square(t)))


@case("png zip", PNG, 1)
def _write_png_zip(folder, t):
    return w.write_zip(folder / "a.zip", w.gsplat_png_files(_square(t)))


@case("gsplat checkpoint", w.EXACT, 4)
def _write_gsplat_checkpoint(folder, t):
    return w.write_checkpoint(folder / "a.pt", t, "gsplat")


@case("inria checkpoint", w.EXACT, 4)
def _write_inria_checkpoint(folder, t):
    return w.write_checkpoint(folder / "a.pt", t, "inria")


@case("nerfstudio checkpoint", w.EXACT, 4)
def _write_nerfstudio_checkpoint(folder, t):
    return w.write_checkpoint(folder / "a.pt", t, "nerfstudio")


@case("mapping checkpoint", w.EXACT, 4)
def _write_mapping_checkpoint(folder, t):
    return w.write_checkpoint(folder / "a.pt", t, "mapping")


def _read_checkpoint(path, progress):
    return read_tensors([path], progress).scene()


def _cases_of(family: str) -> dict[str, FormatCase]:
    if family == "checkpoint":
        return {n: c for n, c in CASES.items() if n.endswith(family)}
    return {n: c for n, c in CASES.items() if n.startswith(family)}


@pytest.mark.parametrize(
    "family", ["ply", "compressed ply", "splat", "spz", "sog", "png", "checkpoint"]
)
def test_formats_give_the_same_scene(family: str, tmp_path: Path) -> None:
    read = _read_checkpoint if family == "checkpoint" else open_file
    for name, (write, tolerance, degree) in _cases_of(family).items():
        t = w.truth(degree=degree)
        folder = tmp_path / name
        folder.mkdir()
        fractions: list[float] = []

        def note_progress(step: str, fraction: float) -> None:
            fractions.append(fraction)  # noqa: B023

        s = read(write(folder, t), note_progress)
        if family == "png":
            t = _square(t)
        assert fractions
        assert fractions == sorted(fractions)
        assert fractions[0] >= 0
        assert fractions[-1] == 1, fractions
        w.assert_same(s, t, tolerance)
        assert s.sh_degree == s.stored_sh_degree == degree
        assert not s.activated
        assert not s.antialiased
        assert s.notes == ()
        for field in FIELDS:
            # Means may be doubles.
            dtypes = (torch.float32, torch.float64)[: 1 + (field == "means")]
            assert getattr(s, field).dtype in dtypes, field
            assert getattr(s, field).is_contiguous(), field


@pytest.mark.parametrize(
    ("names", "kind", "white"),
    [
        ("red green blue", "u1", 255),
        ("r g b", "f4", 1),
        ("scalar_red scalar_green scalar_blue", "u4", 255),
    ],
)
def test_ply_colors_are_those_of_degree_0(
    names: str, kind: str, white: int, tmp_path: Path
) -> None:
    t = w.truth(20, degree=0)
    rgb = np.round((w.SH_C0 * t.sh0 + 0.5) * 255) / 255
    columns = w.ply_columns(t)
    for absent in ("f_dc_0", "f_dc_1", "f_dc_2", "scale_1", "scale_2"):
        del columns[absent]
    columns |= dict(zip(names.split(), white * rgb.T, strict=True))
    s = open_file(
        w.write_ply(
            tmp_path / "a.ply", columns, types=dict.fromkeys(names.split(), kind)
        )
    )
    np.testing.assert_allclose(w.SH_C0 * s.sh0 + 0.5, rgb, atol=1e-6)
    # One scale counts for all axes.
    np.testing.assert_array_equal(s.scales, np.repeat(t.scales[:, :1], 3, axis=1))


def test_files_in_gzip_are_recognised_by_their_content(tmp_path: Path) -> None:
    """Memory snapshots are recognised as well.

    Only .splat, which has no mark of its own, is recognised by its name.
    """
    events = [event("alloc", 512, 64, time_us=1)]
    files = {
        "ply": _gzipped(w.write_ply(tmp_path / "a.pickle", w.ply_columns(T))),
        "spz": w.write_spz(tmp_path / "b.ply.gz", T),
        "splat": _gzipped(w.write_splat(tmp_path / "c.splat", T)),
        "snapshot": tmp_path / "d.ply.gz",
    }
    files["snapshot"].write_bytes(gzip.compress(pickle.dumps(snapshot(events))))
    assert {name: recognise(path) for name, path in files.items()} == {
        name: name for name in files
    }


def test_scenes_without_gaussians_are_read(tmp_path: Path) -> None:
    t = w.truth(n=0, degree=2)
    for path in (
        w.write_ply(tmp_path / "a.ply", w.ply_columns(t)),
        w.write_compressed_ply(tmp_path / "b.ply", t),
        w.write_ply(tmp_path / "c.ply", w.ply_columns(t), order="a"),
        _with_lists(tmp_path / "d.ply", t),
        w.write_spz(tmp_path / "a.spz", t),
        w.write_zip(tmp_path / "a.sog", w.sog_files(t)),
        w.write_checkpoint(tmp_path / "a.pt", t),
    ):
        if path.suffix == ".pt":
            s = read_tensors([path], silent).scene()
        else:
            s = open_file(path)
        assert len(s) == 0, path
        assert s.sh_degree == 2, path
        assert s.quats.shape == (0, 4), path


@pytest.mark.parametrize(
    ("comment", "mip", "up", "note"),
    [
        ("SplatRenderMode: mip", True, None, ""),
        ("by \u2028 mip\x0cat\x85night", False, None, ""),
        ("antialiased 1\ncomment splatrendermode: DEFAULT", False, None, ""),
        ("Vertical axis: -y", False, (0, -1, 0), ""),
        ("Nerfstudio\ncomment Vertical Axis: z", False, (0, 0, 1), ""),
        ("x\nobj_info vertical axis = Y-up (metres)", False, (0, 1, 0), ""),
        ("Exported from Brush\ncomment Vertical axis: y", False, (0, -1, 0), ""),
        ("Vertical axis: [0, 3 -4]", False, (0, 0.6, -0.8), ""),
        ("Vertical axis: 0 0 0", False, None, "vertical axis '0 0 0' is unknown"),
        (
            "Vertical axis: w",
            False,
            None,
            "vertical axis 'w' is unknown (known: -y, +y, +z, -z, +x, -x); up is "
            "guessed",
        ),
        ("SplatRenderMode: 2DGS", False, None, ""),
        ("SplatRenderMode: ray", False, None, "render mode 'ray' is unknown"),
    ],
)
def test_comments_of_a_ply_name_its_mode_and_up_axis(
    comment: str, mip: bool, up: object, note: str, tmp_path: Path
) -> None:
    s = open_file(
        w.write_ply(
            tmp_path / "a.ply", w.ply_columns(w.truth(5)), header=f"comment {comment}\n"
        )
    )
    assert (s.antialiased, s.up, len(s.notes)) == (
        mip,
        up,
        bool(note),
    )
    assert note in "".join(s.notes)


def _training(path: Path, *iterations: int, **files: str) -> Path:
    """Write a folder as inria's train.py does.

    Each iteration has a scene of one more Gaussian.
    """
    for i, iteration in enumerate(iterations):
        folder = path / "point_cloud" / f"iteration_{iteration}"
        folder.mkdir(parents=True)
        w.write_ply(folder / "point_cloud.ply", w.ply_columns(w.truth(5 + i)))
    for name, text in files.items():
        (path / name.replace("_json", ".json")).write_text(text)
    return path


def test_folder_of_a_training_opens_as_its_last_iteration(tmp_path: Path) -> None:
    # Two cameras look along -z and -x, both upright: y of a picture, the second column,
    # is down.
    rotations = (
        [[-1, 0, 0], [0, -1, 0], [0, 0, 1]],
        [[0, 0, 1], [0, -1, 0], [1, 0, 0]],
    )
    cameras = [{"id": i, "rotation": r, "fx": 9} for i, r in enumerate(rotations)]
    folder = _training(
        tmp_path / "run",
        7000,
        30000,
        900,
        cfg_args="Namespace(sh_degree=3, white_background=True)",
        cameras_json=json.dumps(cameras),
    )
    # The scene of this iteration is not there yet.
    (folder / "point_cloud" / "iteration_99999").mkdir()
    for path in (folder, folder / "point_cloud"):
        scene = open_file(path)
        assert len(scene) == 6
        assert scene.background == (1, 1, 1)
        assert scene.up == (0, 1, 0)
        assert scene.notes == ("iteration 30000, the last of 3",)
    assert len(open_file(folder / "point_cloud" / "iteration_900")) == 7


def test_coarse_scenes_open_where_there_are_no_fine_ones(tmp_path: Path) -> None:
    """Coarse scenes are in folders as hustvl/4DGaussians writes them."""
    folder = _training(tmp_path / "run", 3000)
    scenes = folder / "point_cloud"
    (scenes / "iteration_3000").rename(scenes / "coarse_iteration_3000")
    assert len(open_file(folder)) == 5
    _training(folder / "fine", 1000, 2000)
    for entry in (folder / "fine" / "point_cloud").iterdir():
        entry.rename(scenes / entry.name)
    scene = open_file(folder)
    assert len(scene) == 6
    assert scene.notes == ("iteration 2000, the last of 3",)


def test_folder_of_a_training_opens_without_sound_settings(
    tmp_path: Path,
) -> None:
    scene = open_file(_training(tmp_path / "a", 7))
    assert (scene.background, scene.up, scene.notes) == (None, None, ())
    for i, text in enumerate(("[{}]", "{", '[{"rotation": [[1, 2]]}]')):
        scene = open_file(_training(tmp_path / f"b{i}", 7, cameras_json=text))
        assert len(scene) == 5
        assert "cameras.json beside it" in scene.notes[0]


def test_flags_and_meta_json_name_the_render_mode(tmp_path: Path) -> None:
    files = w.sog_files(T)
    assert open_file(w.write_spz(tmp_path / "a.spz", T, flags=1)).antialiased
    for entries, mip in (
        ({"model": "antialiased"}, True),
        ({"model": "default", "antialias": True}, False),
        ({"antialias": True}, True),
        ({"model": None}, False),
    ):
        meta = json.loads(files["meta.json"]) | entries
        changed = files | {"meta.json": json.dumps(meta).encode()}
        scene = open_file(w.write_zip(tmp_path / "a.sog", changed))
        assert (scene.antialiased, scene.notes) == (mip, ()), entries


SPZ_SYSTEMS = [
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
TOWARDS = dict(zip("LRUDBF", np.kron(np.eye(3), [[-1.0], [1.0]]), strict=True))


@pytest.mark.parametrize("version", [2, 3, 4])
def test_spz_scenes_are_turned_from_the_axes_they_name(
    version: int, tmp_path: Path
) -> None:
    """A scene written in any system of `splat-types.h` is the same scene."""
    t = w.truth(40, degree=4)
    compress = zstandard.ZstdCompressor().compress
    # Version 3 is tried with every system, the others with every third.
    stride = 1 if version == 3 else 3
    for system, name in [*enumerate(SPZ_SYSTEMS, 1)][::stride]:
        axes = np.stack([TOWARDS[letter] for letter in name], 1)
        # The first extension that names axes counts; that of another vendor before it
        # is skipped.
        extensions = struct.pack(
            "<II4xIIIIII", 7, 4, 0xADBE0003, 4, system, 0xADBE0003, 4, 1
        )
        if version == 4:
            path = w.write_spz_4(tmp_path / "a.spz", t, compress, extensions, axes)
        else:
            path = w.write_spz(tmp_path / "a.spz", t, version, 2, extensions, axes)
        scene = open_file(path)
        degrees = 9 if version < 3 else 0.25
        w.assert_same(scene, t, SPZ | {"degrees": degrees})
        assert scene.notes == (
            "SPZ extensions in this file are ignored: 0x00000007",
        ), name


def test_spz_axes_default_to_right_up_back(
    tmp_path: Path,
) -> None:
    for extensions, note in (
        (struct.pack("<III", 0xADBE0003, 4, 0), ""),
        (struct.pack("<III", 0xADBE0003, 4, 17), "coordinate system 17 is unknown"),
        (struct.pack("<IIH", 0xADBE0003, 4, 5), ""),
        (struct.pack("<II4x", 0xADBE0002, 4), ""),
        (struct.pack("<III", 7, 2**32 - 1, 5), ""),
    ):
        scene = open_file(w.write_spz(tmp_path / "a.spz", T, 3, 2, extensions))
        w.assert_same(scene, T, SPZ)
        assert len(scene.notes) == bool(note)
        assert note in "".join(scene.notes)


# numba warns while it compiles.
@pytest.mark.filterwarnings("ignore")
def test_gsply_reads_the_same_scene(tmp_path: Path) -> None:
    gsply = pytest.importorskip("gsply")
    t = w.truth(700)
    # At the ends of the range gsply and PlayCanvas round apart by 1/64.
    t.shN[0] = 5.0
    t.shN[1] = -5.0
    path = w.write_compressed_ply(tmp_path / "a.compressed.ply", t)
    mine = open_file(path)
    theirs = gsply.plyread(path)
    for name in FIELDS:
        actual = getattr(mine, name)
        expected = getattr(theirs, name).reshape(actual.shape)
        tolerance = 1 / 64 + 1e-5 if name == "shN" else 1e-5
        np.testing.assert_allclose(actual, expected, atol=tolerance, err_msg=name)
    rub = w.to_rub(t)
    gsply.write_spz(
        tmp_path / "b.spz",
        gsply.GSData.from_arrays(
            rub.means,
            rub.scales,
            rub.quats,
            rub.opacities,
            rub.sh0,
            rub.shN,
            format="ply",
        ),
    )
    mine = open_file(w.write_spz(tmp_path / "a.spz", t))
    theirs = open_file(tmp_path / "b.spz")
    for name in FIELDS:
        tolerance = 2e-3 if name == "quats" else 1e-5
        np.testing.assert_allclose(
            getattr(mine, name), getattr(theirs, name), atol=tolerance
        )


SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "jpg": {"quality": 100},
    "webp": {"lossless": True, "exact": True},
}


def test_pictures_of_all_forms_and_modes_open_as_pixels(tmp_path: Path) -> None:
    smooth = np.add.outer(
        np.add.outer(np.linspace(0, 190, 30), np.linspace(0, 50, 20)), [0, 3, 5, 9]
    ).astype(np.uint8)
    for form, mode, channels in (
        ("png", "RGB", 3),
        ("png", "RGBA", 4),
        ("png", "L", 1),
        ("png", "LA", 2),
        ("png", "P", 3),
        ("png", "1", 1),
        ("jpg", "L", 1),
        ("jpg", "CMYK", 3),
        ("webp", "RGBA", 4),
        ("bmp", "RGB", 3),
        ("bmp", "L", 1),
        ("bmp", "P", 3),
        ("bmp", "1", 1),
        ("ppm", "RGB", 3),
        ("pgm", "L", 1),
        ("tiff", "RGB", 3),
        ("tiff", "RGBA", 4),
        ("tif", "LA", 2),
        ("tif", "CMYK", 3),
    ):
        pixels = smooth[..., :3] if mode == "P" else smooth
        image = Image.fromarray(pixels).convert(mode)
        image.save(tmp_path / f"a.{form}", **SAVE_OPTIONS.get(form, {}))
        got = open_file(tmp_path / f"a.{form}")
        stored_mode = ["L", "LA", "RGB", "RGBA"][channels - 1]
        expected = np.asarray(image.convert(stored_mode)).reshape(30, 20, channels)
        assert got.shape == expected.shape
        assert got.dtype == np.uint8
        largest_error = np.abs(got.astype(int) - expected).max()
        tolerance = 6 if form == "jpg" else 0
        assert largest_error <= tolerance, (form, mode)
    sixteen = np.arange(600, dtype=np.uint16).reshape(30, 20) * 100
    for form in ("png", "tif"):
        Image.fromarray(sixteen).save(tmp_path / f"a.{form}")
        got = open_file(tmp_path / f"a.{form}")
        np.testing.assert_array_equal(got, sixteen[..., None])
    Image.fromarray(sixteen / np.float32(6e4)).save(tmp_path / "b.tif")
    got = open_file(tmp_path / "b.tif")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, sixteen[..., None] / np.float32(6e4))


def test_messages_about_unreadable_pictures_hold_no_addresses(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.tif"
    # One pixel of three times 64 bits of floating point.
    tags = ((256, 1), (257, 1), (258, 64), (259, 1), (262, 2), (277, 3), (339, 3))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    directory = struct.pack("<H", len(tags)) + entries + bytes(4)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8) + directory + bytes(64))
    with pytest.raises(FileError, match=r"floating point .* or as \.npy$"):
        open_file(path)
    path.write_bytes(b"\xff\xd8\xff nothing")
    with pytest.raises(FileError, match=r"the picture is damaged") as caught:
        open_file(path)
    assert "_io." not in str(caught.value)


@pytest.mark.parametrize("form", ["bmp", "tif", "ppm"])
def test_pictures_open_as_photographs_of_cameras(form: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / f"a.{form}")
    np.testing.assert_array_equal(read_photo(tmp_path / f"a.{form}", (9, 6)), pixels)


@pytest.mark.parametrize(
    ("shape", "dtype", "out"),
    [
        ((5, 7), "f8", (5, 7, 1)),
        ((5, 7, 3), "u1", (5, 7, 3)),
        ((3, 5, 7), ">f4", (5, 7, 3)),
        ((5, 7, 4), "f2", (5, 7, 4)),
        ((5, 7, 1), ">u2", (5, 7, 1)),
    ],
)
def test_npy_pictures_keep_their_values(shape, dtype, out, tmp_path):
    a = (np.arange(np.prod(shape)).reshape(shape) / 200).astype(dtype)
    np.save(tmp_path / "a.npy", a)
    got = open_file(tmp_path / "a.npy")
    assert isinstance(got, np.ndarray)
    assert got.shape == out
    if a.dtype.kind == "f":
        assert got.dtype == np.float32
    else:
        assert got.dtype == a.dtype.newbyteorder("=")
    has_planes = shape == (3, 5, 7)
    expected = np.moveaxis(a, 0, -1) if has_planes else a.reshape(out)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("form", ["ply", "text", "checkpoint", "uploaded"])
def test_positions_far_away_keep_their_detail(form: str, tmp_path: Path) -> None:
    t = w.truth(30, degree=0)
    # The scene is 4 mm wide.
    t.means = t.means / 1000 + np.array([4_210_000.0, -170_000, 4_780_000])
    if form == "checkpoint":
        path = w.write_checkpoint(tmp_path / "a.pt", t)
    else:
        path = w.write_ply(
            tmp_path / "a.ply",
            w.ply_columns(t),
            types=dict.fromkeys("xyz", "f8"),
            order={"text": "a"}.get(form, "<"),
        )
    if form == "uploaded":
        scene = read_untrusted(path)
    elif form == "checkpoint":
        scene = read_tensors([path], silent).scene()
    else:
        scene = open_file(path)
    assert isinstance(scene, GaussianScene)
    back = open_file(write_ply(activated(scene), tmp_path / "saved.ply")[0])
    for s in (scene, back, unpack(pack(scene))):
        np.testing.assert_allclose(s.means, t.means, rtol=0, atol=2e-9)
    write_packed(tmp_path / "packed", pack(scene))
    np.testing.assert_array_equal(
        read_packed(tmp_path / "packed").arrays["means"], scene.means
    )


# -- saving -------------------------------------------------------------------------


def test_saving_writes_a_scene_and_a_selection_of_it(tmp_path: Path) -> None:
    """Gaussians without opacity are left out; a second file has a number in its name."""
    scene = activated(random_scene(1, Chance(n=500, sh_degree=3)))
    assert write_ply(scene, tmp_path / "scene.ply") == (tmp_path / "scene.ply", 500)
    saved = open_file(tmp_path / "scene.ply")
    assert not saved.antialiased
    assert not saved.notes
    np.testing.assert_array_equal(saved.shN, scene.shN)
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(activated(saved), name), getattr(scene, name), rtol=2e-5, atol=1e-6
        )
    scene = replace(scene, opacities=scene.opacities * (torch.arange(500) >= 10))
    path, count = write_ply(
        scene, tmp_path / "scene.ply", keep=torch.arange(500) % 2 == 0
    )
    assert (path, count) == (tmp_path / "scene-2.ply", 245)
    np.testing.assert_array_equal(open_file(path).means, scene.means[10::2])


def test_failed_saving_leaves_no_file(tmp_path: Path) -> None:
    scene = activated(random_scene(1, Chance(n=5)))

    def fail(step: str, share: float) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_ply(scene, tmp_path / "a.ply", progress=fail)
    with pytest.raises(FileError, match="none of the Gaussians"):
        write_ply(scene, tmp_path / "a.ply", keep=torch.zeros(5, dtype=torch.bool))
    with pytest.raises(FileError, match="missing"):
        write_ply(scene, tmp_path / "missing" / "a.ply")
    assert not list(tmp_path.iterdir())
