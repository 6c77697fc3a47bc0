"""Programs that signals end, whose streams are full or broken, and what killed or
interrupted ones leave.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.programs import Program, Programs
from support.wait import PATIENCE_S, wait_until
from support.web_clients import Page

import splatview
from splatview.cli.main import main
from splatview_ipc.control.registry import Announcement, RunningViewer, list_viewers

pytestmark = pytest.mark.programs


def upload(viewer: RunningViewer) -> Page:
    """A page that has sent a file to a viewer; it stays connected."""
    port = viewer.port
    token = viewer.url.partition("?token=")[2]
    page = Page(port).connect(token=token)
    welcome = page.greet()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    client.request(
        "POST",
        "/upload?name=scene.ply",
        b"content",
        {
            "Origin": f"http://127.0.0.1:{port}",
            "X-Splatview-Page": welcome.key,
            "X-Splatview-Token": token,
        },
    )
    assert client.getresponse().status == 200
    client.close()
    return page


def test_killed_viewer_and_one_that_a_signal_ended_leave_nothing(
    programs: Programs, tmp_path: Path, runtime_dir: Path
) -> None:
    """The next viewer removes the files of the killed one."""
    saved_picture = tmp_path / "kept"
    saved_picture.mkdir()

    def serving() -> tuple[Program, Page]:
        program = programs.splatview(
            "serve",
            "--web",
            "--port",
            "0",
            DISPLAY="",
            WAYLAND_DISPLAY="",
            TMPDIR=str(saved_picture),
        )

        def find_viewers() -> list[RunningViewer]:
            assert program.poll() is None, "the viewer ended"
            return [v for v in list_viewers() if v.pid == program.pid]

        (viewer,) = wait_until(find_viewers)
        return program, upload(viewer)

    first, page = serving()
    first.killed()
    page.end()
    (left,) = saved_picture.glob("splatview-files-*")
    assert (
        len(list(left.glob("*/scene.ply"))),
        len(list(runtime_dir.glob("viewer-*.json"))),
    ) == (1, 1)
    # The folder has to be a minute old: a younger one may be about to be locked.
    os.utime(left, (0, 0))
    second, page = serving()
    wait_until(lambda: not left.exists(), "the files of the killed viewer are removed")
    assert len(list(runtime_dir.glob("viewer-*.json"))) == 1
    second.send_signal(signal.SIGHUP)
    assert second.wait(PATIENCE_S) == 0
    page.end()
    assert "Traceback" not in second.end()[1]
    assert list(saved_picture.glob("*splatview-*")) == []
    assert list(runtime_dir.iterdir()) == []


TRAINER = """
import torch, splatview
from splatview_ipc.control.registry import Announcement
splatview.publish(torch.zeros(4, 4))
announced = Announcement("http://127.0.0.1:7010/", host="127.0.0.1", port=7010)
print("ready", flush=True)
input()
"""


@pytest.mark.soak
def test_files_of_dead_programs_are_removed_by_the_next_one(
    programs: Programs,
    tmp_path: Path,
    runtime_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Stopped ones stay, and `status` says that they do not answer."""

    def status() -> None:
        assert main(["status"]) == 0

    def publish() -> None:
        splatview.publish(torch.zeros(4, 4))
        splatview.close()

    def frames() -> None:
        with splatview.frames("image") as frames, pytest.raises(TimeoutError):
            frames.latest(0)

    trainer = programs.code(TRAINER)
    assert trainer.line() == "ready"
    trainer.send_signal(signal.SIGSTOP)
    assert main(["status", "--json"]) == 0
    assert "does not answer" in json.loads(capsys.readouterr().out)["runs"][0]["note"]
    trainer.killed()
    subprocess.run(
        ["cp", "-a", runtime_dir, tmp_path / "left"], check=True
    )  # sockets, too
    assert len(list(runtime_dir.iterdir())) == 2
    for observe in (status, publish, frames):
        observe()
        assert [
            p for p in runtime_dir.iterdir() if p.is_dir() or observe is status
        ] == [], observe
        subprocess.run(["cp", "-a", f"{tmp_path}/left/.", runtime_dir], check=True)


# -- text of others --------------------------------------------------------------------


EVIL = "a\x1b[31m\n\u202e\u200b\x9b2J\x07 \u00e4\u72d0"
OBEYED = [c for c in EVIL if not c.isprintable()]


def test_status_prints_nothing_that_a_terminal_obeys(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run, a stream of it and a viewer have hostile names, and the terminal knows
    ASCII alone.
    """
    monkeypatch.setenv("SPLATVIEW_NAME", EVIL)

    def accept_any_name(name: str) -> None:
        pass

    # A trainer of another program checks no names.
    monkeypatch.setattr("splatview.adapters.checks.stream_name", accept_any_name)
    splatview.publish(torch.zeros(4, 4), EVIL)
    with Announcement("http://127.0.0.1:7013/", host="127.0.0.1", port=7013, run=EVIL):
        output, errors = programs.splatview(
            "status", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"
        ).end()
    assert errors == ""
    assert not any(c in output.replace("\n", "") for c in OBEYED)
    assert len(output.splitlines()) == 3, "a name makes no line of its own"
    assert output.count("a\\x1b[31m\\n\\u202e") == 3


COMMAND = """
import os, sys
from PIL import Image
from splatview_ipc.system import entry
from splatview_viewer.__main__ import main

class Halting:
    def __init__(self, file):
        self.file = file
    def write(self, data):
        self.file.write(data[:1])
        self.file.flush()
        print(*os.listdir("out"), flush=True)
        sys.stdin.readline()

save = Image.Image.save
Image.Image.save = lambda self, file, *args, **more: save(self, Halting(file), *args, **more)
sys.exit(entry.run(lambda: main(sys.argv[1:])))
"""
"""A command that prints what is in the folder when it has begun to write a picture, and
waits."""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_command_interrupted_while_it_writes_leaves_the_old_file(
    signal_number: int, tmp_path: Path, programs: Programs
) -> None:
    (tmp_path / "out").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "in.png")
    (tmp_path / "out" / "out.png").write_bytes(b"old")
    program = programs.code(COMMAND, "shot", "out/out.png", "in.png")
    assert ".part" in program.line()
    program.send_signal(signal_number)
    _, errors = program.end()
    assert (program.returncode, "Traceback" in errors) == (128 + signal_number, False)
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == {
        "out.png": b"old"
    }
