"""Compare two trainings while they run: curves, pictures and memory.

Run `splatview serve` in another terminal. Each process is a run, and its list has both
by their names. The panel's tab "Compare" shows their pictures beside each other; with
the curves shown, its "Runs in the plots" draws the losses in one plot.
"""

import argparse
import multiprocessing
import os

import torch
from torch import nn

import splatview

RATES = {"slow": 3e-4, "fast": 5e-3}


def train(name: str, steps: int) -> None:
    """Fit a small network to a picture of rings, as the run `name`."""
    # Read at the first publish; usually it is set in the shell.
    os.environ["SPLATVIEW_NAME"] = name
    torch.manual_seed(0)
    torch.set_num_threads(1)
    side = 96
    axis = torch.linspace(-1, 1, side)
    positions = torch.cartesian_prod(axis, axis)
    distance = positions.norm(dim=1, keepdim=True)
    target = 0.5 + 0.5 * torch.sin(12 * distance + torch.tensor([0.0, 2.0, 4.0]))
    net = nn.Sequential(nn.Linear(2, 128), nn.SiLU(), nn.Linear(128, 3))
    optimizer = torch.optim.Adam(net.parameters(), RATES[name])
    for step in range(steps):
        learned = net(positions)
        loss = (learned - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        splatview.log(step, loss=loss)
        splatview.publish_memory(step=step)
        image = learned.detach().reshape(side, side, 3).clamp(0, 1)
        splatview.publish(image, "learned", meta={"step": step})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000, help="steps to train")
    steps = parser.parse_args().steps
    spawn = multiprocessing.get_context("spawn")
    slow_run = spawn.Process(target=train, args=("slow", steps), daemon=True)
    slow_run.start()
    train("fast", steps)
    slow_run.join()
