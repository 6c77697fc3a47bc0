"""Data sets of `splatview demo --data`.

A data set is several files: a target takes one of them, beside well-formed others.
"""

from __future__ import annotations

import io
import json
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from support import scene_files as w

from fuzz import target
from fuzz.files import folder
from splatview.demo import DemoError, datasets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIDE, VIEWS = 8, 3


@contextmanager
def refused(error: type[Exception]) -> Iterator[None]:
    """Accept one class of errors, if its text is short and can be printed."""
    try:
        yield
    except error as e:
        assert 0 < len(str(e)) < 4000, str(e)[:200]
        str(e).encode()


def _picture() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), (10, 200, 5)).save(out, "PNG")
    return out.getvalue()


def colmap_files() -> dict[str, bytes]:
    """A binary model of three pictures and two points, by file name."""
    pose = (1.0, 0.0, 0.0, 0.0, 0.5, 0.0, 3.0)
    images = struct.pack("<Q", VIEWS)
    for i in range(VIEWS):
        images += struct.pack("<i7di", i + 1, *pose, 7) + f"{i}.png\0".encode() + struct.pack("<Q", 0)
    points = struct.pack("<Q", 2) + b"".join(struct.pack("<Q3d3BdQ", i, i, 1, 2, 9, 8, 7, 0.5, 0) for i in range(2))
    return {"cameras.bin": struct.pack("<QiiQQ4d", 1, 7, 1, SIDE, SIDE, 9, 9, 4, 4), "images.bin": images,
            "points3D.bin": points}


TRANSFORMS = {"fl_x": 9.0, "w": SIDE, "h": SIDE, "frames": [
    {"file_path": f"images/{i}.png", "transform_matrix": np.eye(4).tolist()} for i in range(VIEWS)]}


def data_set(name: str) -> Path:
    """A folder with the pictures and nothing else."""
    root = folder() / name
    (root / "images").mkdir(parents=True, exist_ok=True)
    for i in range(VIEWS):
        (root / "images" / f"{i}.png").write_bytes(_picture())
    return root


def _load(source: Path) -> None:
    with w.little_memory(), refused(DemoError), np.errstate(all="ignore"):
        datasets.load(source, pixels=100, max_points=50)


def _colmap(name: str) -> None:
    @target(f"colmap_{name.replace('.', '_')}", lambda: [colmap_files()[name]])
    def run(data: bytes) -> None:
        root = data_set(f"colmap-{name}")
        sparse = root / "sparse" / "0"
        sparse.mkdir(parents=True, exist_ok=True)
        for other, content in colmap_files().items():
            (sparse / other).write_bytes(data if other == name else content)
        _load(root)


for _name in colmap_files():
    _colmap(_name)


@target("transforms_json", lambda: [json.dumps(TRANSFORMS).encode()])
def _transforms(data: bytes) -> None:
    path = data_set("transforms") / "transforms.json"
    path.write_bytes(data)
    _load(path)
