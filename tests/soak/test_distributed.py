"""Ranks of a distributed training, each a run of its own: publishing a part of a scene calls no collective, waits for
no rank, and what happens to one rank is nothing to the others."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.wait import PATIENCE

from splatview.ipc import Subscriber
from splatview.viewer_app.shards.grouping import Shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Program, Programs

    from splatview.viewer_app.shards.frame import JoinedFrame
    from splatview.viewer_app.shards.stream import ShardedStream

FEW = 0.5
"""In so many of the calls at most the thread may have had to wait: for the GIL, which the helper thread has now and
then, in every sixth call where the processors are busy."""
LOTS = 5
"""Into so many the calls are divided, and it is the quietest that counts: on a busy machine the helper thread may lose
the processor while it has the GIL, again and again for a while. Who waited for a rank would do so in all of them."""
RANK = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}]
import datetime, json, torch, splatview
import torch.distributed as dist
from support.meters import waits
rank, world, orders = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=240))
group = dist.distributed_c10d._get_default_group()
store = dist.distributed_c10d._get_default_store()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = 0
def collectives():
    return group._get_sequence_number_for_group()
def publish():
    n = 100 + 10 * rank + step % 7
    means = torch.full((n, 3), float(step))
    means[:, 0], means[:, 2] = rank, n
    splatview.publish({{"means": means, "quats": torch.ones(n, 4), "scales": torch.full((n, 3), -2.0),
                       "opacities": torch.zeros(n), "sh0": torch.zeros(n, 1, 3), "shN": torch.zeros(n, 0, 3)}},
                      shard=(rank, world), step=step)
def train(count, publishing):
    "Steps in which all ranks take part."
    global step
    before = collectives()
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.full((1, 4), rank + 1.0)).square().sum().backward()
        optimizer.step()
        step += 1
        if publishing:
            publish()
    return {{"collectives": collectives() - before, "step": step}}
def alone(count):
    "Publish without the others."
    global step
    before, keys, waited = collectives(), store.num_keys() if rank == 0 else 0, []
    for _ in range({LOTS}):
        so_far = waits()
        for _ in range(count // {LOTS}):
            step += 1
            publish()
        waited.append(waits() - so_far)
    return {{"collectives": collectives() - before, "waits": min(waited), "step": step,
            "keys": (store.num_keys() if rank == 0 else 0) - keys}}
print("ready", flush=True)
for line in open(orders):
    print(json.dumps(eval(line)), flush=True)
"""
"""Arguments: rank, number of ranks, a file each line of which is a call to `train` or `alone`."""


LOADED = ("torch._dynamo",)
"""What the programs has loaded: DistributedDataParallel imports it."""


class Ranks:
    """A training by gloo."""

    def __init__(self, programs: Programs, folder: Path, world: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._orders: list[int] = []
        self.children: list[Program] = []
        for rank in range(world):
            orders = folder / f"orders-{rank}"
            os.mkfifo(orders)
            self._orders.append(os.open(orders, os.O_RDWR | os.O_CLOEXEC))
            self.children.append(programs.start(RANK, rank, world, orders, MASTER_ADDR="127.0.0.1",
                                               MASTER_PORT=str(port), SPLATVIEW_STRICT="1"))
        for child in self.children:
            assert child.line() == "ready"

    def tell(self, rank: int, order: str) -> None:
        os.write(self._orders[rank], f"{order}\n".encode())

    def answer(self, rank: int, meanwhile: Callable[[], object] = lambda: None) -> dict[str, int]:
        """What a rank's call gave, once it came back; `meanwhile` is called again and again until then."""
        said, end = self.children[rank]._said, time.monotonic() + PATIENCE
        while not select.select([said], [], [], 0.0005)[0]:
            assert time.monotonic() < end, f"rank {rank} does not come back"
            meanwhile()
        line = self.children[rank].line()
        assert line, f"rank {rank} ended"
        return json.loads(line)

    def all(self, order: str, meanwhile: Callable[[], object] = lambda: None) -> list[dict[str, int]]:
        for rank in range(len(self.children)):
            self.tell(rank, order)
        return [self.answer(rank, meanwhile) for rank in range(len(self.children))]

    def close(self) -> None:
        for child in self.children:
            child.kill()
        for fd in self._orders:
            os.close(fd)


class Looking:
    """A viewer of their scene, which checks every picture: of each rank, one version's Gaussians, all of them."""

    def __init__(self) -> None:
        self.subscriber = Subscriber()
        self.shards = Shards()
        self.pictures = 0
        self.most_apart = 0
        """Versions between the ranks of one picture."""
        self.last: dict[int, tuple[int, int]] = {}
        """Of the newest picture: each rank's step and number of Gaussians."""
        self.trouble = ""
        self._seen = 0

    @property
    def stream(self) -> ShardedStream | None:
        return next(iter(self.shards.streams), None)

    def look(self) -> None:
        self.subscriber.poll()
        self.shards.update(self.subscriber.streams)
        stream = self.stream
        if stream is None:
            return
        stream.open()
        if stream.version <= self._seen or (frame := stream.read(self._seen)) is None:
            return
        with frame:
            self._check(frame)

    def _check(self, frame: JoinedFrame) -> None:
        means = frame.tensors["means"].to_float32()
        if not frame.intact():
            return
        assert len(means) == sum(count for _, count in frame.shards)
        now, begin = {}, 0
        for rank, count in frame.shards:
            part, begin = means[begin:begin + count], begin + count
            step = int(part[0, 1])
            assert (part == [rank, step, count]).all(), (rank, step, count)
            assert count == 100 + 10 * rank + step % 7
            assert step >= self.last.get(rank, (0, 0))[0]  # never an older one
            now[rank] = step, count
        steps = [step for step, _ in now.values()]
        self.most_apart = max(self.most_apart, max(steps) - min(steps))
        self.last, self._seen, self.pictures = now, frame.version, self.pictures + 1
        self.trouble = str(frame.meta.get("trouble", ""))

    def close(self) -> None:
        self.subscriber.close()


@pytest.fixture
def looking() -> Iterator[Looking]:
    made = Looking()
    yield made
    made.close()


@pytest.fixture
def ranks(programs: Programs, tmp_path: Path) -> Iterator[Callable[[int], Ranks]]:
    started: list[Ranks] = []

    def start(world: int) -> Ranks:
        started.append(Ranks(programs, tmp_path, world))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.mark.exhaustive  # quick: shards without torch.distributed
@pytest.mark.parametrize("steps", [30, 300])
def test_no_collective_is_called_and_each_picture_is_of_whole_versions(
        ranks: Callable[[int], Ranks], looking: Looking, wait_until: Callable[..., Any], steps: int) -> None:
    """The process group counts its collectives itself: as many with publishing as without it."""
    four = ranks(4)
    four.all("train(3, False)")  # DDP arranges itself in the first two
    without = four.all("train(20, False)")
    four.all("train(1, True)", looking.look)
    wait_until(lambda: looking.look() or len(looking.last) == 4)
    assert len({run.id for run in looking.subscriber.runs}) == 4  # each is a run of its own
    with_it = four.all("train(20, True)", looking.look)
    assert [a["collectives"] for a in with_it] == [a["collectives"] for a in without]
    assert without[0]["collectives"] >= 20
    four.all(f"train({steps}, True)", looking.look)
    step = 44 + steps
    wait_until(lambda: looking.look() or looking.last == {r: (step, 100 + 10 * r + step % 7) for r in range(4)})
    assert looking.trouble == ""
    assert looking.stream is not None
    assert looking.stream.version >= 21 + steps  # that of the ranks
    print(f"{looking.pictures} pictures of {21 + steps} versions of 4 ranks; at most {looking.most_apart} steps apart")


@pytest.mark.exhaustive  # quick: shards without torch.distributed
@pytest.mark.parametrize("count", [500, 2000])
def test_a_rank_that_stands_still_delays_no_other(ranks: Callable[[int], Ranks], looking: Looking,
                                                  wait_until: Callable[..., Any], count: int) -> None:
    three = ranks(3)
    three.all("train(2, True)", looking.look)
    wait_until(lambda: looking.look() or len(looking.last) == 3)
    stopped = three.children[1]
    stopped.signal(signal.SIGSTOP)
    for rank in (0, 2):
        three.tell(rank, f"alone({count})")
    for rank in (0, 2):
        done = three.answer(rank, looking.look)
        assert done["collectives"] == done["keys"] == 0  # nor does anybody speak by way of the store
        assert done["waits"] < count // LOTS * FEW
        assert done["step"] == count + 2
    newest = {0: count + 2, 1: 2, 2: count + 2}
    wait_until(lambda: looking.look() or {r: s for r, (s, _) in looking.last.items()} == newest)
    assert looking.trouble == ""  # it lives, and what it had is seen
    stopped.signal(signal.SIGCONT)
    three.tell(1, f"alone({count})")
    three.answer(1, looking.look)
    three.all("train(3, True)", looking.look)
    wait_until(lambda: looking.look() or all(step == count + 5 for step, _ in looking.last.values()))


@pytest.mark.exhaustive  # quick: shards without torch.distributed
@pytest.mark.parametrize("count", [500, 1000])
def test_a_rank_that_is_killed_is_said_and_the_others_go_on(ranks: Callable[[int], Ranks], looking: Looking,
                                                            wait_until: Callable[..., Any], count: int) -> None:
    four = ranks(4)
    four.all("train(2, True)", looking.look)
    wait_until(lambda: looking.look() or len(looking.last) == 4)
    for rank in (0, 1, 3):
        four.tell(rank, f"alone({count})")
    four.tell(2, "alone(1000000)")
    wait_until(lambda: looking.look() or looking.last[2][0] > 10)
    four.children[2].kill()
    for rank in (0, 1, 3):
        done = four.answer(rank, looking.look)
        assert done["collectives"] == 0
        assert done["waits"] < count // LOTS * FEW
    wait_until(lambda: looking.look() or looking.trouble == "3 of 4 shards; rank 2 ended")
    before = looking.last[2]
    for rank in (0, 1, 3):
        four.tell(rank, "alone(5)")
        four.answer(rank, looking.look)
    wait_until(lambda: looking.look() or all(looking.last[r][0] == count + 7 for r in (0, 1, 3)))
    assert looking.last[2] == before  # the last that it published whole
    assert looking.stream is not None
    assert looking.stream.run.alive


SCRIPT = """
import os, sys, time, torch, splatview
import torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
total = torch.tensor(rank + 1.0)
dist.all_reduce(total)
g = torch.Generator().manual_seed(rank)
n = 200 + 100 * rank
splatview.publish({"means": torch.randn(n, 3, generator=g), "quats": torch.randn(n, 4, generator=g),
                   "scales": torch.full((n, 3), -2.0), "opacities": torch.full((n,), 3.0),
                   "sh0": torch.rand(n, 1, 3, generator=g), "shN": torch.zeros(n, 0, 3)}, shard=(rank, world))
while os.getppid() != 1:
    time.sleep(0.05)
"""


@pytest.mark.exhaustive  # `test_what_torchrun_tells_decides` has its groups without the launcher
def test_trainings_by_torchrun_are_found_as_one_scene_each(programs: Programs, tmp_path: Path,
                                                           wait_until: Callable[..., Any]) -> None:
    """Two of one script and one name, at the same time: none of their parts is taken for the other's."""
    (tmp_path / "train.py").write_text(SCRIPT)
    started = [programs.code("import runpy; runpy.run_module('torch.distributed.run', run_name='__main__')",
                              "--standalone", "--nproc-per-node", "2", str(tmp_path / "train.py"))
               for _ in range(2)]
    try:
        with Subscriber() as subscriber:
            shards = Shards()

            def found() -> bool:
                subscriber.poll()
                shards.update(subscriber.streams)
                assert all(process.poll() is None for process in started)
                return sum(len(s.parts) for s in shards.streams) == 4

            wait_until(found)
            assert [sorted(part.rank for part in s.parts) for s in shards.streams] == [[0, 1], [0, 1]]
            assert not shards.clashes
            for stream in shards.streams:  # of each, both have one parent, and it is not the other's
                parents = {_parent(run.pid) for run in stream.run.runs}
                assert len(parents) == 1
        shot = programs.splatview("shot", "out.png", "--stream", "gaussians", "--size", "160x120")
        _, error = shot.communicate(timeout=PATIENCE)
        assert shot.returncode == 0, error
        assert len(np.unique(np.asarray(Image.open(tmp_path / "out.png")).reshape(-1, 3), axis=0)) > 50
        told = json.loads(programs.splatview("status", "--json").communicate(timeout=PATIENCE)[0])
        streams = [s for run in told["runs"] for s in run["streams"]]
        assert sorted(s["shard"] for s in streams) == [[0, 2], [0, 2], [1, 2], [1, 2]]
        assert len({s["group"] for s in streams}) == 2
        text = programs.splatview("status").communicate(timeout=PATIENCE)[0]
        assert text.count("rank 1 of 2") == 2
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)  # it ends its ranks
        for process in started:
            process.communicate(timeout=PATIENCE)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
