"""The demo as a user runs it: programs, signals, exit codes, and the picture."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.programs import environment
from support.repetitions import exhaustive
from support.wait import PATIENCE

from splatview.demo.command import Demo, _exit_code, _screen, run
from splatview.demo.progress import Progress
from splatview.ipc import Subscriber
from splatview.ipc.runs import list_runs, runtime_folder
from splatview.ipc.viewers import viewers


@pytest.fixture
def points(tmp_path):
    """A red and a blue cloud with three cameras, as an .npz without pictures: small, so that every step is quick."""
    rng = np.random.default_rng(0)
    means = rng.normal(0, 0.25, (300, 3)).astype(np.float32)
    means[150:, 0] += 1
    colors = np.where(np.arange(300)[:, None] < 150, [220, 20, 20], [20, 40, 230]).astype(np.uint8)
    viewmats = np.tile(np.eye(4, dtype=np.float32), (3, 1, 1))
    viewmats[:, 2, 3] = 4
    viewmats[:, 0, 3] = (-1.0, -0.5, 0.0)
    K = np.array([[50, 0, 20], [0, 50, 15], [0, 0, 1]], np.float32)
    path = tmp_path / "points.npz"
    np.savez(path, means3d=means, colors=colors, viewmats=viewmats, Ks=np.tile(K, (3, 1, 1)), width=40, height=30)
    return path


def trainer(programs, *args, **env):
    return programs.python("-m", "splatview.demo.trainer", "--device", "cpu", *args, **env)


def events_of(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.exhaustive
def test_the_trainer_tells_its_progress_and_saves(programs, points, tmp_path):
    process = trainer(programs, "--data", str(points), "--steps", "120", "--json-progress", "--save",
                      str(tmp_path / "a.ply"))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    events = events_of(out)
    steps = [e for e in events if e["event"] == "train"]
    done = next(e for e in events if e["event"] == "done")
    assert steps[-1]["step"] == steps[-1]["of"] == done["steps"] == 120
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert done["psnr"] > 20
    assert any("has no images" in e.get("text", "") for e in events)
    assert any(e["event"] == "camera" and "viewmat" in e["camera"] for e in events)
    assert f"element vertex {done['gaussians']}\n".encode() in (tmp_path / "a.ply").read_bytes()


def test_the_trainer_trains_the_same_with_publishing_switched_off(programs, points):
    process = trainer(programs, "--data", str(points), "--steps", "5", SPLATVIEW_DISABLE="1")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "after 5 of 5 steps" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_with_the_result_so_far(programs, points, number):
    process = trainer(programs, "--data", str(points), "--steps", "1000000", "--json-progress")
    for line in process.stdout:
        if json.loads(line)["event"] == "train":
            break
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE)
    done = events_of(out)[-1]
    assert process.returncode == 128 + number
    assert done["event"] == "done" and 0 < done["steps"] < 1000000 and done["psnr"] > 5


@pytest.mark.exhaustive
def test_a_signal_before_training_ends_at_once(programs):
    process = trainer(programs, "--json-progress")
    for line in process.stdout:
        if json.loads(line)["event"] == "views":
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert events_of(out)[-1] == {"event": "note", "text": "stopped before the training began"}


def test_the_trainer_holds_until_its_input_ends(programs, points):
    process = trainer(programs, "--data", str(points), "--steps", "3", "--json-progress", "--hold")
    for line in process.stdout:
        if json.loads(line)["event"] == "done":
            break
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.stdin.close()
    assert process.wait(timeout=PATIENCE) == 0


@pytest.mark.parametrize(("args", "message"), [
    (["--data", "absent"], "no such file or folder"),
    (["--steps", "0"], "--steps 0 must be at least 1"),
    (["--save", "absent/a.ply"], "there is no folder"),
])
def test_bad_options_end_with_2_and_a_line(programs, args, message):
    process = trainer(programs, *args)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert message in err and "Traceback" not in err


@pytest.mark.parametrize(("start", "steps"), [("command", 60), exhaustive("splatview", 200)])
def test_the_demo_writes_what_the_viewer_shows_and_leaves_nothing_running(programs, points, tmp_path, start, steps):
    """`splatview` starts all of it as users do, as `test_a_demo_that_is_killed_takes_its_processes_along` does."""
    out = tmp_path / "picture.png"
    process = getattr(programs, start)("demo", "--data", str(points), "--steps", str(steps), "--out", str(out),
                                        "--offscreen", "--device", "cpu", "--size", "320x240", "--picture-every",
                                        "100")
    said, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said + err
    assert str(out) in said and f"dB on held-out views after {steps} of {steps} steps" in said
    rgb = np.asarray(Image.open(out).convert("RGB"), np.float32)
    assert rgb.shape == (240, 320, 3)
    red, blue = (rgb[..., c] - rgb[..., 2 - c] > 100 for c in (0, 2))
    assert red.sum() > 300 and blue.sum() > 300
    assert np.nonzero(red)[1].mean() < np.nonzero(blue)[1].mean()  # x points right, as the cameras saw it


@pytest.mark.exhaustive
def test_the_demo_in_a_browser_ends_by_itself_in_a_script(programs, points, tmp_path):
    out = tmp_path / "picture.png"
    process = programs.splatview("demo", "--data", str(points), "--steps", "50", "--out", str(out), "--web",
                                "--port", "0", "--device", "cpu", "--size", "160x120")
    said, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said + err
    assert str(out) in said
    with Image.open(out) as picture:
        assert picture.size == (160, 120)


@pytest.mark.exhaustive
def test_on_a_terminal_the_viewer_stays_open_until_ctrl_c(programs, points, tmp_path, wait_until):
    """Although the port is taken."""
    ours, theirs = os.openpty()
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    demo = forked_popen.Popen([sys.executable, "-m", "splatview", "demo", "--data", str(points), "--steps", "20",
                               "--out", str(tmp_path / "a.png"), "--web", "--port", str(port), "--device", "cpu",
                               "--size", "160x120"], stdin=theirs, stdout=theirs, stderr=subprocess.STDOUT,
                              env=environment(SSH_CONNECTION="10.0.0.1 50000 10.0.0.2 22"), start_new_session=True)
    os.close(theirs)
    said = b""
    try:
        at = None
        while at is None or b"ssh -L" not in said:
            more = _read_terminal(ours)
            assert more, said
            said += more
            at = re.search(rb"stays open at (http://127\.0\.0\.1:(\d+)/\?token=\S+) until Ctrl-C", said)
        (found,) = viewers()
        assert (found.url, found.port) == (at[1].decode(), int(at[2]))
        assert found.port != port
        with urllib.request.urlopen(found.url, timeout=PATIENCE) as page:
            assert b"<canvas" in page.read()
        assert found.run is not None
        assert [r.description.pid for r in list_runs(runtime_folder())] == [int(found.run)], "what it shows lives"
        children = programs.children(demo.pid)
        assert found.pid in children
        demo.send_signal(signal.SIGINT)
        while more := _read_terminal(ours):
            said += more
        assert demo.wait(timeout=PATIENCE) == 0, said
        for words in (f"open {found.url}", f"ssh -L {found.port}:127.0.0.1:{found.port} ", "what the viewer shows"):
            assert words.encode() in said, "what the viewer says is passed on"
        assert b"Traceback" not in said
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
    finally:
        demo.kill()
        demo.wait()
        os.close(ours)
        taken.close()


def _read_terminal(fd):
    try:
        return os.read(fd, 10_000)
    except OSError:  # nobody holds its other end
        return b""


@pytest.mark.exhaustive
def test_nothing_is_copied_for_a_viewer_that_no_browser_looks_at(programs, points, tmp_path, wait_until):
    process = programs.splatview("demo", "--data", str(points), "--steps", "1000000", "--web", "--port", "0", "--out",
                                str(tmp_path / "a.png"), "--device", "cpu", "--picture-every", "1000")
    (page,) = wait_until(viewers)
    with Subscriber(page.run, client="test") as subscriber:
        def gaussians():
            subscriber.poll()
            return next((s for s in subscriber.streams if s.name == "gaussians"), None)

        stream = wait_until(gaussians)
        wait_until(lambda: (subscriber.poll(), stream.version)[-1] > 20)
        (run,) = subscriber.runs
        # Its page is announced before it has found the run: only from then on could anything be copied for it.
        wait_until(lambda: (subscriber.poll(), {v["client"] for v in run.viewers})[-1] == {"viewer", "test"})
        before = stream.version
        wait_until(lambda: (subscriber.poll(), stream.version)[-1] > before + 20)
        assert run.counters["copies"] == 0
        stream.open()
        wait_until(lambda: (subscriber.poll(), run.counters["copies"])[-1] > 0)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)


def test_a_training_that_fails_ends_the_demo_with_its_exit_code(programs, tmp_path):
    process = programs.splatview("demo", "--data", str(tmp_path / "absent.npz"), "--offscreen",
                                "--out", str(tmp_path / "a.png"))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "no such file or folder" in err


def test_ctrl_c_ends_both_processes_and_says_how_far_it_came(programs, points, tmp_path, wait_until):
    process = programs.splatview("demo", "--data", str(points), "--steps", "1000000", "--offscreen", "--device", "cpu",
                                "--out", str(tmp_path / "a.png"), "--size", "160x120", "--picture-every", "0.1")
    wait_until((tmp_path / "a.png").exists)
    children = programs.children(process.pid)
    assert len(children) >= 2
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "of 1000000 steps" in out and "the last picture" in out
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


@pytest.mark.exhaustive
def test_a_demo_that_is_killed_takes_its_processes_along(programs, points, tmp_path, wait_until):
    process = programs.splatview("demo", "--data", str(points), "--steps", "1000000", "--offscreen", "--device", "cpu",
                                  "--out", str(tmp_path / "a.png"), "--size", "160x120")
    children = wait_until(lambda: len(c := programs.children(process.pid)) >= 2 and c)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


@pytest.mark.parametrize(("options", "message"), [
    ({"steps": 0}, "--steps 0 must be at least 1"),
    ({"window": True, "offscreen": True}, "--window and --offscreen exclude each other"),
    ({"web": True, "offscreen": True}, "--web and --offscreen exclude each other"),
    ({"port": -1}, "--port -1 must be from 1 to 65535"),
    ({"port": 65536}, "--port 65536"),
    ({"out": Path("absent/a.png")}, "there is no folder"),
    ({"out": Path("a.jpg")}, "ends in .png"),
    ({"picture_every": 0.0}, "more than 0 seconds"),
])
def test_options_that_make_no_sense_start_nothing(capsys, options, message):
    assert run(Demo(**options)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("options", "display", "screen"), [
    ({}, "", "web"), ({}, ":0", "window"), ({"web": True}, ":0", "web"), ({"offscreen": True}, ":0", "offscreen"),
    ({"offscreen": True}, "", "offscreen"), ({"window": True}, "", "window"),
])
def test_without_a_display_the_demo_is_seen_in_a_browser(monkeypatch, options, display, screen):
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert _screen(Demo(**options)) == screen


def test_progress_as_bar_lines_and_json():
    values = {"step": 10, "of": 10, "loss": 0.5, "psnr": 20.0, "gaussians": 1234}
    shown = {}
    for style in ("bar", "lines", "json"):
        stream = io.StringIO()
        tell = Progress(style, stream)
        tell("note", text="hello")
        tell("train", **values)
        tell("done", steps=10, of=10, seconds=3.0, psnr=None, gaussians=1234)
        shown[style] = stream.getvalue()
    assert "\r" in shown["bar"] and "PSNR 20.00 dB" in shown["bar"]
    assert shown["lines"].splitlines() == ["hello", "step 10/10  loss 0.5000  PSNR 20.00 dB  1,234 Gaussians",
                                           "no held-out views after 10 of 10 steps, 1,234 Gaussians, 3 s"]
    assert json.loads(shown["json"].splitlines()[1]) == {"event": "train", **values}


def test_exit_codes_of_processes_that_a_signal_ended():
    assert (_exit_code(0), _exit_code(3), _exit_code(-signal.SIGTERM)) == (0, 3, 143)


def test_importing_the_demo_command_loads_neither_torch_nor_the_viewer(programs):
    code = ("import sys, splatview.demo.command, splatview.demo.trainer; "
            "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', 'zmq') "
            "or m.startswith('splatview.viewer_app')])")
    out, err = programs.python("-c", code).communicate(timeout=PATIENCE)
    assert out.strip() == "[]", err
