"""Ranks of a training in this process: a run for each, which publishes its part of a scene."""

from __future__ import annotations

import torch

from splatview.adapters import recognise
from splatview_ipc.publisher.publisher import Publisher
from splatview_viewer.scene.scene import GaussianScene

NAME = "gaussians"


def tensors(n: int, seed: int) -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {"means": torch.randn(n, 3, generator=g), "quats": torch.randn(n, 4, generator=g),
            "scales": torch.full((n, 3), -2.0), "opacities": torch.full((n,), 3.0),
            "sh0": torch.rand(n, 1, 3, generator=g), "shN": torch.zeros(n, 0, 3)}


def part(n: int, seed: int) -> GaussianScene:
    """The scene that a rank publishes."""
    t = tensors(n, seed)
    return GaussianScene(t["means"], t["quats"], t["scales"], t["opacities"], t["sh0"][:, 0], t["shN"], sh_degree=0)


class Training:
    """Ranks that publish one after the other."""

    def __init__(self, counts: list[int], *, world: int | None = None, group: str = "0" * 16) -> None:
        """`counts`: Gaussians of each rank, in order; `world`: how many ranks they say that there are."""
        self.world = len(counts) if world is None else world
        self.group = group
        self.runs: dict[int, Publisher] = {}
        for rank, n in enumerate(counts):
            self.publish(rank, n)

    def publish(self, rank: int, n: int) -> None:
        """Publish so many Gaussians; a rank that has ended begins anew."""
        run = self.runs.get(rank)
        if run is None:
            run = self.runs[rank] = Publisher("train")
        value = tensors(n, rank)
        layout = recognise(value, None, {})
        stream = run.stream(NAME, layout.kind)
        if stream.shard[0] is None:
            stream.shard = (rank, self.world), self.group
            run.wake()
        stream.describe(layout)
        published = layout.match(value, {})
        assert published is not None
        stream.publish(published)

    def end(self, rank: int) -> None:
        self.runs.pop(rank).close()

    def close(self) -> None:
        for rank in list(self.runs):
            self.end(rank)
