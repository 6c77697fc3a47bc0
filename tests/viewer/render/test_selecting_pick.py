"""What lies under a pixel, held against what the reference renderer draws there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.reference import ReferenceRenderer
from support.renderer_cases import (
    CLASSIC,
    Chance,
    activated,
    camera,
    looking_at_origin,
    pick,
    random_scene,
    scene,
)

from splatview_viewer.geometry.cameras import CameraModel
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.scene import Selection


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("pinhole", CLASSIC),
        ("ortho", RenderOptions("antialiased")),
        ("fisheye", RenderOptions(scale=0.4)),
    ],
)
def test_it_is_what_the_reference_draws(
    model: CameraModel, options: RenderOptions
) -> None:
    given = activated(random_scene(3, Chance(n=700, log_scale=(-3.0, 1.0))))
    view = looking_at_origin(model=model)
    renderer = ReferenceRenderer()
    renderer.load(replace(given, scales=given.scales * options.scale))
    drawn = renderer.render(view, replace(options, scale=1.0)).pixels()
    g = np.random.default_rng(5)
    found = 0
    for _ in range(30):
        row = int(g.integers(view.height))
        column = int(g.integers(view.width))
        hit = pick(
            given, view, column + float(g.random()), row + float(g.random()), options
        )
        alpha = float(drawn.alpha[row, column])
        if hit is None:
            assert alpha == 0
            continue
        found += 1
        assert drawn.depth is not None
        assert hit.alpha == pytest.approx(alpha, abs=1e-5)
        assert hit.depth * hit.alpha == pytest.approx(
            float(drawn.depth[row, column]), rel=1e-4
        )
        others = replace(
            given, opacities=given.opacities * (torch.arange(len(given)) != hit.index)
        )
        renderer.load(replace(others, scales=given.scales * options.scale))
        without = (
            renderer.render(view, replace(options, scale=1.0))
            .pixels()
            .alpha[row, column]
        )
        assert without < alpha
        assert 0 < hit.weight <= alpha + 1e-6
    assert found > 8


def test_what_is_hidden_is_not_picked() -> None:
    given = scene(
        [[0, 0, 2], [0, 0, 3], [0, 0, 4]], opacities=[0.9, 0.6, 0.5], scales=0.2
    )
    at = 32.5, 24.5

    def index(**limits: Any) -> int | None:
        hit = pick(given, camera(), *at, RenderOptions(selection=Selection(**limits)))
        return None if hit is None else hit.index

    assert index() == 0
    assert index(marked=(0,)) == 0
    assert index(opacity=(0.0, 0.7)) == 1
    assert index(opacity=(0.0, 0.55)) == 2
    assert index(opacity=(0.95, 1.0)) is None
    assert index(scale=(0.3, 1.0)) is None
    hit = pick(given, camera(near=2.5, far=3.5), *at, CLASSIC)
    assert hit is not None
    assert (hit.index, hit.depth) == (1, pytest.approx(3.0))
    hit = pick(scene([[0, 0, 2]] * 3, opacities=0.5), camera(), *at, CLASSIC)
    assert hit is not None and hit.index == 0, (
        "of the same depth the first is the nearest"
    )
    for means, scales, opacity in (
        ([], 1.0, 0.8),
        ([[0, 0, -2]], 5.0, 0.8),
        ([[0, 0, 2]], 50.0, 0.003),
    ):
        seen = scene(np.reshape(means, (-1, 3)), scales=scales, opacities=opacity)
        assert pick(seen, camera(), *at, CLASSIC) is None
    assert pick(given, camera(), 3.0, 3.0, CLASSIC) is None
