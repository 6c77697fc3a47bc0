"""Show the memory of a training, live.

A small network learns a picture, and shows what it has learned now and then.

Run `splatview serve` in another terminal. Under the list its panel shows the memory
that the training takes; a click on it shows more, and "Take a full snapshot" every
allocation with its stack. Without a GPU it is the host's memory.
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
axis = torch.linspace(-1, 1, side)
y, x = torch.meshgrid(axis, axis, indexing="ij")
r = (x * x + y * y).sqrt()
a = torch.atan2(y, x)
red = 0.5 + 0.5 * torch.cos(9 * r + 3 * a)
green = 0.5 + 0.5 * torch.cos(5 * a)
target = torch.stack([red, green, 1 - r / 2], -1).to(device)
positions = torch.stack([x, y], -1).reshape(-1, 2).to(device)
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
    error = net(features(positions[sample])) - target.reshape(-1, 3)[sample]
    loss = error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        # The whole picture at once: the peak.
        with torch.no_grad():
            learned = net(features(positions)).reshape(side, side, 3).clamp(0, 1)
        splatview.publish(learned, "learned", meta={"step": step, "loss": loss})
