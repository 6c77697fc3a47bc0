"""`splatview serve` and `shot` on bad input: a message that helps, exit code 2, no traceback."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.wait import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs


def run(programs: Programs, folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    programs.folder = folder
    process = programs.splatview(*args, **env)
    out, err = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Image.fromarray(np.full((8, 8, 3), 200, np.uint8)).save(tmp_path / "good.png")
    (tmp_path / "junk.ply").write_text("hello")
    (tmp_path / "points.ply").write_text("ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nproperty float y\n"
                                         "property float z\nend_header\n0 0 0\n")
    return tmp_path


@pytest.mark.parametrize("command", [("serve", "--offscreen"), ("shot", "out.png")])
@pytest.mark.parametrize(("file", "words"), [
    ("missing.ply", ["missing.ply", "no such file"]), ("junk.ply", ["junk.ply", "damaged"]),
    ("points.ply", ["points.ply", "opacity"]), (".", ["meta.json"]),
])
def test_files_that_cannot_be_read(programs: Programs, folder: Path, command: tuple[str, ...], file: str,
                                   words: list[str]) -> None:
    refused(run(programs, folder, *command, file), *words)


def test_one_bad_file_among_good_ones_does_not_end_the_viewer(folder: Path, programs: Programs,
                                                                  wait_until: Callable[..., Any]) -> None:
    viewer = programs.splatview("serve", str(folder / "junk.ply"), str(folder / "good.png"), "--offscreen", "--out",
                               str(folder / "shown.png"))
    wait_until(lambda: (folder / "shown.png").exists() or viewer.poll() is not None)
    assert viewer.poll() is None
    viewer.terminate()
    assert viewer.wait(timeout=PATIENCE) == 0
    assert (folder / "shown.png").exists()


def test_what_cannot_work_is_said(programs: Programs, folder: Path) -> None:
    refused(run(programs, folder, "serve", "--offscreen", SPLATVIEW_RUNTIME_DIR="/proc/nowhere"), "/proc/nowhere",
            "SPLATVIEW_RUNTIME_DIR")
    refused(run(programs, folder, "serve", "--offscreen", __EGL_VENDOR_LIBRARY_FILENAMES="/none.json"),
            "apt-get install libegl1", "libgl1-mesa-dri")
    refused(run(programs, folder, "serve", "--window", DISPLAY=":4711", WAYLAND_DISPLAY=""), ":4711", "--offscreen")
    refused(run(programs, folder, "serve", "--window", "--offscreen"), "exclude each other")
    refused(run(programs, folder, "serve", "--size", "wide"), "'wide'", "1280x720")
    refused(run(programs, folder, "serve", "--max-fps", "0"), "--max-fps")
    refused(run(programs, folder, "serve", "--nonsense"))
    refused(run(programs, folder, "shot"))
    refused(run(programs, folder, "shot", "no/such/folder/out.png", "good.png"), "folder")
    refused(run(programs, folder, "shot", "out.png", "--stream", "a/b"), "no run is publishing")
    refused(run(programs, folder, "shot", "out.png", "--stream", "x" * 10_000), "no run is publishing")
    refused(run(programs, folder, "shot", "out.png", "good.png", "--camera", "{}"), "camera")
    refused(run(programs, folder, "shot", "out.png", "good.png", "--background", "1,2"), "'1,2'")
