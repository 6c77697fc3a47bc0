"""The scene of `render_features.py`, and the function that draws it."""

import torch
from functions.balls import surface_points

from splatview.demo.rasterizer import draw
from splatview.demo.views import DatasetView


class DecodedScene(torch.nn.Module):
    """Gaussians with features in place of colours, and a network that decodes them."""

    def __init__(self, count: int = 2000, channels: int = 8) -> None:
        super().__init__()
        tensors = {
            "means": surface_points(count),
            "scales": torch.full((count, 3), -3.4),  # log
            "quats": torch.randn(count, 4),  # w x y z
            "opacities": torch.zeros(count),  # logit
        }
        self.gaussians = torch.nn.ParameterDict(tensors)
        features = 0.1 * torch.randn(count, channels)
        self.features = torch.nn.Parameter(features)
        self.decoder = torch.nn.Sequential(
            torch.nn.Conv2d(channels, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 3, 1),
            torch.nn.Sigmoid(),
        )

    def forward(self, view: DatasetView):
        """Return the picture of a view over black (H, W, 3), and what was splatted."""
        drawn = draw(self.gaussians, view, features=self.features)
        channels_first = drawn.image.permute(2, 0, 1)
        decoded = self.decoder(channels_first).permute(1, 2, 0)
        return decoded * drawn.alpha[..., None], drawn


def picture(scene, camera, controls):
    """Draw the scene as it is decoded, or its first three features."""
    view = DatasetView(
        camera.viewmat,
        camera.K,
        camera.width,
        camera.height,
    )
    rgb, drawn = scene(view)
    alpha = drawn.alpha
    if not controls.decoded:
        rgb = drawn.image[..., :3].sigmoid() * alpha[..., None]
    depth = drawn.depth / alpha.clamp_min(1e-6)
    return rgb, depth, alpha
