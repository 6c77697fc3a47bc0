"""Show an image that changes while it is computed.

Run `splatview serve` in another terminal, before this script starts or while it runs.
The image is of two substances that react and spread (Gray-Scott).
"""

import argparse

import torch
from torch.nn.functional import conv2d, pad

import splatview

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=10_000, help="pictures to compute")
steps = parser.parse_args().steps

torch.manual_seed(0)
a = torch.ones(1, 1, 256, 256)
# Drops, 8 pixels wide.
drops = torch.rand(1, 1, 32, 32) > 0.97
b = 0.4 * drops.repeat_interleave(8, 2).repeat_interleave(8, 3)
laplacian = torch.tensor([[0.05, 0.2, 0.05], [0.2, -1.0, 0.2], [0.05, 0.2, 0.05]])
laplacian = laplacian[None, None]


def spread(substance):
    """Return how much of a substance comes to each pixel from its neighbours."""
    return conv2d(pad(substance, (1, 1, 1, 1), mode="circular"), laplacian)


for step in range(steps):
    for _ in range(8):
        reaction = a * b * b
        change_a = spread(a) - reaction + 0.055 * (1 - a)
        change_b = 0.5 * spread(b) + reaction - 0.117 * b
        a += change_a
        b += change_b
    # (256, 256, 3), float32 in [0, 1].
    image = torch.stack([1 - a, b * 2, 0.4 + b], -1)[0, 0].clamp(0, 1)
    splatview.publish(image, meta={"step": step})
