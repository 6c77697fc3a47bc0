"""The demo: its trainer, run in this process, and its command, whose programs are small scripts."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import tyro

from splatview.demo import trainer
from splatview.demo.command import Demo, run
from splatview.demo.trainer import TrainerOptions
from splatview_ipc.system import entry
from splatview_viewer.commands import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Output(io.StringIO):
    """Standard output on which words bring an action, once."""

    def __init__(self, words: str, act: Callable[[], None]):
        super().__init__()
        self.words, self.act = words, act

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.words and self.words in self.getvalue():
            self.words = ""
            self.act()
        return written


# ---- the trainer


@pytest.fixture
def points(tmp_path: Path) -> Path:
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


@pytest.fixture
def train(points: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[int, list[Any]]]]:
    """Train in this process; exit status and events. `words` in its output bring an action."""
    def run(*args: str, words: str = "", act: Callable[[], None] = lambda: None) -> tuple[int, list[Any]]:
        out = Output(words, act)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            code = trainer.main(["--device", "cpu", "--data", str(points), "--json-progress", *args])
        return code, [json.loads(line) for line in out.getvalue().splitlines()]

    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    before = {number: signal.getsignal(number) for number in entry.SIGNALS}
    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_trainer_tells_its_progress_and_saves(train: Callable[..., tuple[int, list[Any]]], tmp_path: Path) -> None:
    code, events = train("--steps", "20", "--save", str(tmp_path / "a.ply"))
    steps = [e for e in events if e["event"] == "train"]
    done = next(e for e in events if e["event"] == "done")
    assert code == 0 and steps[-1]["step"] == steps[-1]["of"] == done["steps"] == 20
    assert steps[-1]["loss"] < steps[0]["loss"] and done["psnr"] > 5
    assert any("has no images" in e.get("text", "") for e in events)
    assert any(e["event"] == "camera" and "viewmat" in e["camera"] for e in events)
    assert f"element vertex {done['gaussians']}\n".encode() in (tmp_path / "a.ply").read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_with_the_result_so_far(train: Callable[..., tuple[int, list[Any]]],
                                                       number: int) -> None:
    code, events = train("--steps", "1000000", words='"train"', act=lambda: signal.raise_signal(number))
    assert code == 128 + number
    assert events[-1]["event"] == "done" and 0 < events[-1]["steps"] < 1000000


# ---- the command

EVENT = ("import json, os, sys\ndef event(name, **values):\n"
         "    os.write(1, json.dumps({'event': name, **values}).encode() + b'\\n')\n")
TRAIN = EVENT + "event('train', step=1, of=2, loss=0.5, psnr=20.0, gaussians=9)\n"
DONE = EVENT + "event('done', steps=2, of=2, seconds=1.0, psnr=20.0, gaussians=9)\nsys.stdin.read()\n"
INTERRUPTED = ("import signal\ndef stop(*_):\n    event('done', steps=1, of=2, seconds=1.0, psnr=20.0, gaussians=9)\n"
               "    os._exit(130)\nsignal.signal(signal.SIGINT, stop)\n")
WAIT = "import signal; signal.pause()"
DRAW = "open('a.png', 'w').close()"


@dataclass
class Launched:
    code: int
    said: str
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    arguments: list[list[str]] = field(default_factory=list)


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Launched]:
    """Run the demo with scripts as its trainer, viewer and shots. A signal comes after the words `until`."""
    def launch(until: str = "", shot: str = DRAW, viewer: str = WAIT, *, train: str, number: int = signal.SIGINT,
               **options: Any) -> Launched:
        found = Launched(0, "")
        out = Output(until, lambda: signal.raise_signal(number))

        def start(module: str, *arguments: str, **more: Any) -> subprocess.Popen[str]:
            found.arguments.append([module, *arguments])
            script = train if module == "splatview.demo.trainer" else viewer if arguments[0] == "serve" else shot
            program = subprocess.Popen([sys.executable, "-I", "-S", "-c", script], cwd=tmp_path,
                                       start_new_session=True, **more)
            found.started.append(program)
            return program

        with monkeypatch.context() as patch:
            patch.setattr("splatview_ipc.system.programs.start", start)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", out)
            found.code = run(Demo(**{"out": tmp_path / "a.png", "offscreen": True, **options}))
        found.said = out.getvalue()
        assert all(program.poll() is not None for program in found.started)
        for program in found.started:
            for stream in (program.stdin, program.stdout, program.stderr):
                if stream is not None:
                    stream.close()
        return found

    return launch


@pytest.mark.programs
def test_the_demo_draws_the_result_and_leaves_nothing_running(demo: Callable[..., Launched], tmp_path: Path) -> None:
    found = demo(train=TRAIN + DONE, steps=2, save=tmp_path / "a.ply")
    assert found.code == 0 and f"what the viewer shows: {tmp_path / 'a.png'}" in found.said
    train, serve, shot = found.arguments
    options = tyro.cli(TrainerOptions, args=train[1:])
    assert (options.steps, options.save, options.hold, options.json_progress) == (2, tmp_path / "a.ply", True, True)
    for module, *arguments in (serve, shot):
        assert module == "splatview_viewer" and parse(arguments), "its program takes these options"


@pytest.mark.programs
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_viewer_stays_until_a_signal_which_is_no_failure(demo: Callable[..., Launched], number: int) -> None:
    found = demo(f"kill {os.getpid()}", train=TRAIN + DONE, offscreen=False, window=True, number=number)
    assert found.code == 0 and f"end it with: kill {os.getpid()}\n" in found.said, "there is no terminal here"


@pytest.mark.programs
@pytest.mark.parametrize("screen", ["window", "web"])
def test_exit_ends_the_demo_with_its_picture(demo: Callable[..., Launched], screen: str) -> None:
    found = demo(train=TRAIN + DONE, offscreen=False, exit=True, **{screen: True})
    assert found.code == 0 and "what the viewer shows" in found.said and "stays" not in found.said


@pytest.mark.programs
def test_ctrl_c_ends_the_demo_and_tells_how_far_it_came(demo: Callable[..., Launched]) -> None:
    found = demo("step 1/2", train=EVENT + INTERRUPTED + TRAIN + WAIT)
    assert found.code == 130 and "after 1 of 2 steps" in found.said


@pytest.mark.programs
def test_a_training_or_a_picture_that_fails_ends_the_demo_with_its_status(demo: Callable[..., Launched]) -> None:
    assert demo(train="raise SystemExit(3)").code == 3
    assert demo(train="import os; os.kill(os.getpid(), 15)").code == 143
    found = demo(train=TRAIN + DONE, shot="import sys; sys.exit('no graphics')")
    assert found.code == 1 and "no picture: no graphics" in found.said


@pytest.mark.programs
def test_training_goes_on_without_a_viewer(demo: Callable[..., Launched]) -> None:
    train = TRAIN + "sys.stdin.readline()\n"
    found = demo("training goes on", train=train + INTERRUPTED, viewer="raise SystemExit(4)")
    assert "the viewer ended with code 4; training goes on" in found.said


@pytest.mark.programs
@pytest.mark.parametrize(("options", "display", "screen"), [
    ({}, "", "--web"), ({}, ":0", "--window"), ({"web": True}, ":0", "--web"), ({"window": True}, "", "--window"),
    ({"offscreen": True}, ":0", "--offscreen")])
def test_without_a_display_the_demo_is_seen_in_a_browser(demo: Callable[..., Launched], options: dict[str, bool],
                                                         display: str, screen: str,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    found = demo(train="raise SystemExit(3)", **{"offscreen": False, **options})
    assert screen in found.arguments[1]
