"""Scenes for recordings."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.gaussians.frames import scene_of
from support.frames import cloud, gaussian_frame

if TYPE_CHECKING:
    from splatview_viewer.scene.scene import GaussianScene

NAMES = ("means", "quats", "scales", "opacities", "sh0", "shN")


def scene(n: int = 500, degree: int = 3, seed: int = 0, activated: bool = False) -> GaussianScene:
    rng = np.random.default_rng(seed)
    parts = scene_of(gaussian_frame(cloud(n, seed)))
    higher = rng.normal(0, 0.2, (n, (degree + 1) ** 2 - 1, 3)).astype(np.float32)
    parts = dataclasses.replace(parts, shN=higher, sh_degree=degree, quats=parts.quats * rng.uniform(0.1, 10, (n, 1)),
                                scales=parts.scales + rng.normal(0, 1, (n, 3)).astype(np.float32))
    if activated:
        parts = dataclasses.replace(parts, activated=True, scales=np.exp(parts.scales),
                                    opacities=1 / (1 + np.exp(-parts.opacities)))
    return dataclasses.replace(parts, **{name: np.asarray(getattr(parts, name), np.float32) for name in NAMES})
