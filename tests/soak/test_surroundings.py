"""What a machine may run out of, or have taken away, around a training: it goes on, the reason is named once, and
viewers see it again when the cause is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.reading import newest
from support.soak import next_line

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
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
