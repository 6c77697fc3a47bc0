"""However a training ends, or forks: its end comes at once, nothing of it is left, and no child harms it."""

from __future__ import annotations

import inspect
import os
import re
import select
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from meters import footprint
from patience import PATIENCE

from ipc import Subscriber, transport
from ipc.runs import create_run, list_runs

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from programs import Processes

    from ipc import RemoteStream

BEGIN = """
import gc, multiprocessing, os, signal, sys, threading, time, warnings
import torch, splatview
warnings.simplefilter("ignore", DeprecationWarning)  # of forking while other threads run
image, step = torch.zeros((8, 8), dtype=torch.uint8), 0
def publish():
    global step
    step += 1
    image.fill_(step % 256)
    splatview.publish(image, step=step)
def said(text):
    print(text, flush=True)
    assert sys.stdin.readline()
publish()
"""


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    with Subscriber() as s:
        yield s


def opened(subscriber: Subscriber, pid: int, wait_until: Callable[..., Any]) -> RemoteStream:
    """The stream of a process, when a frame of it has been read."""
    def find() -> RemoteStream | None:
        subscriber.poll()
        for stream in subscriber.streams:
            if stream.run.pid == pid and stream.run.alive:
                stream.open()
                if newest(stream) > 0:
                    return stream
        return None

    return wait_until(find, what=f"a frame of process {pid}")


def newest(stream: RemoteStream) -> int:
    """The version of the newest frame that can be read, which has to hold its own step; 0: none."""
    frame = stream.read()
    if frame is None:
        return 0
    with frame:
        array = frame.tensors["image"].array.copy()  # type: ignore[union-attr]
        step = frame.meta["step"]
        if not frame.intact():
            return 0
    assert (array == step % 256).all()
    return frame.version


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    text = process.stdout.readline()
    assert text, process.communicate()[1]
    return text.strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


ENDINGS = {
    "the end": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError('of the training')", 1),
    "os._exit": ("os._exit(4)", 4),
    "an exception in a thread": ("t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", 0),
    "a thread that publishes to the end": ("""
def loop():
    end = time.monotonic() + 0.5
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


@pytest.mark.parametrize("name", ENDINGS)
def test_an_end_while_a_viewer_reads(name: str, runtime_dir: Path, processes: Processes, subscriber: Subscriber,
                                     wait_until: Callable[..., Any]) -> None:
    end, code = ENDINGS[name]
    process = processes.code(BEGIN + "said('ready')\nfor _ in range(50): publish()\n" + end)
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


def test_an_end_with_a_daemon_thread_that_publishes(runtime_dir: Path, processes: Processes) -> None:
    """Nobody looks, so that nothing of torch's runs there: a daemon thread in torch may end any program by abort, with
    us or without (Python ends such threads where C++ does not allow it)."""
    process = processes.code(BEGIN + """
def loop():
    while True:
        splatview.publish(image, step=0)
threading.Thread(target=loop, daemon=True).start()
time.sleep(0.2)
""")
    errors = process.communicate(timeout=PATIENCE)[1]
    assert (process.returncode, errors) == (0, "")
    assert list(runtime_dir.iterdir()) == []


@pytest.mark.parametrize("name", [n for n in ENDINGS if n not in SUDDEN])
def test_an_orderly_end_leaves_nothing_to_clear_away(name: str, runtime_dir: Path, processes: Processes) -> None:
    process = processes.code(BEGIN + ENDINGS[name][0])
    process.communicate(timeout=PATIENCE)
    assert process.returncode == ENDINGS[name][1]
    assert list(runtime_dir.iterdir()) == []


@pytest.mark.parametrize("name", sorted(SUDDEN))
def test_a_sudden_end_is_cleared_away_by_the_next_run(name: str, runtime_dir: Path, processes: Processes) -> None:
    processes.code(BEGIN + ENDINGS[name][0]).communicate(timeout=PATIENCE)
    assert len(list(runtime_dir.iterdir())) == 1
    assert list_runs(runtime_dir) == []
    run = create_run("next", os.getpid(), time.time())
    assert list(runtime_dir.iterdir()) == [run.path]
    run.remove()


def test_an_end_waits_for_half_a_second_at_most() -> None:
    """What holds up an end is the time that the helper thread is given; all else is given back by the kernel."""
    joins = re.findall(r"join\(timeout=([0-9.]+)\)", inspect.getsource(transport))
    assert [float(j) for j in joins] == [0.5]


def test_an_end_while_a_large_value_is_copied(runtime_dir: Path, processes: Processes, subscriber: Subscriber,
                                              wait_until: Callable[..., Any]) -> None:
    """The helper thread is in the middle of a copy of seconds, or of getting the memory for it."""
    process = processes.code("""
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


def test_an_end_while_the_helper_thread_is_stuck(runtime_dir: Path, processes: Processes) -> None:
    """A call of somebody's that it waits in never comes back: what it was to do is not done, and the program ends."""
    process = processes.code(BEGIN + """
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


def test_ctrl_c_in_the_middle_of_anything(processes: Processes, subscriber: Subscriber,
                                          wait_until: Callable[..., Any]) -> None:
    """As the stop button of a notebook does, 300 times: what was begun is taken up again by the next publish."""
    process = processes.code(BEGIN + """
said("ready")
import random
def press():
    for _ in range(300):
        time.sleep(random.random() * 0.004)
        os.kill(os.getpid(), signal.SIGINT)
    over.append(1)
over, stopped, begun = [], 0, False
while not over:
    try:
        if not begun:
            begun = True
            threading.Thread(target=press).start()
        while not over:
            publish()
    except KeyboardInterrupt:
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
    assert int(line(process)) > 50
    after = stream.version
    for _ in range(3):
        wait_until(lambda after=after: (subscriber.poll(), newest(stream) > after)[-1],
                   what="new versions come after all that")
        after = stream.version


CHILDREN = {
    "goes on and ends": "sys.exit(0)",
    "crashes": "os.abort()",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "leaves at once": "os._exit(0)",
    "raises": "raise ValueError",
    "closes": "splatview.close(); os._exit(0)",
    "collects garbage": """
import splatview.publishing, ipc.publisher
ipc.publisher._inherited.clear()
gc.collect()
sys.exit(0)
""",
    "runs the exit functions": "import atexit; atexit._run_exitfuncs(); os._exit(0)",
    "is another program": "os.execv('/bin/true', ['true'])",
    "publishes a run of its own": """
for _ in range(20):
    publish()
assert splatview.publishing.begun().run_id != parent
sys.exit(0)
""",
    "forks again": """
if os.fork() == 0:
    publish()
    sys.exit(0)
os.wait()
sys.exit(0)
""",
}


@pytest.mark.parametrize("name", CHILDREN)
def test_a_forked_child_does_no_harm(name: str, runtime_dir: Path, processes: Processes, subscriber: Subscriber,
                                     wait_until: Callable[..., Any]) -> None:
    process = processes.code(BEGIN + f"""
parent = splatview.publishing.begun().run_id
said("ready")
if os.fork() == 0:
    {'''
    '''.join(CHILDREN[name].strip().splitlines())}
    os._exit(9)
os.wait()
publish()
print("forked", flush=True)
while True:
    publish()
    time.sleep(0.005)
""")
    assert line(process) == "ready"
    stream = opened(subscriber, process.pid, wait_until)
    before = process_descriptors(process.pid)
    go_on(process)
    assert line(process) == "forked"
    for _ in range(3):
        after = stream.version
        wait_until(lambda after=after: (subscriber.poll(), newest(stream) > after)[-1], what="the parent publishes on")
    assert stream.run.alive
    assert [r.description.pid for r in list_runs(runtime_dir)] == [process.pid]
    assert process_descriptors(process.pid) <= before + 1
    with Subscriber() as late:
        opened(late, process.pid, wait_until)


def process_descriptors(pid: int) -> int:
    return footprint(pid).descriptors


def test_a_child_that_lives_on_keeps_nothing_alive(runtime_dir: Path, processes: Processes, subscriber: Subscriber,
                                                   wait_until: Callable[..., Any]) -> None:
    """However many threads were just publishing, or beginning to, when it was forked."""
    process = processes.code(BEGIN + """
for _ in range(10):
    threading.Thread(target=lambda: [splatview.publish(torch.zeros(4, 4), f"s{i}", step=0) for i in range(50)]).start()
pid = os.fork()
if pid == 0:
    time.sleep(3600)
    os._exit(0)
splatview.close()
for i in range(20):  # beginning runs, and forking meanwhile
    thread = threading.Thread(target=publish)
    thread.start()
    child = os.fork()
    if child == 0:
        time.sleep(3600)
        os._exit(0)
    thread.join()
    print(child, flush=True)
    splatview.close()
publish()
print(pid, flush=True)
said("forked")
""")
    children = [int(line(process)) for _ in range(21)]
    try:
        assert line(process) == "forked"
        wait_until(lambda: (subscriber.poll(), len([r for r in subscriber.runs if r.alive]) == 1)[-1])
        process.kill()
        process.wait()
        wait_until(lambda: (subscriber.poll(), not any(r.alive for r in subscriber.runs))[-1],
                   what="the run ends with the parent")
        wait_until(lambda: (subscriber.poll(), list(runtime_dir.iterdir()) == [])[-1])
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_and_of_a_pool(method: str, runtime_dir: Path, processes: Processes,
                                                subscriber: Subscriber, wait_until: Callable[..., Any],
                                                tmp_path: Path) -> None:
    """Workers that load data, some of which publish themselves, beside a training that publishes."""
    program = tmp_path / f"train_{method}.py"
    program.write_text("import multiprocessing\n" + BEGIN.rstrip().removesuffix("publish()") + f"""
class Data(torch.utils.data.Dataset):
    def __len__(self): return 12
    def __getitem__(self, i):
        splatview.publish(torch.full((4, 4), i, dtype=torch.uint8), "of a worker", step=i)
        return torch.full((3,), float(i))
def work(i):
    splatview.publish(torch.full((4, 4), i, dtype=torch.uint8), "of a pool", step=i)
    return i
if __name__ == "__main__":
    publish()
    said("ready")
    for epoch in range(2):
        loader = torch.utils.data.DataLoader(Data(), batch_size=3, num_workers=2, multiprocessing_context={method!r})
        for batch in loader:
            publish()
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        assert pool.map(work, range(6)) == list(range(6))
    publish()
    print(splatview.publishing.begun().run_id, flush=True)
    said("worked")
""")
    process = processes.python(str(program))
    assert line(process) == "ready"
    stream = opened(subscriber, process.pid, wait_until)
    go_on(process)
    assert line(process) == stream.run.id
    assert line(process) == "worked"
    wait_until(lambda: (subscriber.poll(), newest(stream) == stream.version)[-1])
    wait_until(lambda: (subscriber.poll(), [r.pid for r in subscriber.runs if r.alive] == [process.pid])[-1],
               what="the runs of the workers ended with them")
    go_on(process)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    wait_until(lambda: (subscriber.poll(), list(runtime_dir.iterdir()) == [])[-1])
