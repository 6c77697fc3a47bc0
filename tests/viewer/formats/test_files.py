"""Every format gives the same scene, in the same axes; formats are told by content."""

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

# What each format's steps allow: means in units of a scene 4 wide, alpha and colour mostly half an 8-bit step,
# harmonics summed over up to 15 coefficients. SPZ before version 3 leaves w out, which is imprecise near 0.
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
    """The first of the Gaussians: 289 are as many in width as in height."""
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
    """Lists before and behind the vertices."""
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
    """A list in each vertex, whose length changes now and then, and a property behind it."""
    columns = w.ply_columns(t)
    path = w.write_ply(path, columns)
    head, _, _ = path.read_bytes().partition(b"end_header\n")
    head = head.replace(
        b"property float opacity\n",
        b"property list uchar short seen_by\nproperty float opacity\n",
    )
    rows = np.stack(list(columns.values()), axis=1).astype("<f4")
    at = list(columns).index("opacity")
    body = b"".join(
        row[:at].tobytes()
        + bytes([i // 70])
        + bytes(2 * (i // 70))
        + row[at:].tobytes()
        for i, row in enumerate(rows)
    )
    path.write_bytes(head + b"end_header\n" + body)
    return path


def _gzipped(path):
    path.write_bytes(gzip.compress(path.read_bytes(), 1))
    return path.rename(f"{path}.gz")


def _as_text(path):
    """A compressed PLY, written as a text."""
    head, _, body = path.read_bytes().partition(b"end_header\n")
    kinds = {"float": "<f4", "uint": "<u4", "uchar": "u1"}
    lines = []
    offset = 0
    for part in head.decode().split("element ")[1:]:
        title, *properties = part.split("\nproperty ")
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


CASES = {
    "ply": (lambda p, t: w.write_ply(p / "a.ply", w.ply_columns(t)), w.EXACT, 3),
    "ply big endian": (
        lambda p, t: w.write_ply(p / "a.ply", w.ply_columns(t), order=">"),
        w.EXACT,
        4,
    ),
    "ply as a text": (
        lambda p, t: w.write_ply(p / "a.ply", w.ply_columns(t), order="a"),
        w.EXACT,
        4,
    ),
    "ply with lists": (lambda p, t: _with_lists(p / "a.ply", t), w.EXACT, 2),
    "ply with lists, big endian": (
        lambda p, t: _with_lists(p / "a.ply", t, ">"),
        w.EXACT,
        1,
    ),
    "ply with lists, as a text": (
        lambda p, t: _with_lists(p / "a.ply", t, "a"),
        w.EXACT,
        1,
    ),
    "ply with lists in it": (
        lambda p, t: _with_lists_inside(p / "a.ply", t),
        w.EXACT,
        1,
    ),
    "ply in gzip": (
        lambda p, t: _gzipped(w.write_ply(p / "a.ply", w.ply_columns(t))),
        w.EXACT,
        1,
    ),
    "ply doubles": (
        lambda p, t: w.write_ply(
            p / "a.ply", w.ply_columns(t), types=dict.fromkeys(w.ply_columns(t), "f8")
        ),
        w.EXACT,
        0,
    ),
    "ply any order and types": (
        lambda p, t: w.write_ply(
            p / "a.ply",
            _shuffled(t),
            types={"label": "u1", "x": "f8", "rot_2": "f8"},
            header="obj_info x\nelement camera 2\nproperty short id\nproperty double t\n",
            before=bytes(20),
        ),
        w.EXACT,
        3,
    ),
    "ply with CloudCompare's names": (
        lambda p, t: w.write_ply(
            p / "a.ply",
            {
                k if k in "xyz" else f"scalar_{k}": v
                for k, v in w.ply_columns(t).items()
            },
        ),
        w.EXACT,
        1,
    ),
    "compressed ply": (
        lambda p, t: w.write_compressed_ply(p / "a.ply", t),
        COMPRESSED,
        3,
    ),
    "compressed ply without colour bounds": (
        lambda p, t: w.write_compressed_ply(p / "a.ply", t, False),
        COMPRESSED,
        0,
    ),
    "compressed ply as a text": (
        lambda p, t: _as_text(w.write_compressed_ply(p / "a.ply", t)),
        COMPRESSED,
        2,
    ),
    "splat": (lambda p, t: w.write_splat(p / "a.splat", t), SPLAT, 0),
    "splat in gzip": (
        lambda p, t: _gzipped(w.write_splat(p / "a.splat", t)),
        SPLAT,
        0,
    ),
    "spz 1": (
        lambda p, t: w.write_spz(p / "a.spz", t, 1),
        SPZ | {"means": 1e-3, "degrees": 9},
        3,
    ),
    "spz 2": (lambda p, t: w.write_spz(p / "a.spz", t, 2), SPZ | {"degrees": 9}, 2),
    "spz 3": (lambda p, t: w.write_spz(p / "a.spz", t), SPZ, 4),
    "spz 4": (
        lambda p, t: w.write_spz_4(p / "a.spz", t, zstandard.ZstdCompressor().compress),
        SPZ,
        3,
    ),
    "sog zip": (lambda p, t: w.write_zip(p / "a.sog", w.sog_files(t)), SOG, 3),
    "sog zip with a folder inside": (
        lambda p, t: w.write_zip(
            p / "a.zip", {f"scene/{k}": v for k, v in w.sog_files(t).items()}
        ),
        SOG,
        2,
    ),
    "sog folder": (lambda p, t: _folder(p / "scene", w.sog_files(t)), SOG, 1),
    "sog meta.json": (
        lambda p, t: _folder(p / "scene", w.sog_files(t)) / "meta.json",
        SOG,
        0,
    ),
    "sog of version 1": (
        lambda p, t: w.write_zip(p / "a.sog", w.sog_files(t, 1)),
        SOG | {"alpha": 0.02, "color": 0.025},
        3,
    ),
    "sog folder of version 1": (
        lambda p, t: _folder(p / "scene", w.sog_files(t, 1)),
        SOG | {"alpha": 0.02, "color": 0.025},
        0,
    ),
    "png folder": (
        lambda p, t: _folder(p / "compression", w.gsplat_png_files(_square(t))),
        PNG,
        3,
    ),
    "png zip": (
        lambda p, t: w.write_zip(p / "a.zip", w.gsplat_png_files(_square(t))),
        PNG,
        1,
    ),
    **{
        f"{kind} checkpoint": (
            lambda p, t, kind=kind: w.write_checkpoint(p / "a.pt", t, kind),
            w.EXACT,
            4,
        )
        for kind in ("gsplat", "inria", "nerfstudio", "mapping")
    },
}


@pytest.mark.parametrize(
    "family", ["ply", "compressed ply", "splat", "spz", "sog", "png", "checkpoint"]
)
def test_every_format_gives_the_same_scene(family: str, tmp_path: Path) -> None:
    for case, (write, tolerance, degree) in CASES.items():
        if not case.startswith(family) and not (
            family == "checkpoint" and case.endswith(family)
        ):
            continue
        t = w.truth(degree=degree)
        folder = tmp_path / case
        folder.mkdir()
        told: list[float] = []
        if family == "checkpoint":

            def read(path, progress):
                return read_tensors([path], progress).scene()
        else:
            read = open_file
        s = read(write(folder, t), lambda what, fraction: told.append(fraction))  # noqa: B023
        t = _square(t) if family == "png" else t
        assert told and told == sorted(told) and told[0] >= 0 and told[-1] == 1, told
        w.assert_same(s, t, tolerance)
        assert s.sh_degree == s.stored_sh_degree == degree
        assert not s.activated
        assert not s.antialiased
        assert s.notes == ()
        for name in FIELDS:
            assert (
                getattr(s, name).dtype
                in (torch.float32, torch.float64)[: 1 + (name == "means")]
            ), name
            assert getattr(s, name).is_contiguous(), name


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
    columns = {
        k: v
        for k, v in w.ply_columns(t).items()
        if not k.startswith(("f_dc", "scale_1", "scale_2"))
    }
    columns |= dict(zip(names.split(), white * rgb.T, strict=True))
    s = open_file(
        w.write_ply(
            tmp_path / "a.ply", columns, types=dict.fromkeys(names.split(), kind)
        )
    )
    np.testing.assert_allclose(w.SH_C0 * s.sh0 + 0.5, rgb, atol=1e-6)
    np.testing.assert_array_equal(
        s.scales, np.repeat(t.scales[:, :1], 3, axis=1)
    )  # one scale for all axes


def test_files_in_gzip_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    """Also from memory snapshots; names say nothing but of .splat, which has no mark of its own."""
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


def test_no_gaussians_is_a_legal_scene(tmp_path: Path) -> None:
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
        assert len(s) == 0 and s.sh_degree == 2 and s.quats.shape == (0, 4), path


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
            "vertical axis 'w' is unknown (known: -y, +y, +z, -z, +x, -x); up is guessed",
        ),
        ("SplatRenderMode: 2DGS", False, None, ""),
        ("SplatRenderMode: ray", False, None, "render mode 'ray' is unknown"),
    ],
)
def test_comments_of_a_ply_name_its_mode_and_what_is_up(
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
    """A folder as inria's train.py writes it, with a scene of one more Gaussian for each iteration."""
    for i, iteration in enumerate(iterations):
        folder = path / "point_cloud" / f"iteration_{iteration}"
        folder.mkdir(parents=True)
        w.write_ply(folder / "point_cloud.ply", w.ply_columns(w.truth(5 + i)))
    for name, text in files.items():
        (path / name.replace("_json", ".json")).write_text(text)
    return path


def test_folder_of_a_training_opens_as_its_last_iteration(tmp_path: Path) -> None:
    # Two cameras that look along -z and -x, both upright: y of a picture, the second column, is down.
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
    (folder / "point_cloud" / "iteration_99999").mkdir()  # its scene is not there yet
    for path in (folder, folder / "point_cloud"):
        scene = open_file(path)
        assert len(scene) == 6
        assert scene.background == (1, 1, 1)
        assert scene.up == (0, 1, 0)
        assert scene.notes == ("iteration 30000, the last of 3",)
    assert len(open_file(folder / "point_cloud" / "iteration_900")) == 7


def test_coarse_scenes_open_where_there_are_no_fine_ones(tmp_path: Path) -> None:
    """As hustvl/4DGaussians writes them."""
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


def test_folder_of_a_training_opens_without_what_is_beside_its_scenes(
    tmp_path: Path,
) -> None:
    scene = open_file(_training(tmp_path / "a", 7))
    assert (scene.background, scene.up, scene.notes) == (None, None, ())
    for i, text in enumerate(("[{}]", "{", '[{"rotation": [[1, 2]]}]')):
        scene = open_file(_training(tmp_path / f"b{i}", 7, cameras_json=text))
        assert len(scene) == 5
        assert "cameras.json beside it" in scene.notes[0]


def test_flags_and_meta_json_name_the_mode(tmp_path: Path) -> None:
    files = w.sog_files(T)
    assert open_file(w.write_spz(tmp_path / "a.spz", T, flags=1)).antialiased
    for said, mip in (
        ({"model": "antialiased"}, True),
        ({"model": "default", "antialias": True}, False),
        ({"antialias": True}, True),
        ({"model": None}, False),
    ):
        changed = files | {
            "meta.json": json.dumps(json.loads(files["meta.json"]) | said).encode()
        }
        scene = open_file(w.write_zip(tmp_path / "a.sog", changed))
        assert (scene.antialiased, scene.notes) == (mip, ()), said


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
def test_spz_is_turned_from_the_axes_that_it_names(
    version: int, tmp_path: Path
) -> None:
    """The numbers of `splat-types.h`; a scene of every system is the same scene."""
    t = w.truth(40, degree=4)
    compress = zstandard.ZstdCompressor().compress
    for number, name in [*enumerate(SPZ_SYSTEMS, 1)][:: 1 if version == 3 else 3]:
        axes = np.stack([TOWARDS[letter] for letter in name], 1)
        # The first that names axes counts; another vendor's before it is passed over.
        extensions = struct.pack(
            "<II4xIIIIII", 7, 4, 0xADBE0003, 4, number, 0xADBE0003, 4, 1
        )
        if version == 4:
            path = w.write_spz_4(tmp_path / "a.spz", t, compress, extensions, axes)
        else:
            path = w.write_spz(tmp_path / "a.spz", t, version, 2, extensions, axes)
        scene = open_file(path)
        w.assert_same(scene, t, SPZ | {"degrees": 9 if version < 3 else 0.25})
        assert scene.notes == (
            "SPZ extensions in this file are ignored: 0x00000007",
        ), name


def test_spz_axes_that_are_unspecified_unknown_or_cut_off_are_right_up_back(
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


@pytest.mark.filterwarnings("ignore")  # whatever numba has to say while it compiles
def test_another_program_reads_the_same(tmp_path: Path) -> None:
    gsply = pytest.importorskip("gsply")
    t = w.truth(700)
    # the ends of the range, where gsply and PlayCanvas round apart by 1/64
    t.shN[0] = 5.0
    t.shN[1] = -5.0
    path = w.write_compressed_ply(tmp_path / "a.compressed.ply", t)
    mine = open_file(path)
    theirs = gsply.plyread(path)
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(mine, name),
            getattr(theirs, name).reshape(getattr(mine, name).shape),
            atol=1 / 64 + 1e-5 if name == "shN" else 1e-5,
            err_msg=name,
        )
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
    own = open_file(w.write_spz(tmp_path / "a.spz", t))
    other = open_file(tmp_path / "b.spz")
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(own, name),
            getattr(other, name),
            atol=2e-3 if name == "quats" else 1e-5,
        )


def test_pictures(tmp_path: Path) -> None:
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
        image = Image.fromarray(smooth[..., :3] if mode == "P" else smooth).convert(
            mode
        )
        how = {"jpg": {"quality": 100}, "webp": {"lossless": True, "exact": True}}.get(
            form, {}
        )
        image.save(tmp_path / f"a.{form}", **how)
        got = open_file(tmp_path / f"a.{form}")
        expected = np.asarray(
            image.convert(["L", "LA", "RGB", "RGBA"][channels - 1])
        ).reshape(30, 20, channels)
        assert got.shape == expected.shape
        assert got.dtype == np.uint8
        assert np.abs(got.astype(int) - expected).max() <= (
            6 if form == "jpg" else 0
        ), (form, mode)
    sixteen = np.arange(600, dtype=np.uint16).reshape(30, 20) * 100
    for form in ("png", "tif"):
        Image.fromarray(sixteen).save(tmp_path / f"a.{form}")
        got = open_file(tmp_path / f"a.{form}")
        np.testing.assert_array_equal(got, sixteen[..., None])
    Image.fromarray(sixteen / np.float32(6e4)).save(tmp_path / "b.tif")
    got = open_file(tmp_path / "b.tif")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, sixteen[..., None] / np.float32(6e4))


def test_pictures_that_pillow_does_not_know_are_told_without_addresses(
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
def test_pictures_are_photographs_of_cameras(form: str, tmp_path: Path) -> None:
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
def test_npy_pictures(shape, dtype, out, tmp_path):
    a = (np.arange(np.prod(shape)).reshape(shape) / 200).astype(dtype)
    np.save(tmp_path / "a.npy", a)
    got = open_file(tmp_path / "a.npy")
    assert isinstance(got, np.ndarray)
    assert got.shape == out
    assert got.dtype == (
        np.float32 if a.dtype.kind == "f" else a.dtype.newbyteorder("=")
    )
    np.testing.assert_allclose(
        got, np.moveaxis(a, 0, -1) if shape == (3, 5, 7) else a.reshape(out), rtol=1e-6
    )


@pytest.mark.parametrize("form", ["ply", "text", "checkpoint", "uploaded"])
def test_positions_far_away_keep_their_detail(form: str, tmp_path: Path) -> None:
    t = w.truth(30, degree=0)
    t.means = t.means / 1000 + np.array([4_210_000.0, -170_000, 4_780_000])  # 4 mm wide
    if form == "checkpoint":
        path = w.write_checkpoint(tmp_path / "a.pt", t)
    else:
        path = w.write_ply(
            tmp_path / "a.ply",
            w.ply_columns(t),
            types=dict.fromkeys("xyz", "f8"),
            order="a" if form == "text" else "<",
        )
    if form == "uploaded":
        given = read_untrusted(path)
    elif form == "checkpoint":
        given = read_tensors([path], silent).scene()
    else:
        given = open_file(path)
    assert isinstance(given, GaussianScene)
    back = open_file(write_ply(activated(given), tmp_path / "saved.ply")[0])
    for s in (given, back, unpack(pack(given))):
        np.testing.assert_allclose(s.means, t.means, rtol=0, atol=2e-9)
    write_packed(tmp_path / "packed", pack(given))
    np.testing.assert_array_equal(
        read_packed(tmp_path / "packed").arrays["means"], given.means
    )


# -- written again -----------------------------------------------------------------------------------------------------


def test_a_scene_and_a_part_of_it_are_written(tmp_path: Path) -> None:
    """Without what has no opacity; the next one with a number behind its name."""
    given = activated(random_scene(1, Chance(n=500, sh_degree=3)))
    assert write_ply(given, tmp_path / "scene.ply") == (tmp_path / "scene.ply", 500)
    back = open_file(tmp_path / "scene.ply")
    assert not back.antialiased
    assert not back.notes
    np.testing.assert_array_equal(back.shN, given.shN)
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(activated(back), name), getattr(given, name), rtol=2e-5, atol=1e-6
        )
    given = replace(given, opacities=given.opacities * (torch.arange(500) >= 10))
    path, count = write_ply(
        given, tmp_path / "scene.ply", keep=torch.arange(500) % 2 == 0
    )
    assert (path, count) == (tmp_path / "scene-2.ply", 245)
    np.testing.assert_array_equal(open_file(path).means, given.means[10::2])


def test_nothing_is_left_of_what_fails(tmp_path: Path) -> None:
    given = activated(random_scene(1, Chance(n=5)))

    def fail(what: str, share: float) -> None:
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_ply(given, tmp_path / "a.ply", progress=fail)
    with pytest.raises(FileError, match="none of the Gaussians"):
        write_ply(given, tmp_path / "a.ply", keep=torch.zeros(5, dtype=torch.bool))
    with pytest.raises(FileError, match="missing"):
        write_ply(given, tmp_path / "missing" / "a.ply")
    assert not list(tmp_path.iterdir())
