"""Train a small NeRF in plain torch, drawn by a function in a process of its own.

Run `splatview serve` in another terminal. The training only publishes its module; the
function in `functions/nerf.py` draws it while a viewer looks. How many samples of a ray
it takes is set by a slider in the viewer's panel; while the camera moves it takes fewer.
"""

import argparse

import torch
from functions.balls import rays, views_of_balls
from functions.nerf import Nerf, march

import splatview
from splatview.demo.rasterizer import choose_device

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5000, help="steps of the training")
steps = parser.parse_args().steps
device = choose_device("auto")
torch.manual_seed(0)

# The rays of all pixels of 16 pictures, and their colours.
origins = []
directions = []
colors = []
for view in views_of_balls(16, 80, 64):
    origin, towards = rays(view)
    origins.append(origin.expand_as(towards))
    directions.append(towards)
    colors.append(view.image)
origins = torch.stack(origins).view(-1, 3).to(device)
directions = torch.stack(directions).view(-1, 3).to(device)
colors = torch.stack(colors).view(-1, 3).to(device)

nerf = Nerf().to(device)
splatview.controls.slider("samples", 16, 128, value=48, step=16)
optimizer = torch.optim.Adam(nerf.parameters(), lr=0.02)
for step in range(steps):
    batch = torch.randint(len(colors), (512,), device=device)
    color, _, _ = march(
        nerf,
        origins[batch],
        directions[batch],
        samples=32,
        jitter=1.0,
    )
    loss = (color - colors[batch]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    splatview.publish(
        nerf,
        "nerf",
        render="functions.nerf:picture",
        module="functions.nerf:Nerf",
        meta={"step": step},
    )
    if step % 100 == 0:
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
