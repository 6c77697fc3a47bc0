"""Train 2-D Gaussians with gsplat's own rasteriser, drawn by a function of the script.

Run `splatview serve` in another terminal. `picture` calls the function that the training
calls, `gsplat.rasterization_2dgs`, while a viewer looks, for at most 5 % of the time. The
viewer's panel has a choice between colours and normals. It needs a CUDA device.
"""

import argparse
import sys

import torch
from functions.balls import surface_points, views_of_balls
from gsplat import rasterization_2dgs

import splatview

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5000, help="steps of the training")
steps = parser.parse_args().steps
if not torch.cuda.is_available():
    sys.exit("gsplat.rasterization_2dgs needs a CUDA device, and torch finds none here")
torch.manual_seed(0)

n = 5000
views = [view.to("cuda") for view in views_of_balls(24, 240, 192)]
discs = torch.nn.ParameterDict(
    {
        "means": surface_points(n),
        "scales": torch.full((n, 3), -3.5),  # log; the third one is not used
        "quats": torch.randn(n, 4),  # w x y z
        "opacities": torch.zeros(n),  # logit
        "colors": torch.zeros(n, 3),  # logit
    }
).cuda()


def render(camera):
    """Return colours and depth (H, W, 4), alpha (H, W, 1) and normals (H, W, 3)."""
    colors_depth, alpha, normals, *_ = rasterization_2dgs(
        discs["means"],
        torch.nn.functional.normalize(discs["quats"], dim=1),
        discs["scales"].exp(),
        discs["opacities"].sigmoid(),
        discs["colors"].sigmoid()[None],
        camera.viewmat[None],
        camera.K[None],
        camera.width,
        camera.height,
        render_mode="RGB+ED",
    )
    return colors_depth[0], alpha[0], normals[0]


splatview.controls.dropdown("show", ["colors", "normals"])


@splatview.renderer("discs", points=discs["means"])
def picture(camera, controls):
    """Draw the colours, or the normals."""
    colors_depth, alpha, normals = render(camera)
    rgb = colors_depth[..., :3]
    if controls.show == "normals":
        rgb = 0.5 * (normals + alpha)
    return rgb, colors_depth[..., 3], alpha


optimizer = torch.optim.Adam(discs.parameters(), lr=0.01)
for step in range(steps):
    view = views[step % len(views)]
    colors_depth, _, _ = render(view)
    loss = (colors_depth[..., :3] - view.image).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    splatview.draw()
    if step % 100 == 0:
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
