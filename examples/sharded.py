"""Publish a scene whose Gaussians are spread over several processes.

Run `splatview serve` in another terminal: it shows one scene. Each rank trains and
publishes its own part with `shard=(rank, world)`; none sends its Gaussians to another,
or waits for the viewer. Run this by itself, or with `torchrun --nproc-per-node 4
examples/sharded.py`.
"""

import argparse
import math
import os
import socket

import torch
from torch import distributed, multiprocessing

import splatview


def train(rank: int, world: int, steps: int) -> None:
    """Move this rank's points onto a sphere, and paint them."""
    distributed.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(rank)
    # This rank has every `world`-th point of a Fibonacci sphere.
    i = torch.arange(rank, 3000, world) + 0.5
    z = 1 - i / 1500
    azimuth = math.pi * (1 + math.sqrt(5)) * i
    radius = (1 - z * z).sqrt()
    sphere = torch.stack([radius * azimuth.cos(), z, radius * azimuth.sin()], -1)
    splats = {
        "means": torch.randn(len(i), 3),
        "quats": torch.randn(len(i), 4),
        "scales": torch.full((len(i), 3), -3.2),
        "opacities": torch.full((len(i),), 2.0),
        "sh0": torch.zeros(len(i), 1, 3),
        "shN": torch.zeros(len(i), 0, 3),
    }
    learned = [splats[name].requires_grad_() for name in ("means", "sh0")]
    optimizer = torch.optim.Adam(learned, lr=0.01)
    for step in range(steps):
        distance = (splats["means"] - sphere).square().mean()
        color_error = (splats["sh0"][:, 0] - sphere.sin()).square().mean()
        loss = distance + color_error
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # Trainers talk to each other as they always do; splatview needs none of it.
        mean = loss.detach() / world
        distributed.all_reduce(mean)
        splatview.publish(splats, shard=(rank, world), meta={"step": step})
        if rank == 0:
            splatview.log(step, loss=mean)
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="training steps")
    parser.add_argument(
        "--ranks",
        type=int,
        default=3,
        help="processes, where torchrun does not start them",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), options.steps)
    else:
        # As torchrun sets them, with a free port.
        with socket.create_server(("127.0.0.1", 0)) as server:
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            os.environ["MASTER_PORT"] = str(server.getsockname()[1])
        context = multiprocessing.get_context("spawn")
        children = []
        for rank in range(1, options.ranks):
            arguments = (rank, options.ranks, options.steps)
            child = context.Process(target=train, args=arguments, daemon=True)
            child.start()
            children.append(child)
        train(0, options.ranks, options.steps)
        for child in children:
            child.join()
