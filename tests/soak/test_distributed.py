"""Ranks of a distributed training, each a run of its own: publishing a part of a scene calls no collective."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

from support.soak import next_line
from support.wait import clock, wait_until

from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.scene.frames import scene_of
from splatview_viewer.workspace.shards import Shards

if TYPE_CHECKING:
    from support.programs import Programs


RANK = """
import datetime, json, sys, torch, splatview
import torch.distributed as dist
rank, world = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60))
group = dist.distributed_c10d._get_default_group()
gradient = torch.ones(1000)
step = 0
def train(count, publishing):
    "Steps in which all ranks take part; how many collectives the process group has counted in them."
    global step
    before = group._get_sequence_number_for_group()
    for _ in range(count):
        dist.all_reduce(gradient)
        gradient.div_(world)
        step += 1
        if publishing:
            n = 100 + 10 * rank + step % 7
            splatview.publish({"means": torch.full((n, 3), float(step)), "quats": torch.ones(n, 4),
                               "scales": torch.full((n, 3), -2.0), "opacities": torch.zeros(n),
                               "sh0": torch.zeros(n, 1, 3), "shN": torch.zeros(n, 0, 3)},
                              shard=(rank, world), step=step)
    return group._get_sequence_number_for_group() - before
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""
"""Arguments: rank, number of ranks. Each line is a call to `train`."""


def test_publishing_calls_no_collective_and_all_ranks_are_one_scene(programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = [programs.code(RANK, rank, 4, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, SPLATVIEW_STRICT="1")
             for rank in range(4)]
    for rank in ranks:
        assert next_line(rank) == "ready", rank.end()[1]

    def all_do(order: str) -> list[int]:
        for rank in ranks:
            rank.say(order)
        return [json.loads(next_line(rank) or "null") for rank in ranks]

    all_do("train(3, False)")
    without = all_do("train(20, False)")
    assert without[0] >= 20
    all_do("train(1, True)")
    assert all_do("train(20, True)") == without
    with Subscriber() as subscriber:
        shards = Shards()

        def seen() -> bool:
            """Whether the last step of all ranks is seen as one scene."""
            subscriber.poll()
            shards.update(subscriber.streams, clock())
            for stream in shards.streams:
                stream.open()
                if (frame := stream.read()) is not None:
                    with frame:
                        means = scene_of(frame)[0].means
                        return len(frame.shards) == 4 and bool((means == 44).all()) and len(means) == 4 * 102 + 60
            return False

        wait_until(seen, "the last step of four ranks")
        assert len({run.id for run in subscriber.runs}) == 4, "each is a run of its own"
