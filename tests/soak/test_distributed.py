"""Ranks of a distributed training, each a run of its own: publishing a part of a scene calls no collective, and
each picture is of whole versions."""

from __future__ import annotations

import json
import select
import socket
from typing import TYPE_CHECKING

import pytest
from support.soak import next_line
from support.wait import turns, wait_until

from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.scene.frames import scene_of
from splatview_viewer.workspace.shards.grouping import Shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

    from splatview_viewer.scene.frames import JoinedFrame
    from splatview_viewer.workspace.shards.stream import ShardedStream

RANK = """
import datetime, json, sys, torch, splatview
import torch.distributed as dist
rank, world = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
group = dist.distributed_c10d._get_default_group()
gradient = torch.ones(1000)
step = 0
def collectives():
    return group._get_sequence_number_for_group()
def publish():
    n = 100 + 10 * rank + step % 7
    means = torch.full((n, 3), float(step))
    means[:, 0], means[:, 2] = rank, n
    splatview.publish({"means": means, "quats": torch.ones(n, 4), "scales": torch.full((n, 3), -2.0),
                       "opacities": torch.zeros(n), "sh0": torch.zeros(n, 1, 3), "shN": torch.zeros(n, 0, 3)},
                      shard=(rank, world), step=step)
def train(count, publishing):
    "Steps in which all ranks take part."
    global step
    before = collectives()
    for _ in range(count):
        dist.all_reduce(gradient)
        gradient.div_(world)
        step += 1
        if publishing:
            publish()
    return {"collectives": collectives() - before, "step": step}
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""
"""Arguments: rank, number of ranks. Each line is a call to `train`."""


class Ranks:
    """A training by gloo."""

    def __init__(self, programs: Programs, world: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.programs = [programs.code(RANK, rank, world, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                                       SPLATVIEW_STRICT="1") for rank in range(world)]
        for program in self.programs:
            assert next_line(program) == "ready", program.end()[1]

    def tell(self, rank: int, order: str) -> None:
        self.programs[rank].say(order)

    def answer(self, rank: int, meanwhile: Callable[[], object] = lambda: None) -> dict[str, int]:
        """What a rank's call gave, once it came back; `meanwhile` is called again and again until then."""
        program = self.programs[rank]
        for _ in turns(f"rank {rank} comes back"):
            if select.select([program.stdout], [], [], 0)[0]:
                break
            meanwhile()
        line = program.line()
        assert line, f"rank {rank} ended: {program.end()[1]}"
        return json.loads(line)

    def all(self, order: str, meanwhile: Callable[[], object] = lambda: None) -> list[dict[str, int]]:
        for rank in range(len(self.programs)):
            self.tell(rank, order)
        return [self.answer(rank, meanwhile) for rank in range(len(self.programs))]


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
        means = scene_of(frame)[0].means.numpy()
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


def test_no_collective_is_called_and_each_picture_is_of_whole_versions(programs: Programs, looking: Looking) -> None:
    """The process group counts its collectives itself: as many with publishing as without it."""
    four = Ranks(programs, 4)
    four.all("train(3, False)")
    without = four.all("train(20, False)")
    four.all("train(1, True)", looking.look)
    wait_until(lambda: looking.look() or len(looking.last) == 4)
    assert len({run.id for run in looking.subscriber.runs}) == 4  # each is a run of its own
    with_it = four.all("train(20, True)", looking.look)
    assert [a["collectives"] for a in with_it] == [a["collectives"] for a in without]
    assert without[0]["collectives"] >= 20
    four.all("train(100, True)", looking.look)
    wait_until(lambda: looking.look() or looking.last == {r: (144, 100 + 10 * r + 144 % 7) for r in range(4)})
    assert looking.trouble == ""
    assert looking.stream is not None
    assert looking.stream.version >= 121  # that of the ranks
    print(f"\n{looking.pictures} pictures of 121 versions of 4 ranks; at most {looking.most_apart} steps apart")
