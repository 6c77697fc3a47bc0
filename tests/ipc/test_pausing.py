"""Pausing a run, letting one step through, and what `splatview status` says of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from support.reading import welcomed
from support.wait import PATIENCE_S, wait_until

import splatview
from splatview.cli.main import main
from splatview_ipc.subscriber.remote_run import RemoteRun
from splatview_ipc.subscriber.subscriber import Subscriber


@pytest.fixture
def run(subscriber: Subscriber) -> RemoteRun:
    """This process's run, as a viewer sees it."""
    splatview.publish(torch.zeros(4, 4))
    return welcomed(subscriber)


@dataclass
class _Loop:
    """A training loop in a thread."""

    steps: int = 0
    """Steps that it has taken."""
    is_ending: bool = False

    def train(self) -> None:
        while not self.is_ending:
            if splatview.wait_while_paused():
                self.steps += 1

    def has_taken(self, steps: int) -> bool:
        return self.steps == steps


@pytest.fixture
def loop(run: RemoteRun) -> Iterator[_Loop]:
    loop = _Loop()
    thread = threading.Thread(target=loop.train, daemon=True)
    thread.start()
    yield loop
    loop.is_ending = True
    thread.join(PATIENCE_S)
    splatview.close()


def _wait_until_it_waits(subscriber: Subscriber, run: RemoteRun) -> None:
    """Wait until the training waits in `wait_while_paused`."""

    def is_waiting() -> bool:
        subscriber.poll()
        return run.paused and run.waits == 2

    wait_until(is_waiting)


def test_step_lets_exactly_one_call_through(
    subscriber: Subscriber, run: RemoteRun, loop: _Loop
) -> None:
    wait_until(lambda: loop.steps > 3)
    run.set_paused(True)
    _wait_until_it_waits(subscriber, run)
    for _ in range(3):
        expected_steps = loop.steps + 1
        run.step()
        wait_until(lambda steps=expected_steps: loop.has_taken(steps))
        _wait_until_it_waits(subscriber, run)
        assert loop.steps == expected_steps
    assert splatview.paused()
    run.set_paused(False)
    steps_before = loop.steps
    wait_until(lambda: loop.steps > steps_before + 100)


def test_run_resumes_when_the_viewer_that_paused_it_leaves(
    subscriber: Subscriber, run: RemoteRun
) -> None:
    run.set_paused(True)
    wait_until(splatview.paused)
    subscriber.close()
    assert splatview.wait_while_paused(PATIENCE_S)
    assert not splatview.paused()


def test_close_ends_the_wait_of_a_paused_run(
    subscriber: Subscriber, run: RemoteRun
) -> None:
    results: list[bool] = []

    def train() -> None:
        results.append(splatview.wait_while_paused())

    run.set_paused(True)
    wait_until(splatview.paused)
    thread = threading.Thread(target=train)
    thread.start()
    _wait_until_it_waits(subscriber, run)
    splatview.close()
    thread.join(PATIENCE_S)
    assert results == [True]


def _status_of_run(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main(["status", "--json"])
    (status,) = json.loads(capsys.readouterr().out)["runs"]
    return status


def test_status_says_that_a_run_is_paused(
    subscriber: Subscriber, run: RemoteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run.set_paused(True)
    wait_until(splatview.paused)
    main(["status"])
    # The script does not call it: the status says that it should.
    assert "wait_while_paused" in capsys.readouterr().out
    thread = threading.Thread(target=splatview.wait_while_paused)
    thread.start()
    _wait_until_it_waits(subscriber, run)
    status = _status_of_run(capsys)
    assert status["paused"] is True
    assert status["waits"] is True
    run.set_paused(False)
    thread.join(PATIENCE_S)
    assert _status_of_run(capsys)["paused"] is False
