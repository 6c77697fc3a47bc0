"""`splatview status`, `doctor` and the command line itself."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.repetitions import exhaustive
from support.wait import PATIENCE

import splatview
from splatview.commands import doctor
from splatview.ipc import Subscriber
from splatview.ipc.viewers import announce

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "splatview", *args], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, **env}, check=False)


@pytest.fixture
def status(programs: Programs) -> Callable[..., str]:
    """Run `splatview status ARGS`, forked; return what it prints."""
    def tell(*args: str) -> str:
        return programs.splatview("status", *args).communicate(timeout=PATIENCE)[0]

    return tell


def test_help_teaches() -> None:
    done = run("--help")
    assert done.returncode == 0
    for word in ("splatview.publish(tensor)", "serve", "shot", "memory", "status", "doctor", "demo", "camera",
                 "SPLATVIEW_RUNTIME_DIR"):
        assert word in done.stdout
    assert run().returncode == 2
    assert run("--version").stdout == f"splatview {splatview.__version__}\n"


@pytest.mark.parametrize("command", [
    "serve", "shot", *map(exhaustive, ["memory", "status", "doctor", "demo", "camera"])])
def test_every_command_explains_itself(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 5


def test_an_unknown_command_names_the_legal_ones() -> None:
    done = run("serv")
    assert done.returncode == 2
    assert "'serv'" in done.stderr
    assert "serve, shot, video, memory, status, doctor, demo, camera" in done.stderr


def test_status_of_nothing(runtime_dir: Path, status: Callable[..., str]) -> None:
    assert json.loads(run("status", "--json").stdout) == {"runs": [], "viewers": []}
    assert str(runtime_dir) in status()
    done = run("status", "--run", "nonsense")
    assert done.returncode == 2
    assert "'nonsense'" in done.stdout


def rates(times: list[float]) -> list[float]:
    """Return how often something happened per second, in every window of half a second between two of its times."""
    found, end = [], 0
    for begin, time_ in enumerate(times):
        while end < len(times) and times[end] < time_ + 0.5:
            end += 1
        if end < len(times):
            found.append((end - begin) / (times[end] - time_))
    return found


def test_status_tells_streams_and_viewers(programs: Programs, status: Callable[..., str],
                                          wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(4, 6, 3), "render", step=1)
    scene = {"means": torch.zeros(5, 3), "quats": torch.zeros(5, 4), "scales": torch.zeros(5, 3),
             "opacities": torch.zeros(5), "sh0": torch.zeros(5, 1, 3)}
    splatview.publish(scene)
    with Subscriber(client="a test") as viewer:
        wait_until(lambda: (viewer.poll(), viewer.streams)[-1])
        asked = programs.splatview("status", "--json")
        times: list[float] = []
        ended = False
        while not ended:
            ended = asked.poll() is not None
            splatview.publish(scene)
            times.append(time.monotonic())
            time.sleep(0.01)
        measured = rates(times)  # `status` measures in one of these windows
        assert asked.stdout is not None
        (found,) = json.loads(asked.stdout.read())["runs"]
        assert (found["pid"], found["run"]) == (os.getpid(), viewer.runs[0].id)
    assert found["viewers"] == [{"pid": os.getpid(), "client": "a test"}]
    render, gaussians = found["streams"]
    assert render == {"name": "render", "kind": "image", "version": 1, "shape": [4, 6, 3], "dtype": "float32",
                      "device": "cpu", "gpu": "", "sharing": "ring", "ways": ["ring"], "why": "",
                      "live": False, "rate_hz": 0.0}
    assert gaussians["kind"] == "gaussians"
    assert gaussians["shape"] == [5, 3]
    assert min(measured) / 5 < gaussians["rate_hz"] < 5 * max(measured)
    text = status("--run", str(os.getpid()))
    for word in ("render", "4x6x3", "gaussians", str(os.getpid())):
        assert word in text


def test_status_tells_where_browsers_can_look(status: Callable[..., str]) -> None:
    url = "http://127.0.0.1:7013/?token=abc"
    with announce(url, host="0.0.0.0", port=7013, run="train"):
        (found,) = json.loads(status("--json"))["viewers"]
        assert {k: v for k, v in found.items() if k != "started"} == {
            "pid": os.getpid(), "url": url, "host": "0.0.0.0", "port": 7013, "run": "train"}
        assert f"viewer at {url}  pid {os.getpid()}  shows run train" in status()
    assert "viewer at" not in status()


def test_status_of_a_stopped_trainer_says_so(programs: Programs, status: Callable[..., str]) -> None:
    trainer = programs.code("import torch, splatview, time; splatview.publish(torch.zeros(4, 4)); "
                             "print('ready', flush=True); time.sleep(60)")
    assert trainer.stdout is not None
    trainer.stdout.readline()
    trainer.send_signal(signal.SIGSTOP)
    (found,) = json.loads(status("--json"))["runs"]
    assert "does not answer" in found["note"]
    trainer.send_signal(signal.SIGCONT)


def test_status_of_an_unusable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("status", SPLATVIEW_RUNTIME_DIR=str(tmp_path / "file"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(tmp_path / "file") in done.stderr


@pytest.mark.parametrize("start", ["command", exhaustive("splatview")])
def test_doctor_finds_this_machine_in_order(start: str, programs: Programs, monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    done = getattr(programs, start)("doctor", "--json")
    findings = {f["name"]: f for f in json.loads(done.communicate(timeout=PATIENCE)[0])}
    assert len(findings) == len(doctor.CHECKS)
    for name in ("python", "torch", "shared memory", "opengl", "browser", "memory", "runtime folder"):
        assert findings[name]["state"] == "ok", findings[name]
    assert done.returncode == 0
    assert all(f["mend"] or f["state"] == "ok" or "renderer is used" in f["detail"] or "uploaded" in f["detail"]
               or "host" in f["detail"] for f in findings.values())

    def found(finding: dict[str, Any]) -> Callable[[], doctor.Finding]:
        return lambda: doctor.Finding(**finding)

    monkeypatch.setattr(doctor, "CHECKS", [found(finding) for finding in findings.values()])
    assert doctor.main([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(findings), "one line each"


def test_doctor_tells_who_has_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        monkeypatch.setattr(doctor, "_PORT", port)
        taken = doctor.check_port()
        with announce(f"http://127.0.0.1:{port}/?token=secret", host="127.0.0.1", port=port):
            ours = doctor.check_port()
    assert (taken.name, taken.state) == (f"port {port}", "absent")
    assert "the next free one" in taken.detail and "--port" in taken.mend
    assert ours.state == "ok" and f"process {os.getpid()}" in ours.detail
    assert f"http://127.0.0.1:{port}" in ours.detail and "secret" not in ours.detail
    assert doctor.check_port() == doctor.Finding(f"port {port}", "ok", "free")


def test_doctor_finds_that_there_is_no_room_for_a_run(runtime_dir: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        found = doctor.check_runtime_folder()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found.state == "broken"
    assert str(runtime_dir) in found.detail and "SPLATVIEW_RUNTIME_DIR" in found.mend
    assert doctor.check_runtime_folder().state == "ok"
    assert not list(runtime_dir.iterdir())


@pytest.mark.exhaustive  # quick: checks that fail, one at a time
def test_doctor_names_what_is_broken(programs: Programs, tmp_path: Path,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    done = programs.splatview("doctor", "--json", SPLATVIEW_RUNTIME_DIR=str(tmp_path / "file"),
                             __EGL_VENDOR_LIBRARY_FILENAMES="/nonexistent.json")
    findings = {f["name"]: f for f in json.loads(done.communicate(timeout=PATIENCE)[0])}
    assert done.returncode == 1
    assert findings["runtime folder"]["state"] == "broken"
    assert findings["opengl"]["state"] == "broken"
    assert "apt-get install libegl1" in findings["opengl"]["mend"]

    def explode() -> doctor.Finding:
        raise RuntimeError("boom")

    monkeypatch.setattr(doctor, "CHECKS", (explode,))
    assert doctor.main([]) == 1
