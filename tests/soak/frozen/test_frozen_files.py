"""Pictures of every format of file, as `splatview shot` and `splatview memory --png` write them, and films."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import frozen
from support import scene_files as files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCENES: dict[str, Callable[[Path, Any], object]] = {
    "scene.ply": lambda path, t: files.write_ply(path, files.ply_columns(t)),
    "scene.compressed.ply": files.write_compressed_ply,
    "scene.splat": files.write_splat,
    "scene.spz": files.write_spz,
    "scene.sog": lambda path, t: files.write_zip(path, files.sog_files(t)),
    "gsplat.pt": lambda path, t: files.write_checkpoint(path, t, "gsplat"),
    "inria.pt": lambda path, t: files.write_checkpoint(path, t, "inria"),
    "nerfstudio.ckpt": lambda path, t: files.write_checkpoint(path, t, "nerfstudio"),
}
CAMERA = json.dumps({"position": [1.5, -1.5, -3.5], "look_at": [0, 0.2, 0]})


def test_scenes_of_every_format_look_as_frozen(tmp_path: Path) -> None:
    for name, write in SCENES.items():
        write(tmp_path / name, frozen.truth())
    commands = {name: ("shot", f"{name}.png", name, "--camera", CAMERA, "--size", "160x120") for name in SCENES}
    for name, (code, out, err) in frozen.run_all(commands, tmp_path).items():
        assert (code, out, err) == (0, f"{name}.png: 160 x 120\n", "")
        frozen.check_picture(f"file-{name}", frozen.pixels_of(tmp_path / f"{name}.png"), tmp_path)


@pytest.mark.usefixtures("timeline_kernels")
def test_other_files_and_films_look_as_frozen(inputs: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.moveaxis(frozen.picture(), 2, 0).astype(np.float32) / 255)
    scene, small = inputs / "scene.ply", ("--size", "160x120")
    done = frozen.run_all({
        "file-array": ("shot", "file-array.png", "array.npy"),
        "file-fitted": ("shot", "file-fitted.png", inputs / "picture.png", *small, "--background", "0,128,255"),
        "file-transparent": ("shot", "file-transparent.png", scene, *small, "--background", "transparent"),
        "snapshot": ("memory", inputs / "memory.pickle", "--png", "snapshot.png", "--size", "480x240"),
        "film": ("video", "film", scene, *small, "--fps", "1", "--seconds", "2"),
    }, tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert all(code == 0 for code, _, _ in done.values()), done
    (tmp_path / "film" / "000001.png").rename(tmp_path / "film.png")
    for name in done:
        frozen.check_picture(name, frozen.pixels_of(tmp_path / f"{name}.png"), tmp_path)
    assert sorted(path.name for path in (tmp_path / "film").iterdir()) == ["000000.png"]
    assert frozen.pixels_of(tmp_path / "file-transparent.png").shape == (120, 160, 4)
