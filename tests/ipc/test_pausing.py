"""Pausing a run, letting one step through, and what its log says of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.reading import welcomed
from support.wait import PATIENCE, wait_until

import splatview
from splatview.cli.main import main
from splatview_ipc.subscriber.subscriber import Subscriber


@pytest.fixture
def run(subscriber: Subscriber) -> Any:
    """This process's run, as a viewer sees it."""
    splatview.publish(torch.zeros(4, 4))
    return welcomed(subscriber)


@pytest.fixture
def loop(run: Any) -> Iterator[Any]:
    """A training loop in a thread, which counts the `steps` that it has taken."""
    made = SimpleNamespace(steps=0, ending=False)

    def train() -> None:
        while not made.ending:
            if splatview.wait_while_paused():
                made.steps += 1

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    yield made
    made.ending = True
    thread.join(PATIENCE)
    splatview.close()


def waits(subscriber: Subscriber, run: Any) -> bool:
    subscriber.poll()
    return run.paused and run.waits == 2


def test_a_step_lets_exactly_one_call_through(
    subscriber: Subscriber, run: Any, loop: Any
) -> None:
    wait_until(lambda: loop.steps > 3)
    run.set_paused(True)
    wait_until(lambda: waits(subscriber, run))
    for _ in range(3):
        before = loop.steps
        run.step()
        wait_until(lambda n=before: loop.steps == n + 1)
        wait_until(lambda: waits(subscriber, run))
        assert loop.steps == before + 1
    assert splatview.paused()
    run.set_paused(False)
    before = loop.steps
    wait_until(lambda: loop.steps > before + 100)


def test_a_viewer_takes_its_pause_with_it(subscriber: Subscriber, run: Any) -> None:
    run.set_paused(True)
    wait_until(splatview.paused)
    subscriber.close()
    assert splatview.wait_while_paused(PATIENCE)
    assert not splatview.paused()


def test_closing_the_run_ends_the_wait(subscriber: Subscriber, run: Any) -> None:
    done = []
    run.set_paused(True)
    wait_until(splatview.paused)
    thread = threading.Thread(target=lambda: done.append(splatview.wait_while_paused()))
    thread.start()
    wait_until(lambda: waits(subscriber, run))
    splatview.close()
    thread.join(PATIENCE)
    assert done == [True]


def test_status_says_that_a_run_is_paused(
    subscriber: Subscriber, run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run.set_paused(True)
    wait_until(splatview.paused)
    main(["status"])
    assert (
        "wait_while_paused" in capsys.readouterr().out
    )  # which the script does not call
    thread = threading.Thread(target=splatview.wait_while_paused)
    thread.start()
    wait_until(lambda: waits(subscriber, run))
    main(["status", "--json"])
    (said,) = json.loads(capsys.readouterr().out)["runs"]
    assert (said["paused"], said["waits"]) == (True, True)
    run.set_paused(False)
    thread.join(PATIENCE)
    main(["status", "--json"])
    assert json.loads(capsys.readouterr().out)["runs"][0]["paused"] is False
