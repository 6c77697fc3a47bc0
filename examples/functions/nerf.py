"""The radiance field of `render_nerf.py`, and the function that draws it."""

from collections.abc import Callable

import torch
from functions.balls import rays
from torch.nn import functional

NEAR = 0.05
MIN_DENSITY = 1.0
MIN_ALPHA = 0.1
RAYS_AT_ONCE = 1 << 16


class Nerf(torch.nn.Module):
    """Colour and density in the cube from -1 to 1: a grid of features, and an MLP."""

    def __init__(self, resolution: int = 32, channels: int = 8) -> None:
        super().__init__()
        grid = 0.1 * torch.randn(1, channels, *[resolution] * 3)
        self.grid = torch.nn.Parameter(grid)
        self.decoder = torch.nn.Sequential(
            torch.nn.Linear(channels, 32),
            torch.nn.ReLU(),
            torch.nn.Linear(32, 4),
        )
        # Viewers place their first camera by what is named points.
        ends = torch.tensor([-0.6, 0.6])
        self.register_buffer("points", torch.cartesian_prod(ends, ends, ends))

    def forward(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the colours (N, 3) and densities (N,) at points (N, 3)."""
        features = look_up(self.grid, points, "bilinear")
        decoded = self.decoder(features.T)
        colors = decoded[:, :3].sigmoid()
        scaled = 10 * decoded[:, 3] - 5
        densities = functional.softplus(scaled)
        return colors, densities

    def filled_cells(self) -> torch.Tensor:
        """Return 1 where there is density, or beside it, else 0, (1, 1, R, R, R)."""
        resolution = self.grid.shape[-1]
        ticks = torch.linspace(-1, 1, resolution, device=self.grid.device)
        # The grid's last index is that of x.
        points = torch.cartesian_prod(ticks, ticks, ticks).flip(1)
        _, densities = self(points)
        cube = densities.view(1, 1, *self.grid.shape[2:])
        nearby = functional.max_pool3d(cube, 3, stride=1, padding=1)
        return (nearby > MIN_DENSITY).float()


def look_up(grid: torch.Tensor, points: torch.Tensor, mode: str) -> torch.Tensor:
    """Return the values (C, N) of a grid (1, C, R, R, R) at points (N, 3)."""
    locations = points.view(1, -1, 1, 1, 3)
    values = functional.grid_sample(grid, locations, mode, align_corners=True)
    return values.view(grid.shape[1], -1)


def march(
    field: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    origins: torch.Tensor,
    directions: torch.Tensor,
    samples: int,
    jitter: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return colours (N, 3) over black, depths (N,) and alphas (N,) of rays.

    Args:
        field: returns colours and densities at points, as a `Nerf` does.
        origins: (N, 3).
        directions: (N, 3).
        samples: of a ray, between the sides of the cube.
        jitter: how far each is moved at random, as a share of their distance.
    """
    low = (-1 - origins) / directions
    high = (1 - origins) / directions
    near = torch.minimum(low, high).amax(-1).clamp_min(NEAR)
    far = torch.maximum(low, high).amin(-1)
    step = (far - near).clamp_min(0)[:, None] / samples
    offsets = torch.arange(samples, device=step.device) + 0.5
    noise = torch.rand(len(step), samples, device=step.device) - 0.5
    offsets = offsets + jitter * noise
    depths = near[:, None] + step * offsets
    points = origins[:, None] + depths[..., None] * directions[:, None]
    colors, densities = field(points.view(-1, 3))
    colors = colors.view(-1, samples, 3)
    densities = densities.view(-1, samples)

    lengths = step * directions.norm(dim=-1, keepdim=True)
    alphas = 1 - torch.exp(-densities * lengths)
    passing = torch.cumprod(1 - alphas, dim=1)
    reaching = functional.pad(passing[:, :-1], (1, 0), value=1.0)
    weights = alphas * reaching
    color = (weights[..., None] * colors).sum(1)
    alpha = weights.sum(1)
    depth = (weights * depths).sum(1) / alpha.clamp_min(1e-6)
    return color, depth, alpha


def picture(nerf, camera, controls):
    """Draw the field, with a quarter of the samples while the camera moves."""
    samples = controls.samples
    if camera.is_draft:
        samples = samples // 4
    filled = nerf.filled_cells()

    def sparse_field(points):
        """Return what `nerf` does, asking it only where there is something."""
        is_filled = look_up(filled, points, "nearest")[0] > 0
        colors = torch.zeros_like(points)
        densities = torch.zeros_like(points[:, 0])
        filled_colors, filled_densities = nerf(points[is_filled])
        colors[is_filled] = filled_colors
        densities[is_filled] = filled_densities
        return colors, densities

    origin, directions = rays(camera)
    pictures = []
    for bundle in directions.view(-1, 3).split(RAYS_AT_ONCE):
        origins = origin.expand_as(bundle)
        drawn = march(sparse_field, origins, bundle, samples)
        pictures.append(drawn)
    color, depth, alpha = map(torch.cat, zip(*pictures, strict=True))
    depth = torch.where(alpha > MIN_ALPHA, depth, 0.0)
    size = camera.height, camera.width
    return (
        color.view(*size, 3),
        depth.view(size),
        alpha.view(size),
    )
