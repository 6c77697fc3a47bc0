"""However a training ends: its end comes at once, and nothing of it is left."""

from __future__ import annotations

import inspect
import os
import re
import select
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.endings import BEGIN, go_on, line, newest, opened
from support.meters import footprint
from support.repetitions import exhaustive, with_exhaustive
from support.wait import PATIENCE

from splatview.ipc import Subscriber, transport
from splatview.ipc.runs import create_run, list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    with Subscriber() as s:
        yield s


ENDINGS = {
    "the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError('of the training')", 1),
    "os._exit": ("os._exit(4)", 4),
    "an exception in a thread": ("t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", 0),
    "a thread that publishes to the end": ("""
def loop():
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        splatview.publish(torch.zeros((8, 8), dtype=torch.uint8), "other", step=0)
threading.Thread(target=loop).start()
""", 0),
    "publishing in an exit function": ("import atexit; atexit.register(publish)", 0),
    "publishing when the program is torn down": ("""
class Last:
    def __init__(self, publish): self.publish = publish
    def __del__(self): self.publish(torch_zeros, "last", step=0)
torch_zeros = torch.zeros((8, 8), dtype=torch.uint8)
last = Last(splatview.publish)
""", 0),
    "Ctrl-C": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", -signal.SIGTERM),
    "SIGTERM that is taken": ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); "
                              "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", 5),
    "abort": ("os.abort()", -signal.SIGABRT),
    "exec": ("os.execv('/bin/true', ['true'])", 0),
}
SUDDEN = {"os._exit", "SIGTERM", "abort", "exec"}
"""Nothing of ours can run then: what is left in the runtime folder is cleared away by whoever comes next."""


@pytest.mark.parametrize("name", with_exhaustive(
    list(ENDINGS), "sys.exit", "an exception", "an exception in a thread", "abort", "publishing in an exit function"))
def test_an_end_while_a_viewer_reads(name: str, runtime_dir: Path, programs: Programs, subscriber: Subscriber,
                                     wait_until: Callable[..., Any]) -> None:
    end, code = ENDINGS[name]
    process = programs.code(BEGIN + "said('ready')\nfor _ in range(50): publish()\n" + end)
    assert line(process) == "ready"
    stream = opened(subscriber, process.pid, wait_until)
    version = newest(stream)
    go_on(process)
    while process.poll() is None:
        subscriber.poll()
        version = max(version, newest(stream))
        time.sleep(0.002)
    assert process.returncode == code, process.communicate()[1]
    wait_until(lambda: (subscriber.poll(), not stream.run.alive)[-1], what="the viewer says that the run ended")
    assert newest(stream) >= version, "the last picture stays"
    wait_until(lambda: (subscriber.poll(), list(runtime_dir.iterdir()) == [])[-1],
               what="whoever looks clears away what is left")
    errors = process.communicate()[1]
    expected = {"an exception": "ValueError", "an exception in a thread": "ZeroDivisionError",
                "Ctrl-C": "KeyboardInterrupt"}
    assert expected.get(name, "") in errors
    if name not in expected:
        assert "Traceback" not in errors, errors


def test_an_end_with_a_daemon_thread_that_publishes(runtime_dir: Path, programs: Programs) -> None:
    """Nobody looks, so that nothing of torch's runs there: a daemon thread in torch may end any program by abort, with
    us or without (Python ends such threads where C++ does not allow it)."""
    process = programs.code(BEGIN + """
def loop():
    while True:
        splatview.publish(image, step=0)
threading.Thread(target=loop, daemon=True).start()
time.sleep(0.2)
""")
    errors = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, errors) == (0, "")
    assert list(runtime_dir.iterdir()) == []


@pytest.mark.parametrize("name", with_exhaustive(
    [n for n in ENDINGS if n not in SUDDEN], "an exception", "Ctrl-C", "a thread that publishes to the end",
    "publishing when the program is torn down"))
def test_an_orderly_end_leaves_nothing_to_clear_away(name: str, runtime_dir: Path, programs: Programs) -> None:
    process = programs.code(BEGIN + ENDINGS[name][0])
    process.communicate(timeout=PATIENCE)
    assert process.returncode == ENDINGS[name][1]
    assert list(runtime_dir.iterdir()) == []


@pytest.mark.parametrize("name", sorted(SUDDEN))
def test_a_sudden_end_is_cleared_away_by_the_next_run(name: str, runtime_dir: Path, programs: Programs) -> None:
    programs.code(BEGIN + ENDINGS[name][0]).communicate(timeout=PATIENCE)
    assert len(list(runtime_dir.iterdir())) == 1
    assert list_runs(runtime_dir) == []
    run = create_run("next", os.getpid(), time.time())
    assert list(runtime_dir.iterdir()) == [run.path]
    run.remove()


def test_an_end_waits_for_half_a_second_at_most() -> None:
    """What holds up an end is the time that the helper thread is given; all else is given back by the kernel."""
    joins = re.findall(r"join\(timeout=([0-9.]+)\)", inspect.getsource(transport))
    assert [float(j) for j in joins] == [0.5]


@pytest.mark.exhaustive
def test_an_end_while_a_large_value_is_copied(runtime_dir: Path, programs: Programs, subscriber: Subscriber,
                                              wait_until: Callable[..., Any]) -> None:
    """The helper thread is in the middle of a copy of seconds, or of getting the memory for it."""
    process = programs.code("""
import sys, torch, splatview
strided = torch.zeros(4000, 4000, 3).transpose(0, 1)
splatview.publish(strided, step=0)
print("ready", flush=True)
assert sys.stdin.readline()
""")
    assert line(process) == "ready"
    stream = wait_until(lambda: (subscriber.poll(), subscriber.streams)[-1])[0]
    stream.open()
    wait_until(lambda: (subscriber.poll(), footprint(process.pid).segments > 2)[-1], what="the ring is being made")
    go_on(process)
    wait_until(lambda: (subscriber.poll(), process.poll() is not None)[-1], what="it ended")
    assert process.returncode == 0, process.communicate()[1]
    assert "Traceback" not in process.communicate()[1]
    wait_until(lambda: (subscriber.poll(), list(runtime_dir.iterdir()) == [])[-1])


def test_an_end_while_the_helper_thread_is_stuck(runtime_dir: Path, programs: Programs) -> None:
    """A call of somebody's that it waits in never comes back: what it was to do is not done, and the program ends."""
    process = programs.code(BEGIN + """
from splatview import publishing
publisher = publishing.begun()
began = threading.Event()
def stuck():
    began.set()
    time.sleep(3600)
publisher._helper._tell_changes = stuck
publisher.announce()
assert began.wait(60)
print("ready", flush=True)
""")
    assert process.communicate(timeout=PATIENCE)[0] == "ready\n"
    assert process.returncode == 0
    assert list(runtime_dir.iterdir()) == []


@pytest.mark.parametrize("presses", [100, exhaustive(300)])
def test_ctrl_c_in_the_middle_of_anything(programs: Programs, subscriber: Subscriber,
                                          wait_until: Callable[..., Any], presses: int) -> None:
    """As the stop button of a notebook does: what was begun is taken up again by the next publish."""
    process = programs.code(BEGIN + f"""
presses = {presses}
""" + """
said("ready")
import random
def press():
    for _ in range(presses):
        while not inside:  # not where the one before is being caught
            time.sleep(0.0001)
        time.sleep(random.random() * 0.004)
        before = stopped
        os.kill(os.getpid(), signal.SIGINT)
        while stopped == before:
            time.sleep(0.0001)
    over.append(1)
over, stopped, inside = [], 0, False
threading.Thread(target=press).start()
while not over:
    try:
        inside = True
        while not over:
            publish()
    except KeyboardInterrupt:
        inside = False
        stopped += 1
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(stopped, flush=True)
while True:
    publish()
    time.sleep(0.005)
""")
    assert line(process) == "ready"
    stream = opened(subscriber, process.pid, wait_until)
    go_on(process)
    read = 0
    while True:  # while the button is pressed
        subscriber.poll()
        version = newest(stream)
        assert version == 0 or version >= read
        read = max(version, read)
        assert process.stdout is not None
        if select.select([process.stdout], [], [], 0.002)[0]:
            break
    assert int(line(process)) > presses // 6
    after = stream.version
    for _ in range(3):
        wait_until(lambda after=after: (subscriber.poll(), newest(stream) > after)[-1],
                   what="new versions come after all that")
        after = stream.version
