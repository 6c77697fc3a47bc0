"""Picking finds at a pixel what the reference renderer draws there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.reference import ReferenceRenderer
from support.renderer_cases import (
    CENTER,
    CLASSIC,
    GSPLAT_1_5,
    GSPLAT_1_6,
    Chance,
    activated,
    camera,
    draw,
    looking_at_origin,
    pick,
    random_scene,
    scene,
)

from splatview_viewer.geometry.cameras import CameraModel
from splatview_viewer.render.base import RenderOptions, Rules
from splatview_viewer.scene import Selection


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("pinhole", CLASSIC),
        ("ortho", RenderOptions("antialiased")),
        ("fisheye", RenderOptions(scale=0.4)),
    ],
)
def test_hit_is_drawn_by_the_reference(
    model: CameraModel, options: RenderOptions
) -> None:
    gaussians = activated(random_scene(3, Chance(n=700, log_scale=(-3.0, 1.0))))
    view = looking_at_origin(model=model)
    renderer = ReferenceRenderer()
    renderer.load(replace(gaussians, scales=gaussians.scales * options.scale))
    drawn = renderer.render(view, replace(options, scale=1.0)).pixels()
    g = np.random.default_rng(5)
    hit_count = 0
    for _ in range(14):
        row = int(g.integers(view.height))
        column = int(g.integers(view.width))
        hit = pick(
            gaussians,
            view,
            column + float(g.random()),
            row + float(g.random()),
            options,
        )
        alpha = float(drawn.alpha[row, column])
        if hit is None:
            assert alpha == 0
            continue
        hit_count += 1
        assert drawn.depth is not None
        assert hit.alpha == pytest.approx(alpha, abs=1e-5)
        assert hit.depth * hit.alpha == pytest.approx(
            float(drawn.depth[row, column]), rel=1e-4
        )
        is_kept = torch.arange(len(gaussians)) != hit.index
        without_hit = replace(
            gaussians,
            opacities=gaussians.opacities * is_kept,
            scales=gaussians.scales * options.scale,
        )
        renderer.load(without_hit)
        redrawn = renderer.render(view, replace(options, scale=1.0)).pixels()
        assert redrawn.alpha[row, column] < alpha
        assert 0 < hit.weight <= alpha + 1e-6
    assert hit_count > 4


@pytest.mark.parametrize("rules", [GSPLAT_1_5, GSPLAT_1_6])
def test_hit_weighs_as_in_a_picture_by_the_same_rules(rules: Rules) -> None:
    view = camera()
    row, column = CENTER
    for scale, options in ((0.5, CLASSIC), (1e-5, RenderOptions("antialiased"))):
        gaussians = scene(
            [[0, 0, 2], [0, 0, 3]],
            opacities=[1.0, 0.5],
            scales=[[scale] * 3, [0.5] * 3],
        )
        drawn = draw(ReferenceRenderer(rules=rules), gaussians, view, options)
        hit = pick(gaussians, view, column + 0.5, row + 0.5, options, rules)
        assert hit is not None
        assert drawn.depth is not None
        assert hit.alpha == pytest.approx(float(drawn.alpha[CENTER]), abs=1e-6)
        assert hit.depth * hit.alpha == pytest.approx(float(drawn.depth[CENTER]), 1e-5)


def test_hidden_gaussians_are_not_picked() -> None:
    gaussians = scene(
        [[0, 0, 2], [0, 0, 3], [0, 0, 4]], opacities=[0.9, 0.6, 0.5], scales=0.2
    )
    center = 32.5, 24.5

    def index(**limits: Any) -> int | None:
        hit = pick(
            gaussians, camera(), *center, RenderOptions(selection=Selection(**limits))
        )
        return None if hit is None else hit.index

    assert index() == 0
    assert index(marked=(0,)) == 0
    assert index(opacity=(0.0, 0.7)) == 1
    assert index(opacity=(0.0, 0.55)) == 2
    assert index(opacity=(0.95, 1.0)) is None
    assert index(scale=(0.3, 1.0)) is None
    hit = pick(gaussians, camera(near=2.5, far=3.5), *center, CLASSIC)
    assert hit is not None
    assert hit.index == 1
    assert hit.depth == pytest.approx(3.0)
    hit = pick(scene([[0, 0, 2]] * 3, opacities=0.5), camera(), *center, CLASSIC)
    assert hit is not None
    assert hit.index == 0, "of the same depth the first is the nearest"
    for means, scales, opacity in (
        ([], 1.0, 0.8),
        ([[0, 0, -2]], 5.0, 0.8),
        ([[0, 0, 2]], 50.0, 0.003),
    ):
        invisible = scene(np.reshape(means, (-1, 3)), scales=scales, opacities=opacity)
        assert pick(invisible, camera(), *center, CLASSIC) is None
    assert pick(gaussians, camera(), 3.0, 3.0, CLASSIC) is None
