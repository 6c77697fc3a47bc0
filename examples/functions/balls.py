"""Computed pictures of three balls, from around them: what the examples learn."""

import math

import torch
from torch.nn.functional import normalize

from splatview.demo.views import DatasetView

CENTERS = torch.tensor(
    [
        [0.0, 0.4, 0.0],
        [0.0, -0.2, 0.0],
        [0.0, -0.6, 0.0],
    ]
)
"""(3, 3), the smallest ball on top: y points down."""
RADII = torch.tensor([0.42, 0.3, 0.2])
COLORS = torch.tensor(
    [
        [0.9, 0.5, 0.2],
        [0.2, 0.7, 0.8],
        [0.9, 0.3, 0.5],
    ]
)
GOLDEN_ANGLE = math.pi * (3 - 5**0.5)
DISTANCE = 3.0
"""From the cameras to the middle of the scene."""


def rays(camera) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the origin (3,) of a camera's rays, and their directions (H, W, 3).

    The directions have 1 as their camera z, so that a distance along one is a depth.
    """
    device = camera.K.device
    rows = torch.arange(camera.height, device=device) + 0.5
    columns = torch.arange(camera.width, device=device) + 0.5
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    pixels = torch.stack([x, y, torch.ones_like(x)], dim=-1)
    in_camera = pixels @ torch.linalg.inv(camera.K).T
    c2w = torch.linalg.inv(camera.viewmat)
    return c2w[:3, 3], in_camera @ c2w[:3, :3].T


def surface_points(count: int) -> torch.Tensor:
    """Return points on the balls, as structure from motion finds them, (count, 3)."""
    balls = torch.multinomial(RADII.square(), count, replacement=True)
    normals = normalize(torch.randn(count, 3), dim=1)
    return CENTERS[balls] + RADII[balls, None] * normals


def photograph(view: DatasetView) -> torch.Tensor:
    """Return what a camera sees of the balls, on black, (H, W, 3)."""
    origin, directions = rays(view)
    directions = normalize(directions, dim=-1)
    # Along each ray: its point nearest to each ball, and from there to the surface.
    to_centers = CENTERS - origin
    middles = directions @ to_centers.T  # (H, W, 3 balls)
    gaps = to_centers.square().sum(1) - middles**2
    inside = RADII**2 - gaps
    fronts = middles - inside.clamp_min(0).sqrt()
    fronts = torch.where(inside > 0, fronts, math.inf)
    distances, balls = fronts.min(dim=-1)
    is_hit = distances.isfinite()[..., None]
    distances = distances.nan_to_num(posinf=0)
    hits = origin + distances[..., None] * directions
    normals = hits - CENTERS[balls]
    normals = normals / RADII[balls, None]
    phase = 8 * normals[..., :1] + 12 * hits[..., 1:2]
    stripes = 0.8 + 0.2 * phase.sin().sign()
    light = 0.85 - 0.25 * normals[..., 1:2]
    shaded = COLORS[balls] * stripes * light
    return torch.where(is_hit, shaded, 0.0)


def viewmat_from(
    height: float,
    angle: float,
    distance: float,
) -> torch.Tensor:
    """Return the (4, 4) matrix of a camera that looks at the middle of the scene."""
    side = math.sqrt(distance**2 - height**2)
    sine = math.sin(angle)
    cosine = math.cos(angle)
    position = torch.tensor([side * sine, -height, side * cosine])
    forward = -position / distance
    right = torch.tensor([-cosine, 0.0, sine])
    down = torch.linalg.cross(forward, right)
    rotation = torch.stack([right, down, forward])
    viewmat = torch.eye(4)
    viewmat[:3, :3] = rotation
    viewmat[:3, 3] = -rotation @ position
    return viewmat


def views_of_balls(count: int, width: int, height: int) -> list[DatasetView]:
    """Return views with their photographs, spread over a sphere around the balls."""
    K = torch.eye(3)
    K[0, 0] = 1.6 * height
    K[1, 1] = 1.6 * height
    K[0, 2] = width / 2
    K[1, 2] = height / 2
    views = []
    for i in range(count):
        altitude = 2.4 * (i + 0.5) / count - 1.2
        viewmat = viewmat_from(altitude, i * GOLDEN_ANGLE, DISTANCE)
        view = DatasetView(viewmat, K, width, height)
        photo = photograph(view)
        views.append(DatasetView(viewmat, K, width, height, photo))
    return views
