"""Make the scene that every benchmark draws: a ball of N Gaussians, SH degree 3.

As a trainer holds them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

Activated = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]

ORBIT = 2.6
"""Distance of the cameras from the ball's centre; its half axes are 1.5, 1.5 and
0.9."""
FOV = 50.0
SIZE = (1920, 1080)
SH_C0 = 0.28209479177387814


def ball(n: int, device: str = "cuda", seed: int = 0) -> dict[str, torch.Tensor]:
    """Return raw parameters by gsplat's names, float32.

    Log scales, logit opacities, sh0 (n, 1, 3), shN (n, 15, 3).

    Gaussians shrink as they grow in number, so that they cover about the same.
    """
    g = torch.Generator(device=device).manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(n, *shape, device=device, generator=g)

    direction = torch.nn.functional.normalize(noise(3), dim=-1)
    radius = torch.rand(n, 1, device=device, generator=g) ** (1 / 3)
    axes = torch.tensor([1.5, 1.5, 0.9], device=device)
    size = math.log(0.006) - math.log(n / 1_000_000) / 3
    return {
        "means": direction * radius * axes,
        "quats": noise(4),
        "scales": 0.5 * noise(3) + size,
        "opacities": noise(),
        "sh0": 0.5 * noise(1, 3),
        "shN": 0.05 * noise(15, 3),
    }


def paint(scene: Mapping[str, torch.Tensor], rgb: tuple[float, float, float]) -> None:
    """Give every Gaussian the same colour of degree 0, in place: one kernel."""
    colour = (torch.tensor(rgb) - 0.5) / SH_C0
    with torch.no_grad():
        for channel, value in enumerate(colour.tolist()):
            scene["sh0"][:, 0, channel].fill_(value)


def viewmat(azimuth: float, elevation: float, distance: float = ORBIT) -> np.ndarray:
    """Return (4, 4) float64 world to camera, looking at the origin.

    OpenCV axes, the world's z is up.
    """
    position = distance * np.array(
        [
            math.cos(elevation) * math.cos(azimuth),
            math.cos(elevation) * math.sin(azimuth),
            math.sin(elevation),
        ]
    )
    forward = -position / distance
    right = np.array([forward[1], -forward[0], 0.0])
    right /= np.linalg.norm(right)
    rotation = np.stack([right, np.cross(forward, right), forward])
    matrix = np.eye(4)
    matrix[:3, :3] = rotation
    matrix[:3, 3] = -rotation @ position
    return matrix


def intrinsics(width: int, height: int) -> np.ndarray:
    """Return (3, 3) float64, `FOV` degrees high."""
    focal = height / 2 / math.tan(math.radians(FOV) / 2)
    return np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1.0]])


def activated(scene: Mapping[str, torch.Tensor]) -> Activated:
    """Return the parameters as `gsplat.rasterization` takes them.

    Means, quats, scales, opacities, colours (n, 16, 3).
    """
    return (
        scene["means"],
        scene["quats"],
        scene["scales"].exp(),
        scene["opacities"].sigmoid(),
        torch.cat([scene["sh0"], scene["shN"]], 1),
    )
