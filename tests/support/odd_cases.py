"""Scenes of numbers that no trainer should have, and of more work than a picture may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from splatview_viewer.render.base import LeftOut
from splatview_viewer.scene.scene import GaussianScene
from support.renderer_cases import Chance, random_scene, scene

HUGE = np.float32(3e38)


def changed(name: str, index: Any, value: Any, **kwargs: Any) -> GaussianScene:
    """A scene of 200 Gaussians with other numbers in one field of every fifth of them."""
    made = random_scene(5, Chance(n=200, sh_degree=1, **kwargs))
    getattr(made, name).numpy()[(slice(None, None, 5), *index)] = value
    return made


def activated(opacities: Any = 0.5, scales: Any = 0.05) -> GaussianScene:
    g = np.random.default_rng(3)
    return scene(
        g.normal(size=(40, 3)) * 0.4,
        rgb=g.random((40, 3)),
        opacities=np.resize(opacities, 40),
        scales=np.resize(scales, (40, 3)),
    )


SCENES: dict[str, tuple[Callable[[], GaussianScene], LeftOut]] = {
    "huge quaternions": (
        lambda: changed("quats", (), [HUGE, -HUGE, HUGE, HUGE]),
        LeftOut(),
    ),
    "zero quaternions": (lambda: changed("quats", (), 0.0), LeftOut(no_rotation=40)),
    "centres at the end of float32": (
        lambda: changed("means", (), [HUGE, -HUGE, HUGE]),
        LeftOut(),
    ),
    "scales of 1e30": (
        lambda: changed("scales", (1,), np.log(1e30)),
        LeftOut(too_large=40),
    ),
    "scales of 0": (lambda: changed("scales", (), -3e38), LeftOut()),
    "NaN": (lambda: changed("shN", (0, 1), np.nan), LeftOut(not_finite=40)),
    "flat ones": (lambda: changed("scales", (2,), -np.inf), LeftOut()),
    "logits at the end of float32": (lambda: changed("opacities", (), HUGE), LeftOut()),
    "huge and hugely negative coefficients": (
        lambda: changed("sh0", (), [HUGE, -HUGE, 1e30]),
        LeftOut(),
    ),
    "opacities beyond 1": (lambda: activated([0.3, 1.5, 1e30]), LeftOut()),
    "opacities below 0": (lambda: activated([0.3, -0.5, -HUGE]), LeftOut()),
    "infinite scales": (
        lambda: activated(scales=[[0.1, 0.1, 0.1], [np.inf, 1, 1]]),
        LeftOut(not_finite=20),
    ),
    "everything behind": (
        lambda: replace(
            random_scene(5, Chance(n=50)), means=torch.tensor([0, 0, 1e6]).repeat(50, 1)
        ),
        LeftOut(),
    ),
    "all at one place": (
        lambda: replace(random_scene(5, Chance(n=50)), means=torch.zeros(50, 3)),
        LeftOut(),
    ),
    "many reasons": (
        lambda: replace(
            changed("quats", (), 0.0),
            scales=torch.where(
                torch.arange(200)[:, None] % 10 == 0, 100.0, -3.0
            ).repeat(1, 3),
            sh0=torch.where(
                torch.arange(200)[:, None] % 20 == 0, torch.nan, 0.5
            ).repeat(1, 3),
        ),
        LeftOut(not_finite=10, too_large=10, no_rotation=20),
    ),
}
"""By name, what makes it, and what is left out of it."""


def everywhere(n: int, opacity: float = 0.006) -> GaussianScene:
    """Gaussians that each cover the whole picture and hide next to nothing."""
    g = np.random.default_rng(1)
    means = np.column_stack([g.normal(size=(n, 2)), np.linspace(2, 3, n)])
    return scene(means, scales=30.0, opacities=opacity, rgb=(0.9, 0.5, 0.2))
