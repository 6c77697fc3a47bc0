"""Formats give the same scene in the same axes, and are recognised by content."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import zstandard
from support import scene_files as w
from support.format_cases import SPZ, cases_of, gzipped, ply_with_lists, square
from support.memory_data import event, snapshot
from support.renderer_cases import Chance, activated, random_scene

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import open_file, silent
from splatview_viewer.formats.checkpoint import read_tensors
from splatview_viewer.formats.ply import write_ply
from splatview_viewer.kinds.files import read_untrusted, recognise
from splatview_viewer.recording.packed import pack, read_packed, unpack, write_packed
from splatview_viewer.scene.scene import FIELDS, GaussianScene

T = w.truth(5)


def _read_checkpoint(path, progress):
    return read_tensors([path], progress).scene()


@pytest.mark.parametrize(
    "family", ["ply", "compressed ply", "splat", "spz", "sog", "png", "checkpoint"]
)
def test_formats_give_the_same_scene(family: str, tmp_path: Path) -> None:
    read = _read_checkpoint if family == "checkpoint" else open_file
    for name, (write, tolerance, degree) in cases_of(family).items():
        t = w.truth(degree=degree)
        folder = tmp_path / name
        folder.mkdir()
        fractions: list[float] = []

        def note_progress(step: str, fraction: float) -> None:
            fractions.append(fraction)  # noqa: B023

        s = read(write(folder, t), note_progress)
        if family == "png":
            t = square(t)
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
        "ply": gzipped(w.write_ply(tmp_path / "a.pickle", w.ply_columns(T))),
        "spz": w.write_spz(tmp_path / "b.ply.gz", T),
        "splat": gzipped(w.write_splat(tmp_path / "c.splat", T)),
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
        ply_with_lists(tmp_path / "d.ply", t),
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
    for s in (scene, back):
        np.testing.assert_allclose(s.means, t.means, rtol=0, atol=2e-9)
    # Snapshots have float32, relative to the scene's middle.
    write_packed(tmp_path / "packed", pack(scene))
    recorded = unpack(read_packed(tmp_path / "packed"))
    np.testing.assert_allclose(recorded.means, t.means, rtol=0, atol=2e-7)


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
