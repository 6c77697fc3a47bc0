"""Packages of the extras: what is said where one is missing, and that nothing else needs them."""

from __future__ import annotations

import pickle
import shlex
import sys
from typing import TYPE_CHECKING

import pytest
from support import messages
from support.memory_data import block, event, segment, snapshot
from support.scene_files import ply_columns, truth, write_ply

from splatview.cli import doctor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALL = ("numba", "duckdb", "av", "cv2", "onnxruntime")
MEMORY = "splatview: memory snapshots need numba: pip install 'splatview[memory]'"
MESSAGES = {
    "memory small.pickle": MEMORY,
    "memory small.pickle --sql 'SELECT 1'": MEMORY.replace("memory snapshots need numba",
                                                         "SQL over memory snapshots needs duckdb"),
    "shot a.png small.pickle": MEMORY,
    "video a.mp4 scene.ply":
        "splatview: a.mp4: an mp4, unlike a folder of PNGs, needs PyAV: pip install 'splatview[video]'",
    "camera scene.ply":
        "splatview camera: scene.ply: reading it needs PyAV: pip install 'splatview[video]'",
    "camera 'a ! b'":
        "splatview camera: a ! b: reading it needs OpenCV: pip install 'splatview[camera]'",
    "camera test --detect people --no-viewer":
        "splatview camera: --detect people needs OpenCV: pip install 'splatview[camera]'",
    "camera test --detect network.onnx --no-viewer":
        "splatview camera: --detect network.onnx needs onnxruntime and OpenCV: pip install 'splatview[camera]'",
}


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Hide modules from this process."""
    def hide(*modules: str) -> None:
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)

    return hide


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    events = [event("alloc", 0x1000, 700), event("alloc", 0x2000, 300)]
    made = snapshot(events, [segment(0x1000, [block(0x1000, 1024, requested=700)])])
    (tmp_path / "small.pickle").write_bytes(pickle.dumps(made))
    (tmp_path / "network.onnx").write_bytes(b"")
    write_ply(tmp_path / "scene.ply", ply_columns(truth(20)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("command", MESSAGES)
def test_commands_name_the_extra_and_end(command: str, files: Path, absent: Callable[..., None]) -> None:
    before = {path.name for path in files.iterdir()}
    absent(*ALL)
    assert messages.run(shlex.split(command)) == (2, MESSAGES[command])
    assert {path.name for path in files.iterdir()} - before <= {"cache"}


def test_doctor_takes_a_missing_extra_for_no_fault(absent: Callable[..., None]) -> None:
    absent(*ALL)
    for extra in ("memory", "video", "camera"):
        found = doctor.CHECKS[extra]()
        assert (found.state, found.mend) == ("absent", f"pip install 'splatview[{extra}]'")
