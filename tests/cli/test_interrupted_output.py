"""A command that is interrupted while it writes leaves nothing half written, and the old file as it was."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from support.scene_files import ply_columns, truth, write_ply

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Program, Programs

COMMAND = """
import os, sys
from splatview_ipc.system import entry
from splatview_viewer.__main__ import main
from splatview_viewer.formats import camera_paths as writers

def halt():
    print(*os.listdir("out"), flush=True)
    sys.stdin.readline()

class Halting:
    def __init__(self, file):
        self.file = file
    def write(self, data):
        self.file.write(data[:1])
        self.file.flush()
        halt()

if sys.argv[1] == "shot":
    from PIL import Image
    save = Image.Image.save
    Image.Image.save = lambda self, file, *args, **more: save(self, Halting(file), *args, **more)
else:
    add = writers.Mp4.add
    writers.Mp4.add = lambda self, picture: (add(self, picture), halt())
sys.exit(entry.run(lambda: main(sys.argv[1:])))
"""
"""A command that prints what is in the folder when it has begun to write, and waits."""


def interrupted(program: Program, number: int) -> str:
    """Send a signal to a program that has begun to write. What it said as an error."""
    assert ".part" in program.line()
    program.send_signal(number)
    _, errors = program.end()
    assert program.returncode == 128 + number, errors
    return errors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_shot_interrupted_while_it_writes(folder: Path, tmp_path: Path, programs: Programs) -> None:
    Image.new("RGB", (64, 48)).save(tmp_path / "in.png")
    (folder / "out.png").write_bytes(b"old")
    assert interrupted(programs.code(COMMAND, "shot", "out/out.png", "in.png"), signal.SIGINT) == ""
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"out.png": b"old"}


def test_video_interrupted_while_it_writes(folder: Path, tmp_path: Path, programs: Programs) -> None:
    pytest.importorskip("av")
    write_ply(tmp_path / "scene.ply", ply_columns(truth(50)))
    program = programs.code(COMMAND, "video", "out/out.mp4", "scene.ply", "--size", "320x240", "--seconds", "10")
    assert "Traceback" not in interrupted(program, signal.SIGTERM)
    assert os.listdir(folder) == []
