"""What a trainer tells viewers goes over ZeroMQ, to which nothing can connect in a trainer."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch
from support.reading import newest, welcomed

import splatview
from splatview_ipc import Subscriber
from splatview_ipc.control import mail

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs

FULL = """
import os, resource, sys, torch, splatview
splatview.publish(torch.zeros(8, 8, 3), step=0)
print("up", flush=True)
sys.stdin.readline()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    print("full", flush=True)
step = 0
for line in sys.stdin:
    if line == "room\\n":
        for fd in held:
            os.close(fd)
    step += 1
    splatview.publish(torch.zeros(8, 8, 3), step=step)
    print(step, flush=True)
"""


@pytest.fixture(autouse=True)
def published(runtime_dir: Path) -> None:
    splatview.publish(torch.zeros(4, 4, 3))


def test_answers_come_by_zeromq_and_the_inbox_is_shut_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    outbox = mail.Mailroom.outbox
    monkeypatch.setattr(mail.Mailroom, "outbox", lambda self, inbox: (made.append(inbox), outbox(self, inbox))[1])
    with Subscriber() as subscriber:
        run = welcomed(subscriber)
        assert [path.name.startswith("inbox-") for path in made] == [True]
        assert not [n for n in os.listdir(run.folder.path) if n.startswith("inbox-")]
        assert newest(subscriber, "image")[0] == 1


def test_a_trainer_without_any_open_file_left_lives_on_and_answers_when_it_has_some(programs: Programs) -> None:
    """libzmq would have ended it, had it been the one that listens."""
    splatview.close()
    trainer = programs.code(FULL)
    assert trainer.line() == "up"
    with Subscriber() as early:
        assert newest(early, "image")[0] == 1
        trainer.say()
        assert trainer.line() == "full"
        with Subscriber() as late:
            for step in range(1, 5):
                trainer.say("on")
                assert trainer.line() == str(step)
                assert newest(early, "image", after=step)[0] == step + 1
                late.poll()
            assert not any(run.welcomed for run in late.runs)
            trainer.say("room")
            assert trainer.line() == "5"
            assert newest(late, "image", after=5)[0] == 6
    assert trainer.poll() is None
