"""Scenes of numbers that no trainer should have, and of endless work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from splatview_viewer.render.base import LeftOut
from splatview_viewer.scene.scene import GaussianScene
from support.renderer_cases import Chance, random_scene, scene

HUGE = np.float32(3e38)


def changed(name: str, index: Any, value: Any, **kwargs: Any) -> GaussianScene:
    """Make 200 Gaussians, and change one field of every fifth of them."""
    gaussians = random_scene(5, Chance(n=200, sh_degree=1, **kwargs))
    getattr(gaussians, name).numpy()[(slice(None, None, 5), *index)] = value
    return gaussians


def activated(opacities: Any = 0.5, scales: Any = 0.05) -> GaussianScene:
    g = np.random.default_rng(3)
    return scene(
        g.normal(size=(40, 3)) * 0.4,
        rgb=g.random((40, 3)),
        opacities=np.resize(opacities, 40),
        scales=np.resize(scales, (40, 3)),
    )


class OddScene(NamedTuple):
    """A scene, once it is made, and what a renderer leaves out of it."""

    make: Callable[[], GaussianScene]
    left_out: LeftOut


def everything_behind() -> GaussianScene:
    means = torch.tensor([0, 0, 1e6]).repeat(50, 1)
    return replace(random_scene(5, Chance(n=50)), means=means)


def all_at_one_place() -> GaussianScene:
    return replace(random_scene(5, Chance(n=50)), means=torch.zeros(50, 3))


def many_reasons() -> GaussianScene:
    index = torch.arange(200)[:, None]
    scales = torch.where(index % 10 == 0, 100.0, -3.0)
    sh0 = torch.where(index % 20 == 0, torch.nan, 0.5)
    return replace(
        changed("quats", (), 0.0), scales=scales.repeat(1, 3), sh0=sh0.repeat(1, 3)
    )


SCENES: dict[str, OddScene] = {
    "huge quaternions": OddScene(
        partial(changed, "quats", (), [HUGE, -HUGE, HUGE, HUGE]), LeftOut()
    ),
    "zero quaternions": OddScene(
        partial(changed, "quats", (), 0.0), LeftOut(no_rotation=40)
    ),
    "centres at the end of float32": OddScene(
        partial(changed, "means", (), [HUGE, -HUGE, HUGE]), LeftOut()
    ),
    "scales of 1e30": OddScene(
        partial(changed, "scales", (1,), np.log(1e30)), LeftOut(too_large=40)
    ),
    "scales of 0": OddScene(partial(changed, "scales", (), -3e38), LeftOut()),
    "NaN": OddScene(partial(changed, "shN", (0, 1), np.nan), LeftOut(not_finite=40)),
    "flat ones": OddScene(partial(changed, "scales", (2,), -np.inf), LeftOut()),
    "logits at the end of float32": OddScene(
        partial(changed, "opacities", (), HUGE), LeftOut()
    ),
    "huge and hugely negative coefficients": OddScene(
        partial(changed, "sh0", (), [HUGE, -HUGE, 1e30]), LeftOut()
    ),
    "opacities beyond 1": OddScene(partial(activated, [0.3, 1.5, 1e30]), LeftOut()),
    "opacities below 0": OddScene(partial(activated, [0.3, -0.5, -HUGE]), LeftOut()),
    "infinite scales": OddScene(
        partial(activated, scales=[[0.1, 0.1, 0.1], [np.inf, 1, 1]]),
        LeftOut(not_finite=20),
    ),
    "everything behind": OddScene(everything_behind, LeftOut()),
    "all at one place": OddScene(all_at_one_place, LeftOut()),
    "many reasons": OddScene(
        many_reasons, LeftOut(not_finite=10, too_large=10, no_rotation=20)
    ),
}
"""Odd scenes by name."""


def everywhere(n: int, opacity: float = 0.006) -> GaussianScene:
    """Make Gaussians that each cover the whole picture and hide next to nothing."""
    g = np.random.default_rng(1)
    means = np.column_stack([g.normal(size=(n, 2)), np.linspace(2, 3, n)])
    return scene(means, scales=30.0, opacities=opacity, rgb=(0.9, 0.5, 0.2))
