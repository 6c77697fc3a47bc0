"""Plot the loss of a training live, and pause the training from the viewer.

Run `splatview serve` in another terminal. The panel shows the loss beside the picture
that a small network learns; a click on it shows all that is logged. "Pause the run"
stops the loop in `wait_while_paused`, "Step" lets it take one step.
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


net = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3)).to(device)
optimizer = torch.optim.Adam(net.parameters(), 2e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9995)

for step in range(steps):
    splatview.wait_while_paused()
    sample = torch.randint(len(positions), (2000,), device=device)
    error = net(features(positions[sample])) - target[sample]
    loss = error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    # No `.item()`: it would wait for the GPU, and `log` does not. The two names up to
    # the "/" share a plot.
    magnitude = error.detach().abs()
    errors = {"error/mean": magnitude.mean(), "error/worst": magnitude.max()}
    splatview.log(step, loss=loss, rate=schedule.get_last_lr()[0], **errors)
    if step % 50 == 0:
        with torch.no_grad():
            learned = net(features(positions)).clamp(0, 1)
        psnr = -10 * (learned - target).square().mean().log10()
        splatview.log(step, psnr=psnr)
        image = learned.reshape(side, side, 3)
        splatview.publish(image, "learned", meta={"step": step})
