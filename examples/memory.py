"""Show the memory of a training, live.

Run `splatview serve` in another terminal. Under the list its panel shows the memory
that the training takes; a click on it shows more, and "Take a full snapshot" every
allocation with its stack. Without a GPU it is the host's memory.

A small network learns a picture. Its batches change their size, so that the memory
does.
"""

import argparse

import torch
from torch import nn

import splatview

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5000, help="steps to train")
steps = parser.parse_args().steps

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
side = 192
axis = torch.linspace(-1, 1, side, device=device)
positions = torch.cartesian_prod(axis, axis)  # y, x
radius = positions.norm(dim=1, keepdim=True)
angle = torch.atan2(positions[:, :1], positions[:, 1:])
shift = torch.tensor([0.0, 2.0, 4.0], device=device)
target = 0.5 + 0.5 * torch.sin(9 * radius + 3 * angle + shift)  # (N, 3)
waves = 6 * torch.randn(2, 64, device=device)


def features(xy):
    """Return waves (N, 128) at positions (N, 2)."""
    return torch.cat([torch.sin(xy @ waves), torch.cos(xy @ waves)], -1)


net = nn.Sequential(
    nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3)
).to(device)
optimizer = torch.optim.Adam(net.parameters(), 2e-3)

for step in range(steps):
    # The first call begins; every call marks a step.
    splatview.publish_memory(step=step)
    count = 1000 if step % 20 < 10 else 8000
    sample = torch.randint(len(positions), (count,), device=device)
    error = net(features(positions[sample])) - target[sample]
    loss = error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        # All pixels at once take the most memory: the peak of the plot.
        with torch.no_grad():
            learned = net(features(positions)).reshape(side, side, 3).clamp(0, 1)
        splatview.publish(learned, "learned", meta={"step": step, "loss": loss})
