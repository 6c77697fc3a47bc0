"""Show what a render function that was written for nerfview draws, as it is.

Run `splatview serve` in another terminal. A network learns the colours of a sky by their
directions. Where nerfview's viewer was made there is `splatview.renderer` now, and
`splatview.draw()` where the loop took the viewer's lock and called its `update`.
"""

import argparse

import numpy as np
import torch

import splatview
import splatview.integrations.nerfview as nerfview
from splatview.demo.rasterizer import choose_device

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5000, help="steps of the training")
steps = parser.parse_args().steps
device = choose_device("auto")
torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(3, 32),
    torch.nn.SiLU(),
    torch.nn.Linear(32, 32),
    torch.nn.SiLU(),
    torch.nn.Linear(32, 3),
    torch.nn.Sigmoid(),
).to(device)
BLUE = torch.tensor([0.2, 0.4, 0.8], device=device)
ORANGE = torch.tensor([0.9, 0.6, 0.3], device=device)
SUN = torch.tensor([0.6, -0.5, 0.62], device=device)


def sky(directions: torch.Tensor) -> torch.Tensor:
    """Return the colours to be learned, (N, 3), by unit directions whose y is down."""
    up = -directions[:, 1:2]
    height = up.clamp(0, 1).sqrt()
    to_sun = directions @ SUN
    glow = torch.exp(20 * to_sun - 20)[:, None]
    heaven = torch.lerp(ORANGE, BLUE, height) + glow
    ground = 0.3 + 0.3 * directions
    return torch.where(up > 0, heaven, ground).clamp(0, 1)


@torch.no_grad()
def render_fn(
    camera_state: nerfview.CameraState,
    render_tab_state: nerfview.RenderTabState,
) -> np.ndarray:
    """Draw the sky, as nerfview calls it."""
    width = render_tab_state.viewer_width
    height = render_tab_state.viewer_height
    K = camera_state.get_K((width, height))
    rotation = camera_state.c2w[:3, :3]
    y, x = np.mgrid[:height, :width] + 0.5
    pixels = np.stack([x, y, np.ones_like(x)], axis=-1)
    directions = pixels @ np.linalg.inv(K).T @ rotation.T
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    rays = torch.from_numpy(directions).float().to(device)
    return network(rays).cpu().numpy()


splatview.renderer("sky", budget=0.2)(nerfview.adapt(render_fn))

optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
for step in range(steps):
    samples = torch.randn(1024, 3, device=device)
    directions = torch.nn.functional.normalize(samples, dim=1)
    loss = (network(directions) - sky(directions)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    splatview.draw()
    if step % 100 == 0:
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
