"""Signals that end programs, and what killed ones leave: it goes with the next."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.wait import PATIENCE
from support.web_clients import Page

import splatview
from splatview.cli.main import main
from splatview_ipc.control.registry import ViewerInfo, viewers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Program, Programs

def upload(viewer: ViewerInfo) -> Page:
    """A page that has sent a file to a viewer; it stays connected."""
    port, token = viewer.port, viewer.url.partition("?token=")[2]
    page = Page(port).connect(token=token)
    welcome = page.greet()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    client.request("POST", "/upload?name=scene.ply", b"content", {
        "Origin": f"http://127.0.0.1:{port}", "X-Splatview-Page": welcome.key,
        "X-Splatview-Token": token})
    assert client.getresponse().status == 200
    client.close()
    return page


def test_a_killed_viewer_and_one_that_a_signal_ended_leave_nothing(programs: Programs, tmp_path: Path,
                                                                   runtime_dir: Path,
                                                                   wait_until: Callable[..., Any]) -> None:
    """What the killed one has left goes with the next."""
    kept = tmp_path / "kept"
    kept.mkdir()

    def serving() -> tuple[Program, Page]:
        program = programs.splatview("serve", "--web", "--port", "0", DISPLAY="", WAYLAND_DISPLAY="", TMPDIR=str(kept))
        (viewer,) = wait_until(lambda: program.poll() is not None or [v for v in viewers() if v.pid == program.pid])
        return program, upload(viewer)

    first, page = serving()
    first.killed()
    page.end()
    (left,) = kept.glob("splatview-files-*")
    assert (len(list(left.glob("*/scene.ply"))), len(list(runtime_dir.glob("viewer-*.json")))) == (1, 1)
    os.utime(left, (0, 0))  # one of a minute ago: a younger one may be about to be locked
    second, page = serving()
    wait_until(lambda: not left.exists(), "the files of the killed viewer are removed")
    assert len(list(runtime_dir.glob("viewer-*.json"))) == 1
    second.send_signal(signal.SIGHUP)
    assert second.wait(PATIENCE) == 0
    page.end()
    assert "Traceback" not in second.end()[1]
    assert list(kept.glob("*splatview-*")) == [] and list(runtime_dir.iterdir()) == []


TRAINER = """
import torch, splatview
from splatview_ipc.control.registry import Announcement
splatview.publish(torch.zeros(4, 4))
announced = Announcement("http://127.0.0.1:7010/", host="127.0.0.1", port=7010)
print("ready", flush=True)
input()
"""


def test_what_dead_programs_have_left_goes_with_the_next_that_looks(programs: Programs, tmp_path: Path,
                                                                    runtime_dir: Path,
                                                                    capsys: pytest.CaptureFixture[str]) -> None:
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
    subprocess.run(["cp", "-a", runtime_dir, tmp_path / "left"], check=True)  # sockets, too
    assert len(list(runtime_dir.iterdir())) == 2
    for look in (status, publish, frames):
        look()
        assert [p for p in runtime_dir.iterdir() if p.is_dir() or look is status] == [], look
        subprocess.run(["cp", "-a", f"{tmp_path}/left/.", runtime_dir], check=True)
