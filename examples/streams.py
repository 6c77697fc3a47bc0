"""Publish several streams of one run: a scene, its picture, and its depth.

Run `splatview serve` in another terminal; its panel lists the streams, and shows
metadata such as `step` beside each. Depth is an image of integers with a unit: the
viewer colours it over its range, and tells metres below the pointer.
"""

import argparse
import math

import torch

import splatview
from splatview.demo.datasets import DatasetView
from splatview.demo.rasterizer import choose_device, draw

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000, help="pictures to draw")
steps = parser.parse_args().steps
device = choose_device("auto")

# A torus knot of small Gaussians, coloured along its length.
n = 1200
t = torch.linspace(0, 2 * math.pi, n + 1)[:-1]
radius = 1 + 0.4 * torch.cos(3 * t)
x = radius * torch.cos(2 * t)
y = 0.4 * torch.sin(3 * t)
z = radius * torch.sin(2 * t)
knot = torch.stack([x, y, z], 1)
rgb = 0.5 + 0.5 * torch.stack([torch.cos(t), torch.cos(t + 2.1), torch.cos(t + 4.2)], 1)
gaussians = {
    "means": knot,
    "scales": torch.full((n, 3), math.log(0.05)),
    "quats": torch.tensor([1.0, 0, 0, 0]).repeat(n, 1),
    "opacities": torch.full((n,), 2.0),
    # colour = 0.5 + 0.28209479 * sh0
    "sh0": ((rgb - 0.5) / 0.28209479)[:, None],
    "shN": torch.zeros(n, 3, 3),
}
gaussians = {name: value.to(device) for name, value in gaussians.items()}
K = torch.tensor([[260.0, 0, 160], [0, 260.0, 120], [0, 0, 1]])
# The camera is 4 away from the world's origin and looks down at it.
tilt = math.atan2(2.0, 3.5)
c = math.cos(tilt)
s = math.sin(tilt)
viewmat = torch.tensor([[1.0, 0, 0, 0], [0, c, -s, 0], [0, s, c, 4], [0, 0, 0, 1]])
camera = DatasetView(viewmat, K, 320, 240).to(device)
rest_positions = gaussians["means"]

for step in range(steps):
    angle = 0.02 * step
    c = math.cos(angle)
    s = math.sin(angle)
    rotation = torch.tensor([[c, 0, s], [0, 1, 0], [-s, 0, c]], device=device)
    gaussians["means"] = rest_positions @ rotation.T
    drawn = draw(gaussians, camera)
    # The renderer returns depth weighted by alpha. 0 means that nothing is there.
    depth = drawn.depth / drawn.alpha.clamp_min(1e-6)
    millimetres = torch.where(drawn.alpha > 0.5, 1000 * depth, 0)
    depth_image = millimetres.to(torch.int32).to(torch.uint16)
    unit = {"unit": "m", "scale": 0.001}
    splatview.publish(gaussians, "gaussians", sh_degree=0, meta={"step": step})
    splatview.publish(drawn.image.clamp(0, 1), "image", meta={"step": step})
    splatview.publish(depth_image, "depth", meta={"step": step, **unit})
