"""Train Gaussians to look like one picture, and show them: the smallest trainer.

Run `splatview serve` in another terminal, before this script starts or while it runs.
On CUDA gsplat draws, on the CPU splatview's demo does. `splatview demo` is the same
with many views, and with Gaussians that are added and removed.
"""

import argparse

import torch

import splatview
from splatview.demo.datasets import DatasetView
from splatview.demo.rasterizer import choose_device, draw

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=1000, help="gradient steps")
steps = parser.parse_args().steps
device = choose_device("auto")
torch.manual_seed(0)

# The picture to learn: rings of colour.
y, x = torch.meshgrid(
    torch.linspace(-1, 1, 120), torch.linspace(-4 / 3, 4 / 3, 160), indexing="ij"
)
radius = torch.hypot(x, y)
angle = torch.atan2(y, x)
phase = (9 * radius + 3 * angle)[..., None] + torch.tensor([0.0, 2.0, 4.0])
rings = 0.5 + 0.5 * torch.sin(phase)
target = (rings * (radius < 0.95)[..., None]).to(device)  # (120, 160, 3)
K = torch.tensor([[150.0, 0, 80], [0, 150.0, 60], [0, 0, 1]], device=device)
viewmat = torch.eye(4, device=device)
# The camera stands 2.5 in front of the world's origin and looks at it.
viewmat[2, 3] = 2.5
view = DatasetView(viewmat, K, 160, 120)

n = 1500
gaussians = torch.nn.ParameterDict(
    {
        "means": torch.randn(n, 3) * 0.5,
        "scales": torch.full((n, 3), -3.5),  # log
        "quats": torch.randn(n, 4),  # w x y z
        "opacities": torch.zeros(n),  # logit
        "sh0": torch.randn(n, 1, 3) * 0.1,
        "shN": torch.zeros(n, 3, 3),
    }
).to(device)
optimizer = torch.optim.Adam(gaussians.values(), lr=0.01)

for step in range(steps):
    render = draw(gaussians, view).image
    loss = (render - target).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    splatview.publish(gaussians, "gaussians", sh_degree=0, meta={"step": step})
    splatview.publish(render.detach().clamp(0, 1), "render", meta={"step": step})
    if step % 100 == 0 or step == steps - 1:
        print(f"step {step}  loss {loss.item():.4f}", flush=True)
