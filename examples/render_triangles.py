"""Draw triangles by a function of the script, in plain torch, when a viewer looks.

Run `splatview serve` in another terminal. A ball of triangles is trained into a bumpy
one; `picture` is called only while a viewer looks, for at most 5 % of the time.
"""

import argparse
import math

import torch

import splatview

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=20_000, help="steps of the training")

# A grid of corners on a sphere, two triangles for each of its cells.
down = torch.linspace(0, math.pi, 17)[:, None]
around = torch.arange(32) * math.tau / 32
from_axis = down.sin()
x = from_axis * around.cos()
z = from_axis * around.sin()
y = down.cos().expand_as(x)
vertices = torch.stack([x, y, z], -1).view(-1, 3).requires_grad_()
bumps = torch.sin(5 * around) * torch.sin(6 * down)
radius = (1 + 0.2 * bumps).view(-1)
corner = torch.arange(17 * 32).view(17, 32)
right = corner.roll(-1, 1)
upper = torch.stack([corner[:-1], right[:-1], corner[1:]], -1)
lower = torch.stack([right[:-1], right[1:], corner[1:]], -1)
triangles = torch.cat([upper, lower]).view(-1, 3)


@splatview.renderer("triangles", points=vertices)
def picture(camera):
    """Draw each triangle over the pixels of the box around it."""
    size = camera.height, camera.width
    rgb = torch.zeros(*size, 3)
    depth = torch.full(size, math.inf)
    points = vertices @ camera.viewmat[:3, :3].T + camera.viewmat[:3, 3]
    pixels = points @ camera.K.T / points[:, 2:]
    corners = pixels[triangles]  # 3 corners of x, y, 1
    to_weights, _ = torch.linalg.inv_ex(corners)
    on_screen = corners[..., :2]
    low = on_screen.amin(1).long().clamp_min(0)
    high = on_screen.amax(1).ceil().long()
    high[:, 0].clamp_max_(camera.width)
    high[:, 1].clamp_max_(camera.height)
    depths = points[triangles, 2]
    is_ahead = (depths > camera.near).all(1)
    is_seen = is_ahead & (low < high).all(1)
    for i in is_seen.nonzero().flatten().tolist():
        x0, y0 = low[i].tolist()
        x1, y1 = high[i].tolist()
        rows = torch.arange(y0, y1)[:, None] + 0.5
        columns = torch.arange(x0, x1) + 0.5
        grid = torch.broadcast_tensors(columns, rows, torch.ones(()))
        pixels = torch.stack(grid, -1)
        weights = pixels @ to_weights[i] / depths[i]
        z = 1 / weights.sum(-1)
        corner_positions = vertices[triangles[i]]
        position = weights @ corner_positions * z[..., None]
        color = 0.5 + 0.35 * position
        box = slice(y0, y1), slice(x0, x1)
        is_inside = (weights >= 0).all(-1)
        is_nearest = is_inside & (z < depth[box])
        depth[box][is_nearest] = z[is_nearest]
        rgb[box][is_nearest] = color[is_nearest]
    return rgb, depth, depth.isfinite().float()


optimizer = torch.optim.Adam([vertices], lr=1e-3)
for _ in range(parser.parse_args().steps):
    error = vertices.norm(dim=1) - radius
    loss = error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    splatview.draw()
