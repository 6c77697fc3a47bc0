"""However a training ends, nothing of it is left; and no child that it forks harms its run or keeps it alive."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from support.programs import Program, Programs
from support.reading import copied, newest, stream_of
from support.wait import wait_until

from splatview_ipc.control.run_folder import create_run, list_runs
from splatview_ipc.subscriber.subscriber import Subscriber

TRAININGS = """
import gc, json, os, signal, sys, threading, warnings
import torch, splatview
warnings.simplefilter("ignore", DeprecationWarning)  # of forking while other threads run
image, step = torch.zeros((8, 8), dtype=torch.uint8), 0
def publish():
    global step
    step += 1
    image.fill_(step % 256)
    splatview.publish(image, meta={"step": step})
def said(*text):
    print(*text, flush=True)
    sys.stdin.readline()
said("loaded")
for line in iter(sys.stdin.readline, ""):
    code, folder, errors = json.loads(line)
    if os.fork() == 0:
        os.environ["SPLATVIEW_RUNTIME_DIR"] = folder
        os.dup2(os.open(errors, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 2)
        publish()
        said("ready", os.getpid())
        exec(code)
        sys.exit(0)
    print("ended", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
"""Forks a training for each line (its code, its runtime folder, where its errors go) and says how it ended."""


class Trainings:
    """One training after the other, each a fork of one program, which has loaded what they need."""

    def __init__(self, programs: Programs) -> None:
        self.errors = programs.folder / "errors"
        self.program: Program = programs.code(TRAININGS)
        assert self.program.line() == "loaded"
        self.program.say()

    def start(self, code: str, folder: Path) -> int:
        """Its process id, once it has published; it goes on with `code` when a line comes."""
        self.program.say(json.dumps([code, str(folder), str(self.errors)]))
        word, pid = self.program.line().split()
        assert word == "ready"
        return int(pid)

    def ended(self) -> int:
        """Wait for its end; its exit code."""
        word, code = self.program.line().split()
        assert word == "ended"
        return int(code)


@pytest.fixture(scope="module")
def trainings(lasting: Programs) -> Trainings:
    return Trainings(lasting)


ENDINGS = {
    "an exception": ("raise ValueError('of the training')", 1),
    "os._exit": ("os._exit(4)", 4),
    "exec": ("os.execv('/bin/true', ['true'])", 0),
    "Ctrl-C": (
        "os.kill(os.getpid(), signal.SIGINT); sys.stdin.readline()",
        -signal.SIGINT,
    ),
    "SIGTERM": (
        "os.kill(os.getpid(), signal.SIGTERM); sys.stdin.readline()",
        -signal.SIGTERM,
    ),
    "publishing to the end": (
        """
import atexit
def loop():
    for _ in range(1000):
        splatview.publish(torch.zeros((8, 8), dtype=torch.uint8), "other", meta={"step": 0})
class Last:
    def __init__(self, publish): self.publish = publish
    def __del__(self): self.publish(torch_zeros, "last", meta={"step": 0})
torch_zeros = torch.zeros((8, 8), dtype=torch.uint8)
last = Last(splatview.publish)
threading.Thread(target=loop).start()
atexit.register(publish)
""",
        0,
    ),
}
SAID = {"an exception": "ValueError", "Ctrl-C": "KeyboardInterrupt"}
SUDDEN = {"os._exit", "SIGTERM", "exec"}
"""Nothing of ours can run then: the last versions of a burst are lost, and what is left in the runtime folder is
cleared away by what comes next."""


@pytest.mark.parametrize("name", ENDINGS)
def test_an_end_while_a_viewer_reads(
    name: str, runtime_dir: Path, trainings: Trainings, subscriber: Subscriber
) -> None:
    end, code = ENDINGS[name]
    pid = trainings.start("for _ in range(50): publish()\n" + end, runtime_dir)
    assert newest(subscriber, "image", pid=pid)[0] == 1
    seen = stream_of(subscriber, "image")
    trainings.program.say()
    assert trainings.ended() == code
    errors = trainings.errors.read_text()
    assert SAID.get(name, "") in errors and ("Traceback" in errors) == (name in SAID), (
        errors
    )
    assert len(list(runtime_dir.iterdir())) == (name in SUDDEN)
    wait_until(
        lambda: (subscriber.poll(), not seen.run.alive)[-1],
        what="the viewer says that the run ended",
    )
    version, meta, tensors = copied(seen)
    assert (tensors["image"] == meta["step"] % 256).all(), "the last picture stays"
    assert version >= 51 or name in SUDDEN
    run = create_run("next", os.getpid(), 2.0)
    assert list(runtime_dir.iterdir()) == [run.path], (
        "the next run clears away what is left"
    )
    run.remove()


CHILDREN = {
    "ends": "sys.exit(0)",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "closes": "splatview.close(); os._exit(0)",
    "is another program": "os.execv('/bin/true', ['true'])",
    "publishes a run of its own": "publish(); splatview.api.session.begun().run_id != parent or os._exit(1); "
    "splatview.close(); os._exit(0)",
    "forks again": "os.fork() or publish(); os._exit(0)",
}
FORKING = """
parent = splatview.api.session.begun().run_id
for line in iter(sys.stdin.readline, "\\n"):
    if os.fork() == 0:
        exec(line)
        os._exit(9)
    status = os.wait()[1]
    publish()
    print("forked", os.waitstatus_to_exitcode(status), flush=True)
"""
"""Forks a child for each line, which runs it; an empty one is the end."""


def test_forked_children_do_no_harm(
    runtime_dir: Path, trainings: Trainings, subscriber: Subscriber
) -> None:
    pid = trainings.start(FORKING, runtime_dir)
    newest(subscriber, "image", pid=pid)
    seen = stream_of(subscriber, "image", pid)
    trainings.program.say()
    for step, (name, child) in enumerate(CHILDREN.items(), 2):
        trainings.program.say(child)
        assert (
            trainings.program.line()
            == f"forked {-signal.SIGKILL if name == 'is killed' else 0}"
        ), name
        version, meta, tensors = newest(subscriber, "image", step - 1, pid)
        assert (version, meta["step"]) == (step, step), name
        assert (tensors["image"] == step).all() and seen.run.alive, name
        wait_until(
            lambda: [r.description.pid for r in list_runs(runtime_dir)] == [pid], name
        )
    with Subscriber() as late:
        assert newest(late, "image", pid=pid)[0] == len(CHILDREN) + 1
    trainings.program.say()
    assert trainings.ended() == 0


LIVING = """
children = []
def fork():
    child = os.fork()
    if child == 0:
        signal.pause()
    children.append(child)
for i in range(5):  # beginning runs, and forking meanwhile
    thread = threading.Thread(target=publish)
    thread.start()
    fork()
    thread.join()
    splatview.close()
publish()
said(*children)
os._exit(0)
"""


def test_a_child_that_lives_on_keeps_nothing_alive(
    runtime_dir: Path, trainings: Trainings, subscriber: Subscriber
) -> None:
    """However many threads were just publishing, or beginning to, when it was forked."""
    trainings.start(LIVING, runtime_dir)
    trainings.program.say()
    children = [*map(int, trainings.program.line().split())]
    assert len(children) == 5
    try:
        wait_until(
            lambda: (
                subscriber.poll(),
                len([r for r in subscriber.runs if r.alive]) == 1,
            )[-1]
        )
        trainings.program.say()
        assert trainings.ended() == 0
        wait_until(
            lambda: (subscriber.poll(), not any(r.alive for r in subscriber.runs))[-1],
            what="the run ends with the parent",
        )
        wait_until(lambda: (subscriber.poll(), list(runtime_dir.iterdir()) == [])[-1])
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
