"""Train features of Gaussians and their decoder, drawn in a process of its own.

Run `splatview serve` in another terminal. gsplat blends the features of the Gaussians
(on the CPU splatview's demo does), and a small network makes colours of them. The
training only publishes its module; `functions/features.py` draws it, or the features
themselves: a checkbox in the viewer's panel says which.
"""

import argparse

import torch
from functions.balls import views_of_balls
from functions.features import DecodedScene

import splatview
from splatview.demo.rasterizer import choose_device

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5000, help="steps of the training")
steps = parser.parse_args().steps
device = choose_device("auto")
torch.manual_seed(0)

views = [view.to(device) for view in views_of_balls(12, 120, 96)]
scene = DecodedScene().to(device)
splatview.controls.checkbox("decoded", True)
optimizer = torch.optim.Adam(scene.parameters(), lr=0.01)
for step in range(steps):
    view = views[step % len(views)]
    rgb, _ = scene(view)
    loss = (rgb - view.image).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    splatview.publish(
        scene,
        "features",
        render="functions.features:picture",
        module="functions.features:DecodedScene",
        meta={"step": step},
    )
    if step % 100 == 0:
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
