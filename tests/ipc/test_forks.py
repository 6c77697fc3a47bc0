"""A training that forks, for its data as a rule: no child harms the run of its parent, or keeps it alive."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from support.endings import BEGIN, go_on, line, newest, opened
from support.meters import footprint
from support.wait import PATIENCE

from splatview.ipc import Subscriber
from splatview.ipc.runs import list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    with Subscriber() as s:
        yield s


CHILDREN = {
    "goes on and ends": "sys.exit(0)",
    "crashes": "os.abort()",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "leaves at once": "os._exit(0)",
    "raises": "raise ValueError",
    "closes": "splatview.close(); os._exit(0)",
    "collects garbage": """
import splatview.publishing, splatview.ipc.publisher
splatview.ipc.publisher._inherited.clear()
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
def test_a_forked_child_does_no_harm(name: str, runtime_dir: Path, programs: Programs, subscriber: Subscriber,
                                     wait_until: Callable[..., Any]) -> None:
    process = programs.code(BEGIN + f"""
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


def test_a_child_that_lives_on_keeps_nothing_alive(runtime_dir: Path, programs: Programs, subscriber: Subscriber,
                                                   wait_until: Callable[..., Any]) -> None:
    """However many threads were just publishing, or beginning to, when it was forked."""
    process = programs.code(BEGIN + """
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


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_data_loader_and_of_a_pool(method: str, runtime_dir: Path, programs: Programs,
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
    for batch in torch.utils.data.DataLoader(Data(), batch_size=3, num_workers=2, multiprocessing_context={method!r}):
        publish()
    with multiprocessing.get_context({method!r}).Pool(1) as pool:
        assert pool.map(work, range(6)) == list(range(6))
    publish()
    print(splatview.publishing.begun().run_id, flush=True)
    said("worked")
""")
    start = programs.python if method == "fork" else programs.python
    process = start(str(program))
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
