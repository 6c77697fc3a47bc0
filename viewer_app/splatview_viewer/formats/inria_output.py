"""The folder that inria's train.py and its many descendants write: the last iteration.

Scenes are in point_cloud/iteration_N/point_cloud.ply. Beside them cfg_args says which
background the training had, and cameras.json where its cameras stood, and thereby what
is up.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats import ply
from splatview_viewer.formats.common import (
    Fields,
    Format,
    Progress,
    Start,
    check_json,
    fault_text,
)
from splatview_viewer.geometry.upward import snap_to_axis, up_of_cameras

if TYPE_CHECKING:
    from pathlib import Path

ITERATION = re.compile(r"(coarse_)?iteration_([0-9]{1,12})")
"""hustvl/4DGaussians trains a coarse scene first, whose iterations are counted by
themselves."""
SCENE = "point_cloud.ply"
SIDE_LIMIT = 64 << 20
"""Bytes of a cfg_args or cameras.json. A camera takes some 400."""
WHITE = (1.0, 1.0, 1.0)


def find_scenes(folder: Path) -> list[Path]:
    """Return the scenes of a folder, ascending by iteration, coarse ones first.

    Args:
        folder: the folder of a training, its point_cloud, or one iteration.
    """
    alone = folder / SCENE
    if ITERATION.fullmatch(folder.name) and alone.is_file():
        return [alone]
    scenes: list[tuple[bool, int, Path]] = []
    for parent in (folder / "point_cloud", folder):
        if not parent.is_dir():
            continue
        for entry in parent.iterdir():
            match = ITERATION.fullmatch(entry.name)
            if match is not None and (entry / SCENE).is_file():
                scenes.append((match[1] is None, int(match[2]), entry / SCENE))
        if scenes:
            break
    return [path for _, _, path in sorted(scenes)]


def read_output_folder(path: Path, progress: Progress) -> Fields:
    """Read the Gaussians of the last iteration in a folder."""
    scenes = find_scenes(path)
    if not scenes:
        raise FileError(f"no point_cloud/iteration_N/{SCENE} in the folder")
    scene = scenes[-1]
    fields = ply.read_ply(scene, progress)
    iteration = scene.parent.name.rpartition("_")[2]
    notes = fields.scene_facts.notes
    if len(scenes) > 1:
        notes += (f"iteration {iteration}, the last of {len(scenes)}",)
    background = None
    up = fields.scene_facts.up
    root = _root_of(scene)
    try:
        background = _background(root)
        if up is None:
            up = _up(root)
    except Exception as e:
        # Damaged side files raise anything, as readers do; the scene is shown without.
        notes += (f"cfg_args or cameras.json beside it: {fault_text(e)}",)
    scene_facts = msgspec.structs.replace(
        fields.scene_facts, notes=notes, up=up, background=background
    )
    return Fields(*fields.arrays, scene_facts=scene_facts)


def find_parts(path: Path) -> list[Path]:
    """Return the files of the last iteration in a folder: the scene and side files."""
    scene = find_scenes(path)[-1]
    root = _root_of(scene)
    side_files = (root / "cfg_args", root / "cameras.json")
    return [scene, *(path for path in side_files if path.is_file())]


def _root_of(scene: Path) -> Path:
    """Return the folder of the training that wrote a scene."""
    folder = scene.parent.parent
    if folder.name == "point_cloud":
        return folder.parent
    return folder


def _read_side_file(root: Path, name: str) -> str:
    """Read the text of a file of a training, "" where there is none.

    Raises FileError, OSError.
    """
    try:
        with open_regular(root / name) as f:
            data = f.read(SIDE_LIMIT + 1)
    except FileNotFoundError:
        return ""
    if len(data) > SIDE_LIMIT:
        raise FileError(f"{name} has more than {SIDE_LIMIT >> 20} MB")
    return data.decode("utf-8-sig", errors="replace")


def _background(root: Path) -> tuple[float, float, float] | None:
    """Return white where a training had a white background, otherwise None.

    Scenes are shown on black anyway.
    """
    is_white = re.search(
        r"\bwhite_background=True\b", _read_side_file(root, "cfg_args")
    )
    if is_white:
        return WHITE
    return None


def _up(root: Path) -> tuple[float, float, float] | None:
    """Return the direction upward, guessed from the cameras of a training.

    Their rotations are camera to world, in OpenCV axes.
    """
    text = _read_side_file(root, "cameras.json")
    if not text:
        return None
    check_json(len(text), "cameras.json")
    cameras: Any = json.loads(text)
    if not isinstance(cameras, list) or not cameras:
        return None
    rotations = np.array([camera["rotation"] for camera in cameras], np.float64)
    viewmats = np.tile(np.eye(4), (len(cameras), 1, 1))
    viewmats[:, :3, :3] = rotations.reshape(-1, 3, 3).transpose(0, 2, 1)
    up = up_of_cameras(viewmats)
    if up is None:
        return None
    x, y, z = snap_to_axis(up).tolist()
    return x, y, z


def _is_output(start: Start) -> bool:
    return start.path.is_dir() and bool(find_scenes(start.path))


INRIA = Format(
    "inria",
    ("point_cloud/",),
    "the folder that inria's train.py writes: its last iteration",
    _is_output,
    read_output_folder,
    parts=find_parts,
)
