"""What a machine may run out of, or have taken away, around a training: it goes on, the reason is named once, and
viewers see it again when the cause is gone."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import torch
from support.reading import newest, stream
from support.soak import next_line
from support.wait import wait_until

import splatview
from splatview.api import session as publishing
from splatview_ipc import Subscriber
from splatview_ipc.control import door
from splatview_ipc.control.run_folder import list_runs

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Program, Programs

TRAINING = """
import logging, os, resource, select, signal, sys, threading, time
import torch, splatview
from splatview.api import session as publishing
logging.basicConfig(format="%(message)s", level=logging.WARNING)
publishing.RETRY_S = 0.1
step = 0
def train(n=1, side=8):
    global step
    for _ in range(n):
        step += 1
        splatview.publish(torch.full((side, side), step % 256, dtype=torch.uint8), step=step)
def said(text):
    print(text, flush=True)
    assert sys.stdin.readline()
"""


def sees(subscriber: Subscriber, after: int = 0) -> int:
    """Wait until a frame of a step over `after` has been read; its step."""
    _, meta, tensors = newest(subscriber, "image", after)
    assert (tensors["image"] == meta["step"] % 256).all()
    return meta["step"]


def faults(process: Program) -> list[str]:
    """End it; what its log said."""
    process.say()
    errors = process.end()[1]
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return [text for text in errors.splitlines() if "met a fault" in text]


SHORT = {
    "open files": ("resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')) + 3, hard))",
                   "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]",
                   "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))"),
    "threads": ("threading.stack_size(1 << 30); resource.setrlimit(resource.RLIMIT_AS, (used() + (200 << 20), hard))",
                "hard = resource.getrlimit(resource.RLIMIT_AS)[1]\n"
                "used = lambda: int(open('/proc/self/statm').read().split()[0]) * 4096",
                "threading.stack_size(0); resource.setrlimit(resource.RLIMIT_AS, (hard, hard))"),
}


@pytest.mark.parametrize("what", SHORT)
def test_a_run_that_cannot_be_begun_is_begun_later(what: str, programs: Programs) -> None:
    """A training at a limit of its process, which is raised later."""
    limit, before, raised = SHORT[what]
    process = programs.code(TRAINING + f"""
{before}
import splatview_ipc.publisher.publisher, splatview.adapters.gaussians, splatview.adapters.images, splatview.api.shard
torch.full((8, 8), 1, dtype=torch.uint8)
{limit}
begin = len(os.listdir("/proc/self/fd"))
for _ in range(20):
    train(50)
    time.sleep(0.02)
assert publishing.begun() is None
assert len(os.listdir("/proc/self/fd")) <= begin
print(os.listdir(os.environ["SPLATVIEW_RUNTIME_DIR"]), flush=True)
{raised}
while publishing.begun() is None:
    train()
train(10)
said("begun")
""")
    assert next_line(process) == "[]", "nothing is left of the tries"
    assert next_line(process) == "begun"
    with Subscriber() as subscriber:
        sees(subscriber)
    told = faults(process)
    assert len(told) == 1, told


def train(step: int) -> None:
    splatview.publish(torch.full((8, 8), step % 256, dtype=torch.uint8), step=step)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_runtime_folder_that_goes_away_while_running(how: str, runtime_dir: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """As a cleaner of temporary files does. Who looks on notices nothing; who comes later finds the run again."""
    monkeypatch.setattr(door, "PERIOD", 0.2)
    train(1)
    publisher = publishing.begun()
    assert publisher is not None
    with Subscriber() as before:
        there = stream(before, "image")
        for step in (2, 3):
            wait_until(lambda: publisher.folder.in_place, what="the folder is there")
            lock = (publisher.folder.path / "lock").stat()
            if how == "removed":
                shutil.rmtree(runtime_dir)
            else:
                shutil.rmtree(publisher.folder.path)
                publisher.folder.path.mkdir(mode=0o700)
            wait_until(lambda: (before.poll(), publisher.folder.in_place)[-1], what="the folder is made again")
            assert there.run.alive, "who looked on hears of no end"
            assert not os.path.samestat(lock, (publisher.folder.path / "lock").stat())
            assert [r.description.id for r in list_runs(runtime_dir)] == [publisher.run_id]
            train(step)
            assert sees(before, step - 1) == step
            with Subscriber() as late:
                assert sees(late) == step
        splatview.close()
        wait_until(lambda: (before.poll(), not there.run.alive)[-1], what="an end is told as ever")
    assert list(runtime_dir.iterdir()) == []
