"""Fixtures of the frozen behaviour: input files, and a viewer of them that serves tabs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from support import frozen
from support.programs import Programs
from support.scene_files import ply_columns, write_ply

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two scenes, a picture and two memory snapshots."""
    folder = tmp_path_factory.mktemp("inputs")
    for name, seed in (("scene", 0), ("other", 1)):
        write_ply(folder / f"{name}.ply", ply_columns(frozen.truth(seed)))
    Image.fromarray(frozen.picture()).save(folder / "picture.png")
    for name in ("memory.pickle", "after.pickle"):  # a training of four steps, and the same with 12 MiB more at its end
        shutil.copy(frozen.FOLDER / name, folder)
    return folder


@pytest.fixture(scope="module")
def served(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """Port and token of a viewer of four files. Tabs of different ids do not disturb each other."""
    folder = tmp_path_factory.mktemp("served")
    with Programs(inputs) as programs:
        yield frozen.serve(programs, "scene.ply", "other.ply", "picture.png", "memory.pickle",
                           SPLATVIEW_RUNTIME_DIR=str(folder / "run"), XDG_STATE_HOME=str(folder / "state"),
                           XDG_CACHE_HOME=str(folder / "cache"))


