"""Show the course of a training as live plots, with a pause button.

A small network learns a picture.

Run `splatview serve` in another terminal. The panel shows the loss beside what is
learned; a click on it shows all that is logged. "Pause the run" stops the loop in
`wait_while_paused`, "Step" lets it take one step.
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
side = 128
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


net = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3)).to(device)
optimizer = torch.optim.Adam(net.parameters(), 2e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9995)

for step in range(steps):
    splatview.wait_while_paused()
    sample = torch.randint(len(positions), (2000,), device=device)
    error = net(features(positions[sample])) - target.reshape(-1, 3)[sample]
    loss = error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    # As they are: what lies on the GPU is copied when the GPU comes there, and nothing
    # waits.
    size = error.detach().abs()
    errors = {"error/mean": size.mean(), "error/worst": size.max()}
    splatview.log(step, loss=loss, rate=schedule.get_last_lr()[0], **errors)
    if step % 50 == 0:
        with torch.no_grad():
            learned = net(features(positions)).reshape(side, side, 3).clamp(0, 1)
        splatview.log(step, psnr=-10 * (learned - target).square().mean().log10())
        splatview.publish(learned, "learned", meta={"step": step})
