"""The command line itself, `status` and `doctor`, run in this process where nothing
else is said.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import socket
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from support import messages
from support.frames import cloud
from support.memory_data import event, snapshot
from support.programs import Programs
from support.scene_files import ply_columns, truth, write_ply
from support.wait import wait_until

import splatview
from splatview.camera.command import CameraCommand
from splatview.cli import doctor
from splatview.cli.main import main
from splatview.cli.status import Status
from splatview.demo.command import Demo
from splatview_ipc.control.registry import Announcement
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_ipc.system import entry
from splatview_ipc.system.optional_packages import install_line
from splatview_viewer.app.commands import COMMANDS

OPTIONS = {
    **COMMANDS,
    "status": Status,
    "doctor": doctor.Doctor,
    "demo": Demo,
    "camera": CameraCommand,
}
"""The class of the options of each command."""


def test_help_and_version_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["--help"]), main([])) == (0, 2)
    assert "splatview.publish(tensor)" in capsys.readouterr().out
    for option in ("--version", "-V"):
        assert main([option]) == 0
        assert capsys.readouterr().out == f"splatview {splatview.__version__}\n"


@pytest.mark.parametrize("command", OPTIONS)
def test_help_shows_examples_that_the_command_accepts(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_of_help:
        entry.parse_options(OPTIONS[command], f"splatview {command}", ["--help"])
    assert not exit_of_help.value.code
    output = capsys.readouterr().out
    assert "(default: None)" not in output
    examples = re.findall(r"^ +splatview (.*)", output, re.MULTILINE)
    assert len(examples) >= 2
    for example in examples:
        named, *options = shlex.split(example, comments=True)
        assert named == command
        entry.parse_options(OPTIONS[command], f"splatview {command}", options)


def test_messages_for_illegal_arguments_stay_the_same() -> None:
    """`python tests/support/messages.py` writes the file again: read the difference."""
    assert messages.collect_messages() == json.loads(messages.MESSAGES.read_text())


def test_one_bad_file_among_good_ones_does_not_end_the_viewer(
    tmp_path: Path, programs: Programs
) -> None:
    Image.new("RGB", (8, 8), (200, 200, 200)).save(tmp_path / "good.png")
    (tmp_path / "junk.ply").write_text("hello")
    viewer = programs.splatview(
        "serve",
        "junk.ply",
        "good.png",
        "--offscreen",
        "--out",
        "shown.png",
        "--size",
        "320x240",
    )

    def has_drawn_or_ended() -> bool:
        return (tmp_path / "shown.png").exists() or viewer.poll() is not None

    wait_until(has_drawn_or_ended)
    viewer.terminate()
    viewer.end()
    assert viewer.returncode == 0
    assert (tmp_path / "shown.png").exists()


def test_error_for_an_unknown_run_names_the_existing_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    splatview.publish(torch.zeros(4, 6, 3), "render")
    code, output = messages.run(["shot", "out.png", "--run", "nosuch"])
    assert (code, main(["status", "--run", "nosuch"])) == (2, 2)
    for text in (output, capsys.readouterr().err):
        assert "'nosuch'" in text
        assert f"({os.getpid()})" in text


# ---- status


def test_status_lists_streams_and_viewers(capsys: pytest.CaptureFixture[str]) -> None:
    splatview.publish(torch.zeros(4, 6, 3), "render", meta={"step": 1})
    splatview.publish(cloud(5))
    with Subscriber(client="a test") as viewer:

        def sees_both_streams() -> bool:
            viewer.poll()
            return len(viewer.streams) == 2

        wait_until(sees_both_streams)
        assert main(["status", "--json"]) == 0
        (run,) = json.loads(capsys.readouterr().out)["runs"]
        assert (run["pid"], run["run"]) == (os.getpid(), viewer.runs[0].id)
    assert run["viewers"] == [{"pid": os.getpid(), "client": "a test"}]
    render, gaussians = run["streams"]
    assert render == {
        "name": "render",
        "kind": "image",
        "version": 1,
        "shape": [4, 6, 3],
        "dtype": "float32",
        "device": "cpu",
        "gpu": "",
        "sharing": "ring",
        "ways": ["ring"],
        "why": "",
        "live": False,
        "rate_hz": 0.0,
    }
    assert (gaussians["kind"], gaussians["shape"]) == ("gaussians", [5, 3])
    assert main(["status", "--run", str(os.getpid())]) == 0
    output = capsys.readouterr().out
    for text in ("render", "4x6x3", "gaussians", str(os.getpid())):
        assert text in output


def test_status_lists_viewers_in_browsers(capsys: pytest.CaptureFixture[str]) -> None:
    url = "http://127.0.0.1:7013/?token=abc"
    with Announcement(url, host="0.0.0.0", port=7013, run="train"):
        assert main(["status"]) == 0
    assert (
        f"viewer at {url}  pid {os.getpid()}  shows run train"
        in capsys.readouterr().out
    )
    assert main(["status"]) == 0
    assert "viewer at" not in capsys.readouterr().out


# ---- doctor


@pytest.mark.programs
def test_doctor_finds_this_machine_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    findings = {f["name"]: f for f in json.loads(capsys.readouterr().out)}
    assert code == 0
    assert len(findings) == len(doctor.CHECKS)
    for name in (
        "python",
        "torch",
        "shared memory",
        "opengl",
        "browser",
        "memory",
        "runtime folder",
    ):
        assert findings[name]["state"] == "ok", findings[name]


def test_doctor_names_the_process_that_has_the_port(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        monkeypatch.setattr(doctor, "_PORT", port)
        foreign_port = doctor.check_port()
        with Announcement(
            f"http://127.0.0.1:{port}/?token=secret", host="127.0.0.1", port=port
        ):
            own_port = doctor.check_port()
    assert foreign_port.state == "absent"
    assert own_port.state == "ok"
    assert f"process {os.getpid()}" in own_port.detail
    assert f"http://127.0.0.1:{port}" in own_port.detail
    assert "secret" not in own_port.detail
    assert doctor.check_port() == doctor.Finding("ok", "free")


# -- packages of the extras ------------------------------------------------------------


@pytest.fixture
def no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the packages of the extras from this process."""
    for module in ("numba", "duckdb", "av", "cv2", "onnxruntime"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.pickle").write_bytes(
        pickle.dumps(snapshot([event("alloc", 512)]))
    )
    (tmp_path / "network.onnx").write_bytes(b"")
    write_ply(tmp_path / "scene.ply", ply_columns(truth(20)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        ("memory small.pickle", "numba", "memory"),
        ("memory small.pickle --sql 'SELECT 1'", "duckdb", "memory"),
        ("shot a.png small.pickle", "numba", "memory"),
        ("video a.mp4 scene.ply", "PyAV", "video"),
        ("camera scene.ply", "PyAV", "video"),
        ("camera 'a ! b'", "OpenCV", "camera"),
        ("camera test --detect people --no-viewer", "OpenCV", "camera"),
        ("camera test --detect network.onnx --no-viewer", "onnxruntime", "camera"),
    ],
)
def test_commands_name_the_extra_and_end(
    command: str, package: str, extra: str, files: Path, no_extras: None
) -> None:
    files_before = {path.name for path in files.iterdir()}
    code, output = messages.run(shlex.split(command))
    assert code == 2
    assert package in output
    assert output.endswith(install_line(extra))
    assert len(output.splitlines()) == 1
    assert {path.name for path in files.iterdir()} - files_before <= {"cache"}


def test_doctor_reports_a_missing_extra_as_absent(no_extras: None) -> None:
    for extra in ("memory", "video", "camera"):
        finding = doctor.CHECKS[extra]()
        assert (finding.state, finding.advice) == (
            "absent",
            install_line(extra),
        )
