"""Draw Gaussians that a network moves, by a function in a process of its own.

Run `splatview serve` in another terminal. The training only publishes its module; the
function in `functions/deformation.py` draws it while a viewer looks, at the time that
the slider in the viewer's panel has. Edit that file meanwhile: the next picture is drawn
by the new one.
"""

import argparse
import math

import torch
from functions.deformation import Scene

import splatview

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20_000, help="steps of the training")
steps = parser.parse_args().steps
torch.manual_seed(0)
scene = Scene().to("cuda" if torch.cuda.is_available() else "cpu")
optimizer = torch.optim.Adam(scene.deformation.parameters(), lr=1e-3)
splatview.controls.slider("time", 0.0, 1.0, value=0.5)

for step in range(steps):
    # The network learns to turn the Gaussians, by 1 radian in the time from 0 to 1.
    time = step % 100 / 100
    means = scene.gaussians["means"].detach()
    x, y, z = means.unbind(1)
    sine = math.sin(time)
    cosine = math.cos(time)
    turned_x = cosine * x + sine * z
    turned_z = cosine * z - sine * x
    target = torch.stack([turned_x, y, turned_z], dim=1)
    error = scene.at(time)["means"] - target
    loss = error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    splatview.publish(
        scene,
        "turning",
        render="functions.deformation:picture",
        module="functions.deformation:Scene",
        meta={"step": step},
    )
