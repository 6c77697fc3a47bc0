"""A trainer's announcements over ZeroMQ: nothing can connect to a trainer, nothing waits, nothing stays behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.reading import newest

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
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


def test_a_trainer_without_any_open_file_left_lives_on_and_answers_when_it_has_some(programs: Programs) -> None:
    """libzmq would have ended it, had it been the one that listens."""
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
