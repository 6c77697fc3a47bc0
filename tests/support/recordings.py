"""Scenes for recordings."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from splatview_viewer.scene.frames import scene_of
from support.frames import cloud, gaussian_frame

if TYPE_CHECKING:
    from splatview_viewer.scene.scene import GaussianScene

NAMES = ("means", "quats", "scales", "opacities", "sh0", "shN")


def scene(n: int = 500, degree: int = 3, seed: int = 0, activated: bool = False) -> GaussianScene:
    g = torch.Generator().manual_seed(seed)
    parts, _ = scene_of(gaussian_frame(cloud(n, seed)))
    higher = 0.2 * torch.randn(n, (degree + 1) ** 2 - 1, 3, generator=g)
    parts = dataclasses.replace(parts, shN=higher, sh_degree=degree,
                                quats=parts.quats * (0.1 + 9.9 * torch.rand(n, 1, generator=g)),
                                scales=parts.scales + torch.randn(n, 3, generator=g))
    if activated:
        parts = dataclasses.replace(parts, activated=True, scales=parts.scales.exp(),
                                    opacities=parts.opacities.sigmoid())
    return parts
