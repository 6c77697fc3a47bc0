"""Show a Gaussian scene in a window of its own, which follows changes in place.

Nothing else has to be started.
"""

import argparse
from math import sin
from time import sleep, time

import torch

from splatview import Window

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1_000_000, help="changes of the scene")
steps = parser.parse_args().steps
device = "cuda" if torch.cuda.is_available() else "cpu"

P = 3000
torch.manual_seed(0)
t = torch.linspace(0, 4 * torch.pi, P)
radius = 2 + torch.cos(1.5 * t)
x = radius * torch.cos(t)
y = radius * torch.sin(t)
knot = torch.stack([x, y, torch.sin(1.5 * t)], -1)
means3d = (knot + 0.08 * torch.randn(P, 3)).to(device)
# Degree 1; the first are the colour, over Y00 = 0.282 and less one half.
shs = torch.zeros(P, 4, 3, device=device)
shs[:, 0, 1] = torch.sin(t).to(device)
shs[:, 0, 2] = torch.cos(t).to(device)
opacity = torch.full((P, 1), 0.9, device=device)
scales = torch.full((P, 3), 0.05, device=device)
rotations = torch.tensor([[1.0, 0, 0, 0]], device=device).repeat(P, 1)  # w x y z
background = torch.tensor([0.05, 0.05, 0.1])

window = Window(500, 500, "A knot")
window.start()

window.set_gaussian_splatting_scene(
    background, means3d, shs, opacity, scales, rotations
)

try:
    while window.is_running() and steps > 0:
        shs[:, 0, 0] = abs(sin(time()))
        steps -= 1
        sleep(0.01)
except KeyboardInterrupt:
    pass

window.destroy()
