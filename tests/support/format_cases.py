"""Ways to write the same scene as a file of each format."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from splatview_viewer.scene.scene import FIELDS
from support import scene_files as w

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


def square(t):
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


def ply_with_lists(path, t, order="<"):
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


def gzipped(path):
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
    return ply_with_lists(folder / "a.ply", t)


@case("ply with lists, big endian", w.EXACT, 1)
def _write_big_endian_ply_with_lists(folder, t):
    return ply_with_lists(folder / "a.ply", t, ">")


@case("ply with lists, as a text", w.EXACT, 1)
def _write_text_ply_with_lists(folder, t):
    return ply_with_lists(folder / "a.ply", t, "a")


@case("ply with lists in it", w.EXACT, 1)
def _write_ply_with_lists_inside(folder, t):
    return _with_lists_inside(folder / "a.ply", t)


@case("ply in gzip", w.EXACT, 1)
def _write_gzipped_ply(folder, t):
    return gzipped(_write_plain_ply(folder, t))


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
    return gzipped(_write_splat(folder, t))


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
    return _folder(folder / "compression", w.gsplat_png_files(square(t)))


@case("png zip", PNG, 1)
def _write_png_zip(folder, t):
    return w.write_zip(folder / "a.zip", w.gsplat_png_files(square(t)))


def _write_checkpoint(folder, t, layout):
    return w.write_checkpoint(folder / "a.pt", t, layout)


for _layout in ("gsplat", "inria", "nerfstudio", "mapping"):
    _write = partial(_write_checkpoint, layout=_layout)
    case(f"{_layout} checkpoint", w.EXACT, 4)(_write)


def cases_of(family: str) -> dict[str, FormatCase]:
    if family == "checkpoint":
        return {n: c for n, c in CASES.items() if n.endswith(family)}
    return {n: c for n, c in CASES.items() if n.startswith(family)}
