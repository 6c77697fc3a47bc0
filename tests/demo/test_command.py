"""The demo: its trainer, run in this process, and its command, whose programs are small
scripts.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from support.programs import Output

from splatview.demo import trainer
from splatview.demo.command import Demo, run
from splatview_ipc.system import entry
from splatview_ipc.system.child_program import ChildProgram
from splatview_viewer.app.commands import parse

pytestmark = pytest.mark.programs


def do_nothing(*args: object) -> None:
    pass


@pytest.fixture
def train(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[int, list[Any]]]]:
    """Return a function that trains in this process and returns status and events.

    Its `action` is called once the output contains `text`.
    """

    def run(
        text: str = "", action: Callable[[], None] = do_nothing, **options: Any
    ) -> tuple[int, list[Any]]:
        out = Output(text, action)
        settings = {
            "device": "cpu",
            "seed": 0,
            "steps": 20,
            "data": str(photos),
            "save": None,
            **options,
        }
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stdin", io.StringIO())
            code = trainer.main([json.dumps(settings)])
        return code, [json.loads(line) for line in out.getvalue().splitlines()]

    monkeypatch.setattr(torch, "set_num_threads", do_nothing)
    handlers = {signum: signal.getsignal(signum) for signum in entry.SIGNALS}
    yield run
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


def test_trainer_reports_its_progress_and_saves(
    train: Callable[..., tuple[int, list[Any]]], tmp_path: Path
) -> None:
    code, events = train(save=str(tmp_path / "a.ply"))
    steps = [e for e in events if e["event"] == "train"]
    assert code == 0
    assert steps[-1]["done"] == steps[-1]["of"] == len(steps) == 20
    assert any(
        e["event"] == "done" and "after 20 of 20 steps" in e["text"] for e in events
    )
    assert any(e["event"] == "camera" and "viewmat" in e["camera"] for e in events)
    assert b"element vertex " in (tmp_path / "a.ply").read_bytes()[:100]


def test_signal_ends_training_with_the_result_so_far(
    train: Callable[..., tuple[int, list[Any]]],
) -> None:
    code, events = train(
        '"train"', partial(signal.raise_signal, signal.SIGTERM), steps=1000000
    )
    assert code == 128 + signal.SIGTERM
    assert events[-1]["event"] == "done"
    assert "of 1000000 steps" in events[-1]["text"]


def test_data_that_cannot_be_used_is_reported_as_an_event(
    train: Callable[..., tuple[int, list[Any]]], tmp_path: Path
) -> None:
    code, events = train(data=str(tmp_path))
    assert code == 2
    assert events[-1]["event"] == "error"
    assert "no such data set" in events[-1]["text"]


def test_gsplat_that_raises_at_its_import_is_reported_as_an_event(
    train: Callable[..., tuple[int, list[Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "gsplat.py").write_text("[][0]")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gsplat", raising=False)
    code, events = train()
    assert code == 2
    assert "IndexError: list index out of range" in events[-1]["text"]


EVENT = (
    "import json, os, sys\ndef event(name, **values):\n"
    "    os.write(1, json.dumps({'event': name, **values}).encode() + b'\\n')\n"
)
TRAIN = EVENT + "event('train', done=1, of=2, text='step 1/2')\n"
DONE = EVENT + "event('done', text='after 2 of 2 steps')\nsys.stdin.read()\n"
INTERRUPTED = (
    "import signal\ndef stop(*_):\n    event('done', text='after 1 of 2 steps')\n"
    "    os._exit(130)\nsignal.signal(signal.SIGINT, stop)\n"
)
WAIT = "import signal; signal.pause()"
DRAW = "open('a.png', 'w').close()"


class Launched(NamedTuple):
    code: int
    output: str
    arguments: list[list[str]]


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Launched]:
    """Run the demo with scripts as its trainer, viewer and shots.

    Ctrl-C comes after the words `until`.
    """

    def launch(
        stop_text: str = "",
        shot: str = DRAW,
        viewer: str = WAIT,
        *,
        train: str,
        **options: Any,
    ) -> Launched:
        started = list[ChildProgram]()
        arguments_of = list[list[str]]()
        out = Output(stop_text, partial(signal.raise_signal, signal.SIGINT))

        def start(
            module: str, *arguments: str, env: Any = None, **options: Any
        ) -> ChildProgram:
            arguments_of.append([module, *arguments])
            if module == "splatview.demo.trainer":
                script = train
            elif arguments[0] == "serve":
                script = viewer
            else:
                script = shot
            name = f"script_{len(started)}"
            (tmp_path / f"{name}.py").write_text(
                f"import os; os.chdir({str(tmp_path)!r})\n{script}"
            )
            started.append(
                ChildProgram(
                    name, env={**os.environ, "PYTHONPATH": str(tmp_path)}, **options
                )
            )
            return started[-1]

        with monkeypatch.context() as patch:
            patch.setattr("splatview.demo.session.ChildProgram", start)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", out)
            code = run(
                Demo(**{"out": tmp_path / "a.png", "offscreen": True, **options})
            )
        assert not any(program.is_running() for program in started)
        return Launched(code, out.getvalue(), arguments_of)

    return launch


@pytest.mark.parametrize("screen", ["window", "web"])
def test_exit_ends_the_demo_with_its_picture(
    demo: Callable[..., Launched], screen: str, tmp_path: Path
) -> None:
    outcome = demo(
        train=TRAIN + DONE,
        steps=2,
        save=tmp_path / "a.ply",
        offscreen=False,
        exit=True,
        **{screen: True},
    )
    assert outcome.code == 0
    assert f"what the viewer shows: {tmp_path / 'a.png'}" in outcome.output
    train, serve, shot = outcome.arguments
    assert json.loads(train[1]) == {
        "device": "auto",
        "seed": 0,
        "steps": 2,
        "data": None,
        "save": str(tmp_path / "a.ply"),
    }
    for module, *arguments in (serve, shot):
        assert module == "splatview_viewer"
        assert parse(arguments), "its program takes these options"


def test_viewer_stays_until_a_signal_which_is_no_failure(
    demo: Callable[..., Launched],
) -> None:
    outcome = demo(
        f"kill {os.getpid()}", train=TRAIN + DONE, offscreen=False, window=True
    )
    assert outcome.code == 0
    assert f"end it with: kill {os.getpid()}\n" in outcome.output, (
        "there is no terminal here"
    )


def test_ctrl_c_ends_the_demo_with_its_progress(
    demo: Callable[..., Launched],
) -> None:
    outcome = demo("step 1/2", train=EVENT + INTERRUPTED + TRAIN + WAIT)
    assert outcome.code == 130
    assert "after 1 of 2 steps" in outcome.output


def test_training_or_a_picture_that_fails_ends_the_demo_with_its_status(
    demo: Callable[..., Launched],
) -> None:
    assert demo(train="raise SystemExit(3)").code == 3
    assert demo(train="import os; os.kill(os.getpid(), 15)").code == 143
    outcome = demo(train=TRAIN + DONE, shot="import sys; sys.exit('no graphics')")
    assert outcome.code == 1
    assert "no picture: no graphics" in outcome.output


def test_training_goes_on_without_a_viewer(demo: Callable[..., Launched]) -> None:
    train = TRAIN + "sys.stdin.readline()\n"
    outcome = demo(
        "training goes on",
        train=INTERRUPTED + train,
        viewer="raise SystemExit(4)",
        offscreen=False,
        web=True,
    )
    assert "the viewer ended with code 4; training goes on" in outcome.output


@pytest.mark.parametrize(
    ("options", "display", "screen"),
    [
        ({}, "", "--web"),
        ({}, ":0", "--window"),
        ({"web": True}, ":0", "--web"),
        ({"window": True}, "", "--window"),
        ({"offscreen": True}, ":0", None),
    ],
)
def test_without_a_display_the_demo_is_seen_in_a_browser(
    demo: Callable[..., Launched],
    options: dict[str, bool],
    display: str,
    screen: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    outcome = demo(train="raise SystemExit(3)", **{"offscreen": False, **options})
    viewers = [arguments for _, *arguments in outcome.arguments[1:]]
    assert len(viewers) == (screen is not None)
    assert all(screen in arguments for arguments in viewers)
