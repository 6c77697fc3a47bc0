"""Render the scene of a training from any camera, within the training script.

`splatview.grab` returns the picture as a tensor: for a log, a metric or a film. A
process of its own draws it; no viewer has to run, though `splatview serve` in another
terminal shows the scene and the pictures.
"""

import argparse
import math

import torch

import splatview

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=720, help="pictures to grab")
steps = parser.parse_args().steps

torch.manual_seed(0)
n = 5000
normals = torch.nn.functional.normalize(torch.randn(n, 3), dim=1)
ball = {
    "means": normals,
    "quats": torch.tensor([1.0, 0, 0, 0]).repeat(n, 1),  # w x y z
    "scales": torch.full((n, 3), math.log(0.03)),
    "opacities": torch.full((n,), 4.0),  # logit
    "sh0": torch.zeros(n, 1, 3),
    "shN": torch.zeros(n, 0, 3),
}

for step in range(steps):
    # In a training, an optimiser changes the tensors here.
    ball["sh0"] = torch.lerp(ball["sh0"], normals.sin()[:, None], 0.02)
    splatview.publish(ball, "ball", meta={"step": step})

    azimuth = 2 * math.pi * step / 360
    position = [3 * math.sin(azimuth), -1.0, 3 * math.cos(azimuth)]
    camera = {"position": position, "look_at": [0, 0, 0]}
    picture = splatview.grab("ball", camera=camera, size=(320, 240))  # (240, 320, 3)
    splatview.publish(picture, "turntable", meta={"step": step})
