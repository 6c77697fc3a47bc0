"""The scene of `render_deformation.py`, and the function that draws it."""

import torch

from splatview.demo.rasterizer import draw
from splatview.demo.views import DatasetView


class Scene(torch.nn.Module):
    """Gaussians that a network moves with time, from 0 to 1."""

    def __init__(self, count: int = 400) -> None:
        super().__init__()
        tensors = {
            "means": torch.randn(count, 3) * 0.4,
            "scales": torch.full((count, 3), -2.7),  # log
            "quats": torch.randn(count, 4),  # w x y z
            "opacities": torch.full((count,), 2.0),  # logit
            "sh0": torch.randn(count, 1, 3),
        }
        self.gaussians = torch.nn.ParameterDict(tensors)
        self.deformation = torch.nn.Sequential(
            torch.nn.Linear(4, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, 3),
        )

    def at(self, time: float) -> dict[str, torch.Tensor]:
        means = self.gaussians["means"]
        inputs = torch.cat([means, torch.full_like(means[:, :1], time)], dim=1)
        return {**self.gaussians, "means": means + self.deformation(inputs)}


def picture(scene, camera, controls):
    """Draw the scene at the time that the script's slider has."""
    view = DatasetView(
        camera.viewmat,
        camera.K,
        camera.width,
        camera.height,
    )
    drawn = draw(scene.at(controls.time), view)
    depth = drawn.depth / drawn.alpha.clamp_min(1e-6)
    return drawn.image, depth, drawn.alpha
