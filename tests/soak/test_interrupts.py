"""Ctrl-C at any line of a script that publishes and closes, as in a notebook."""

from __future__ import annotations

import pytest
from support.programs import Programs
from support.reading import newest, stream_of
from support.wait import polls

from splatview_ipc.subscriber.subscriber import Subscriber

pytestmark = pytest.mark.soak

_INTERRUPTED = """
import os, random, signal, sys, threading
import torch, splatview

ended = threading.Event()
step = interrupts = 0
training = False
def raise_while_training(*args):
    global interrupts, training
    if training:
        interrupts += 1
        training = False
        raise KeyboardInterrupt
def interrupt():
    chance = random.Random(0)
    while not ended.wait(chance.uniform(0.0005, 0.004)):
        os.kill(os.getpid(), signal.SIGINT)
def publish(step):
    splatview.publish(torch.full((200, 200), step % 256, dtype=torch.uint8), "image", meta={"step": step})
def train():
    global step, training
    training = True
    while True:
        step += 1
        publish(step)
        if step % 50 == 0:
            splatview.close()

publish(0)
print("published", flush=True)
sys.stdin.readline()
signal.signal(signal.SIGINT, raise_while_training)
thread = threading.Thread(target=interrupt)
thread.start()
while interrupts < 500:
    try:
        train()
    except KeyboardInterrupt:
        pass
ended.set()
thread.join()
publish(0)
print(interrupts, flush=True)
sys.stdin.readline()
"""


def test_interrupts_lose_no_version(programs: Programs, subscriber: Subscriber) -> None:
    program = programs.code(_INTERRUPTED)
    assert program.line() == "published"
    assert newest(subscriber, "image")[1]["step"] == 0
    program.write_line()
    assert program.line() == "500"
    for _ in polls("the last version is seen"):
        _, meta, arrays = newest(subscriber, "image", pid=program.pid)
        assert (arrays["image"] == meta["step"] % 256).all()
        if meta["step"] == 0:
            break
    assert stream_of(subscriber, "image").run.counters["faults"] == 0
    program.write_line()
    output, errors = program.end()
    assert (output, program.returncode) == ("", 0)
    assert "Traceback" not in errors
    assert "was deleted" not in errors
