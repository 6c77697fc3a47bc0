"""Trainings of several ranks, each of which publishes its part of a scene, for the tests of that."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Program, Programs

RANK = """
import sys, torch, splatview
rank, world, count, name = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

def scene(n, seed):
    g = torch.Generator().manual_seed(seed)
    return {"means": torch.randn(n, 3, generator=g), "quats": torch.randn(n, 4, generator=g),
            "scales": torch.full((n, 3), -2.0), "opacities": torch.full((n,), 3.0),
            "sh0": torch.rand(n, 1, 3, generator=g), "shN": torch.zeros(n, 0, 3)}

step = 0
splatview.publish(scene(count, rank), name, shard=(rank, world), step=step)
print("published", flush=True)
for line in open(sys.argv[5]):
    splatview.wait_while_paused()
    step += 1
    splatview.publish(scene(int(line), rank), name, shard=(rank, world), step=step)
    print(step, flush=True)
"""
"""Arguments: rank, number of ranks, number of Gaussians, the stream's name, a file each line of which says how many to
publish next."""


class Training:
    """Ranks that publish when they are told to, and wait for nobody."""

    def __init__(self, programs: Programs, folder: Path, counts: list[int], *, world: int | None = None,
                 port: int = 29500) -> None:
        """`counts`: Gaussians of each rank, in order; `world`: how many ranks they say that there are."""
        self._nursery = programs
        self._folder = folder
        self.world = len(counts) if world is None else world
        self.environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self._orders: dict[int, int] = {}
        self.ranks = [self._start(rank, n) for rank, n in enumerate(counts)]
        for rank in self.ranks:
            assert rank.line() == "published"

    def _start(self, rank: int, count: int) -> Program:
        orders = self._folder / f"orders-{next(_number)}"
        os.mkfifo(orders)
        self._orders[rank] = os.open(orders, os.O_RDWR | os.O_CLOEXEC)
        return self._nursery.start(RANK, rank, self.world, count, "gaussians", orders, SPLATVIEW_NAME="train",
                                   **self.environ)

    def again(self, rank: int, count: int) -> None:
        """Start a rank anew, in place of the one that ended."""
        self.ranks[rank] = process = self._start(rank, count)
        assert process.line() == "published"

    def tell(self, rank: int, count: int) -> None:
        """Have it publish so many Gaussians, once it can."""
        os.write(self._orders[rank], f"{count}\n".encode())

    def publish(self, rank: int, count: int) -> int:
        """Likewise, and wait for its call to come back; its step."""
        self.tell(rank, count)
        return int(self.ranks[rank].line())

    def kill(self, rank: int) -> None:
        self.ranks[rank].kill()
        os.close(self._orders.pop(rank))

    def close(self) -> None:
        for rank in list(self._orders):
            self.kill(rank)


_number = itertools.count()
