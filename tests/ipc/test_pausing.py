"""Pausing a run, letting one step through, and what its log says of it."""

from __future__ import annotations

import json
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.wait import PATIENCE

import splatview
from splatview import publishing
from splatview.ipc import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

STEPS = """
import torch, splatview
image = torch.zeros(4, 4)
for step in range(10**9):
    splatview.publish(image, step=step)
    splatview.wait_while_paused()
"""


@pytest.fixture
def viewer() -> Iterator[Subscriber]:
    with Subscriber() as subscriber:
        yield subscriber


@pytest.fixture
def run(viewer: Subscriber, wait_until: Callable[..., Any]) -> Any:
    """This process's run, as a viewer sees it."""
    splatview.publish(torch.zeros(4, 4))
    wait_until(lambda: (viewer.poll(), viewer.runs and viewer.runs[0].welcomed)[-1])
    return viewer.runs[0]


class Loop:
    """A training loop in a thread: counts the steps that it has taken."""

    def __init__(self) -> None:
        self.steps = 0
        self.ending = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self.ending:
            if splatview.wait_while_paused(0.05):
                self.steps += 1

    def close(self) -> None:
        self.ending = True
        self._thread.join()


@pytest.fixture
def loop(run: Any) -> Iterator[Loop]:
    started = Loop()
    yield started
    started.close()


def waits(viewer: Subscriber, run: Any) -> bool:
    viewer.poll()
    return run.paused and run.waits == 2


def test_a_step_lets_exactly_one_call_through(viewer: Subscriber, run: Any, loop: Loop,
                                              wait_until: Callable[..., Any]) -> None:
    wait_until(lambda: loop.steps > 3)
    run.set_paused(True)
    wait_until(lambda: waits(viewer, run))
    board = publishing._publisher.board  # type: ignore[union-attr]
    for wanted in range(1, 6):
        before = loop.steps
        run.step()
        wait_until(lambda n=wanted: board.passed == n)
        wait_until(lambda n=before: loop.steps == n + 1)
        wait_until(lambda: waits(viewer, run))
    assert board.granted == board.passed == 5
    assert splatview.paused()
    run.set_paused(False)
    before = loop.steps
    wait_until(lambda: loop.steps > before + 100)


def test_steps_asked_for_before_are_not_kept_for_the_next_pause(viewer: Subscriber, run: Any,
                                                                wait_until: Callable[..., Any]) -> None:
    board = publishing._publisher.board  # type: ignore[union-attr]
    run.step()  # says nothing to a run that is not paused
    run.set_paused(True)
    wait_until(splatview.paused)
    assert not splatview.wait_while_paused(0.0)
    run.step()
    run.step()
    wait_until(lambda: board.granted == board.passed + 2)
    run.set_paused(False)
    wait_until(lambda: not splatview.paused())
    run.set_paused(True)
    wait_until(splatview.paused)
    assert not splatview.wait_while_paused(0.05)


def test_the_log_says_it_once_and_who_did_it(viewer: Subscriber, run: Any, caplog: pytest.LogCaptureFixture,
                                             wait_until: Callable[..., Any]) -> None:
    with caplog.at_level(logging.INFO, "splatview"):
        assert splatview.wait_while_paused()
        run.set_paused(True)
        wait_until(splatview.paused)
        for _ in range(3):
            assert not splatview.wait_while_paused(0.01)
        assert len(caplog.records) == 1
        assert caplog.records[0].levelno == logging.WARNING  # is seen where nobody has set up logging
        assert f"viewer (process {os.getpid()})" in caplog.text
        assert "Resume" in caplog.text
        run.step()
        assert splatview.wait_while_paused(PATIENCE)
        assert len(caplog.records) == 1
        run.set_paused(False)
        wait_until(lambda: not splatview.paused())
        assert splatview.wait_while_paused()
        assert splatview.wait_while_paused()
        assert [r.levelno for r in caplog.records] == [logging.WARNING] * 2
        assert "goes on after" in caplog.records[1].getMessage()


def test_one_viewer_resumes_what_another_paused(wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(4, 4))
    viewers = [Subscriber(), Subscriber()]
    try:
        for viewer in viewers:
            wait_until(lambda v=viewer: (v.poll(), v.runs and v.runs[0].welcomed)[-1])
        viewers[0].runs[0].set_paused(True)
        wait_until(lambda: (viewers[1].poll(), viewers[1].runs[0].paused)[-1])
        viewers[1].runs[0].set_paused(False)
        wait_until(lambda: not splatview.paused())
        assert splatview.wait_while_paused(PATIENCE)
    finally:
        for viewer in viewers:
            viewer.close()


def test_without_a_viewer_nothing_waits_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert splatview.wait_while_paused()  # before there is a run
    splatview.publish(torch.zeros(4, 4))
    assert splatview.wait_while_paused(0)
    assert not caplog.records


def test_closing_the_run_ends_the_wait(viewer: Subscriber, run: Any, wait_until: Callable[..., Any]) -> None:
    done = []
    run.set_paused(True)
    wait_until(splatview.paused)
    thread = threading.Thread(target=lambda: done.append(splatview.wait_while_paused()))
    thread.start()
    wait_until(lambda: waits(viewer, run))
    splatview.close()
    thread.join(PATIENCE)
    assert done == [True]


@pytest.mark.parametrize(("timeout", "error"), [("soon", TypeError), (True, TypeError), (float("nan"), ValueError)])
def test_a_timeout_is_a_number(timeout: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout is"):
        splatview.wait_while_paused(timeout)


def test_a_program_is_paused_stepped_and_resumed_from_outside(viewer: Subscriber, programs: Programs,
                                                              wait_until: Callable[..., Any]) -> None:
    from splatview.cli import main

    trainer = programs.code(STEPS)
    wait_until(lambda: (viewer.poll(), viewer.runs and viewer.runs[0].waits == 1)[-1])
    run = viewer.runs[0]
    run.set_paused(True)
    wait_until(lambda: waits(viewer, run))
    (stream,) = run.streams.values()
    before = stream.version
    run.step()
    wait_until(lambda: (viewer.poll(), stream.version == before + 1)[-1])
    wait_until(lambda: waits(viewer, run))
    assert stream.version == before + 1
    assert main(["status", "--json"]) == 0
    viewer.close()  # takes its pause with it
    with Subscriber() as other:
        wait_until(lambda: (other.poll(), other.runs and other.runs[0].welcomed and not other.runs[0].paused)[-1])
        wait_until(lambda: (other.poll(), next(iter(other.runs[0].streams.values())).version > before + 50)[-1])
    assert trainer.poll() is None


@pytest.mark.exhaustive
def test_status_says_that_a_run_is_paused(viewer: Subscriber, run: Any, loop: Loop, wait_until: Callable[..., Any],
                                          capsys: pytest.CaptureFixture[str]) -> None:
    from splatview.cli import main

    run.set_paused(True)
    wait_until(lambda: waits(viewer, run))
    main(["status", "--json"])
    (said,) = json.loads(capsys.readouterr().out)["runs"]
    assert (said["paused"], said["waits"]) == (True, True)
    main(["status"])
    assert "\n  paused\n" in capsys.readouterr().out
    run.set_paused(False)
    wait_until(lambda: not splatview.paused())
    main(["status", "--json"])
    assert json.loads(capsys.readouterr().out)["runs"][0]["paused"] is False


def test_status_says_that_a_script_does_not_wait(run: Any, wait_until: Callable[..., Any],
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    from splatview.cli import main

    run.set_paused(True)
    wait_until(splatview.paused)
    main(["status"])
    assert "wait_while_paused" in capsys.readouterr().out
