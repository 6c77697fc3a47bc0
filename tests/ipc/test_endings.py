"""Ends of trainings, and forked children.

However a training ends, nothing of it is left; and no child that it forks harms its run or
keeps it alive.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from support.programs import Program, Programs
from support.reading import copied, newest, stream_of
from support.wait import wait_until

from splatview_ipc.control.run_folder import create_run, list_runs
from splatview_ipc.subscriber.subscriber import Subscriber

_TRAININGS = """
import gc, json, os, signal, sys, threading, warnings
import torch, splatview
# Of forking while other threads run.
warnings.simplefilter("ignore", DeprecationWarning)
image = torch.zeros((8, 8), dtype=torch.uint8)
step = 0
def publish():
    global step
    step += 1
    image.fill_(step % 256)
    splatview.publish(image, meta={"step": step})
def say_and_wait(*text):
    print(*text, flush=True)
    sys.stdin.readline()
say_and_wait("loaded")
for line in iter(sys.stdin.readline, ""):
    code, folder, errors = json.loads(line)
    if os.fork() == 0:
        os.environ["SPLATVIEW_RUNTIME_DIR"] = folder
        os.dup2(os.open(errors, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 2)
        publish()
        say_and_wait("ready", os.getpid())
        exec(code)
        sys.exit(0)
    print("ended", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
"""Forks a training for each line (its code, its runtime folder, the file of its errors), and
prints how it ended."""


class _Trainings:
    """One training after the other, each a fork of one program, which has loaded torch."""

    def __init__(self, programs: Programs) -> None:
        self.errors = programs.folder / "errors"
        self.program: Program = programs.code(_TRAININGS)
        assert self.program.line() == "loaded"
        self.program.write_line()

    def start(self, code: str, folder: Path) -> int:
        """Start a training, and return its process id once it has published.

        It goes on with `code` when a line comes.
        """
        self.program.write_line(json.dumps([code, str(folder), str(self.errors)]))
        keyword, pid = self.program.line().split()
        assert keyword == "ready"
        return int(pid)

    def wait(self) -> int:
        """Wait until the training has ended; return its exit code."""
        keyword, code = self.program.line().split()
        assert keyword == "ended"
        return int(code)


@pytest.fixture(scope="module")
def trainings(lasting: Programs) -> _Trainings:
    return _Trainings(lasting)


def _wait_polling(
    subscriber: Subscriber, condition: Callable[[], bool], name: str = ""
) -> None:
    """Poll the viewer until a condition is true."""

    def poll() -> bool:
        subscriber.poll()
        return condition()

    wait_until(poll, name)


# -- ends ------------------------------------------------------------------------------


class _Ending(NamedTuple):
    """A way in which a training ends."""

    code: str
    exit_code: int
    error: str = ""
    """Name of the exception whose traceback is printed; "": none is."""
    is_sudden: bool = False
    """True if nothing of ours can run then: the last versions of a burst are lost, and the
    next run removes the folder."""


_PUBLISHING_TO_THE_END = """
import atexit
zeros = torch.zeros((8, 8), dtype=torch.uint8)
def loop():
    for _ in range(1000):
        splatview.publish(zeros, "other", meta={"step": 0})
class Last:
    def __init__(self, publish):
        self.publish = publish
    def __del__(self):
        self.publish(zeros, "last", meta={"step": 0})
last = Last(splatview.publish)
threading.Thread(target=loop).start()
atexit.register(publish)
"""
_ENDINGS = {
    "exception": _Ending("raise ValueError('of the training')", 1, error="ValueError"),
    "os._exit": _Ending("os._exit(4)", 4, is_sudden=True),
    "exec": _Ending("os.execv('/bin/true', ['true'])", 0, is_sudden=True),
    "Ctrl-C": _Ending(
        "os.kill(os.getpid(), signal.SIGINT); sys.stdin.readline()",
        -signal.SIGINT,
        error="KeyboardInterrupt",
    ),
    "SIGTERM": _Ending(
        "os.kill(os.getpid(), signal.SIGTERM); sys.stdin.readline()",
        -signal.SIGTERM,
        is_sudden=True,
    ),
    "publishing to the end": _Ending(_PUBLISHING_TO_THE_END, 0),
}


@pytest.mark.parametrize("ending", _ENDINGS.values(), ids=_ENDINGS.keys())
def test_last_picture_stays_and_the_folder_goes_when_a_training_ends(
    ending: _Ending, runtime_dir: Path, trainings: _Trainings, subscriber: Subscriber
) -> None:
    code = "for _ in range(50): publish()\n" + ending.code
    pid = trainings.start(code, runtime_dir)
    assert newest(subscriber, "image", pid=pid)[0] == 1
    stream = stream_of(subscriber, "image")
    trainings.program.write_line()
    assert trainings.wait() == ending.exit_code
    errors = trainings.errors.read_text()
    assert ending.error in errors
    assert ("Traceback" in errors) == bool(ending.error), errors
    assert len(list(runtime_dir.iterdir())) == int(ending.is_sudden)
    _wait_polling(
        subscriber, lambda: not stream.run.alive, "the viewer says that the run ended"
    )
    version, meta, tensors = copied(stream)
    assert (tensors["image"] == meta["step"] % 256).all()
    if not ending.is_sudden:
        assert version >= 51
    run = create_run("next", os.getpid(), 2.0)
    assert list(runtime_dir.iterdir()) == [run.path]
    run.remove()


# -- forked children -------------------------------------------------------------------

_CHILDREN = {
    "ends": "sys.exit(0)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "closes": "splatview.close(); os._exit(0)",
    "is another program": "os.execv('/bin/true', ['true'])",
    "publishes a run of its own": (
        "publish(); "
        "splatview.api.session.started_publisher().run_id != parent or os._exit(1); "
        "splatview.close(); "
        "os._exit(0)"
    ),
    "forks again": "os.fork() or publish(); os._exit(0)",
}
_FORKING = """
parent = splatview.api.session.started_publisher().run_id
for line in iter(sys.stdin.readline, "\\n"):
    if os.fork() == 0:
        exec(line)
        os._exit(9)
    status = os.wait()[1]
    publish()
    print("forked", os.waitstatus_to_exitcode(status), flush=True)
"""
"""Forks a child for each line, which runs it; an empty one is the end."""


def test_forked_children_do_not_harm_their_parents_run(
    runtime_dir: Path, trainings: _Trainings, subscriber: Subscriber
) -> None:
    pid = trainings.start(_FORKING, runtime_dir)
    newest(subscriber, "image", pid=pid)
    stream = stream_of(subscriber, "image", pid)

    def parent_is_only_run() -> bool:
        return [run.description.pid for run in list_runs(runtime_dir)] == [pid]

    trainings.program.write_line()
    for step, (name, child) in enumerate(_CHILDREN.items(), 2):
        exit_code = -signal.SIGKILL if name == "is killed" else 0
        trainings.program.write_line(child)
        assert trainings.program.line() == f"forked {exit_code}", name
        version, meta, tensors = newest(subscriber, "image", step - 1, pid)
        assert version == step, name
        assert meta["step"] == step, name
        assert (tensors["image"] == step).all(), name
        assert stream.run.alive, name
        wait_until(parent_is_only_run, name)
    with Subscriber() as late:
        assert newest(late, "image", pid=pid)[0] == len(_CHILDREN) + 1
    trainings.program.write_line()
    assert trainings.wait() == 0


_CHILDREN_THAT_LIVE_ON = """
children = []
def fork():
    child = os.fork()
    if child == 0:
        signal.pause()
    children.append(child)
# Starts runs, and forks meanwhile.
for _ in range(3):
    thread = threading.Thread(target=publish)
    thread.start()
    fork()
    thread.join()
    splatview.close()
publish()
say_and_wait(*children)
os._exit(0)
"""


def test_run_ends_with_its_parent_although_forked_children_live_on(
    runtime_dir: Path, trainings: _Trainings, subscriber: Subscriber
) -> None:
    """Threads were just publishing, or starting a run, when they were forked."""
    trainings.start(_CHILDREN_THAT_LIVE_ON, runtime_dir)
    trainings.program.write_line()
    children = [int(pid) for pid in trainings.program.line().split()]
    assert len(children) == 3

    def live_runs() -> int:
        return sum(run.alive for run in subscriber.runs)

    def wait_for_live_runs(count: int) -> None:
        _wait_polling(subscriber, lambda: live_runs() == count)

    try:
        wait_for_live_runs(1)
        trainings.program.write_line()
        assert trainings.wait() == 0
        wait_for_live_runs(0)
        _wait_polling(subscriber, lambda: not list(runtime_dir.iterdir()))
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
