"""Renderers draw every paint, scale and selection as the reference does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any, get_args

import moderngl
import numpy as np
import pytest
import torch
from support.reference import ReferenceRenderer
from support.renderer_cases import (
    CENTER,
    CLASSIC,
    MAKERS,
    MARKED,
    Chance,
    close,
    draw,
    looking_at_origin,
    psnr,
    random_scene,
    scene,
)

from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import CameraModel
from splatview_viewer.render.base import Renderer, RenderOptions
from splatview_viewer.render.paints import PAINTS, Paint
from splatview_viewer.scene import Selection

MIXED = Chance(n=600, log_scale=(-2.6, 0.8))


@pytest.fixture(params=[name for name in MARKED if name != "reference"])
def tested(request: pytest.FixtureRequest, ctx: moderngl.Context) -> Iterator[Renderer]:
    """Make each renderer but the reference."""
    created = MAKERS[request.param](ctx)
    yield created
    created.close()


AGREEING: list[tuple[Paint, CameraModel, Chance]] = [
    ("ellipsoids", "pinhole", MIXED),
    ("rings", "fisheye", MIXED),
    ("points", "ortho", MIXED),
    ("normals", "pinhole", MIXED),
    ("ellipsoids", "pinhole", Chance(n=60, log_scale=(-0.5, 0.8))),
    ("color", "ortho", Chance(log_scale=(-3.5, 1.6))),
    ("color", "pinhole", Chance(n=200, log_scale=(0.5, 1.5), logit=(-2.0, 1.0))),
    # These Gaussians are nearly opaque.
    ("color", "pinhole", Chance(logit=(5.0, 1.0))),
    ("color", "fisheye", Chance(n=3000, spread=5.0)),
]
COUNTED: list[Paint] = ["overdraw"]
"""Paints that are compared in tests of their own: a step of one is no small fault."""


def test_every_paint_is_compared_and_has_its_place_in_cuda() -> None:
    assert get_args(Paint) == tuple(PAINTS)
    assert {paint for paint, _, _ in AGREEING} | set(COUNTED) == set(PAINTS)
    source = files("splatview_viewer.render.gsplat").joinpath("frame.cu").read_text()
    enum = re.search(r"enum Paint \{(.*?)\}", source)
    assert enum is not None
    names = [name.strip() for name in enum[1].split(",")]
    assert names == [paint.shader_name for paint in PAINTS.values()]
    for paint in PAINTS.values():
        assert re.search(rf"\b{paint.cuda_kernel}\b", source)


@pytest.mark.parametrize(("paint", "model", "chance"), AGREEING)
def test_pictures_agree_with_the_reference(
    tested: Renderer,
    request: pytest.FixtureRequest,
    paint: Any,
    model: Any,
    chance: Chance,
) -> None:
    gaussians = random_scene(21, chance)
    view = looking_at_origin(model=model)
    mode = "antialiased" if model == "fisheye" else "classic"
    options = RenderOptions(mode, paint=paint, point_px=5.0)
    decibels = 50
    if paint == "color":
        name = request.node.callspec.params["tested"]
        decibels = {"gl-tiles": 80, "gl-quads": 60}.get(name, 0)
    if not decibels:
        pytest.skip("tests/cuda holds its colours against gsplat itself")
    got = draw(tested, gaussians, view, options)
    expected = draw(ReferenceRenderer(rules=tested.rules), gaussians, view, options)
    close(got, expected, decibels)
    if tested.name == "gsplat":
        # The last pictures come from a graph.
        for _ in range(4):
            got = tested.render(view, options).pixels()
            close(got, expected, decibels)


def test_selected_marked_and_scaled_gaussians_agree_with_the_reference(
    tested: Renderer,
) -> None:
    gaussians = random_scene(23, MIXED)
    view = looking_at_origin()
    # Gaussians that are left out keep their index.
    gaussians.means[5] = np.nan
    gaussians.quats[40] = 0
    selection = Selection(
        opacity=(0.3, 0.95), scale=(0.02, 0.4), marked=(5, 17, 300, 599, 10_000)
    )
    options = RenderOptions(selection=selection, scale=0.6)
    everything = draw(tested, gaussians, view)
    got = tested.render(view, options).pixels()
    close(got, draw(ReferenceRenderer(rules=tested.rules), gaussians, view, options))
    assert psnr(got.color, everything.color, float(everything.color.max())) < 40
    unselected = tested.render(view, CLASSIC).pixels()
    assert np.array_equal(unselected.color, everything.color)
    assert np.array_equal(unselected.alpha, everything.alpha)
    # The same limits select other Gaussians of a newer scene.
    newer = random_scene(32, MIXED)
    expected = draw(ReferenceRenderer(rules=tested.rules), newer, view, options)
    close(draw(tested, newer, view, options), expected)


def test_overdraw_counts_hidden_gaussians(renderer: Renderer) -> None:
    many = scene([(0, 0, 2 + 0.01 * i) for i in range(40)], scales=0.05, opacities=0.99)
    p = draw(renderer, many, options=RenderOptions(paint="overdraw"))
    assert p.color[CENTER].tolist() == [40.0] * 3
    assert p.alpha[CENTER] == 1
    assert p.depth is not None
    assert p.depth[CENTER] == pytest.approx(2.0, abs=0.02)
    assert p.color[0, 0].tolist() == [0.0] * 3
    assert p.alpha[0, 0] == 0


@pytest.mark.parametrize(
    ("paint", "model", "mode"),
    [
        ("color", "pinhole", "classic"),
        ("color", "fisheye", "antialiased"),
        ("color", "ortho", "antialiased"),
        ("ellipsoids", "pinhole", "classic"),
        ("rings", "ortho", "classic"),
        ("normals", "pinhole", "classic"),
    ],
)
def test_flat_gaussians_are_drawn_as_by_the_reference(
    tested: Renderer, paint: Any, model: Any, mode: Any
) -> None:
    gaussians = random_scene(27, MIXED)
    view = looking_at_origin(model=model)
    # Scales are logarithms.
    gaussians.scales[:, 2] = -np.inf
    # Some are seen exactly from the side, their third axis to the right; some have no
    # size.
    right, down, forward = view.viewmat[:3, :3]
    sideways = rotations.quaternion(np.stack([down, forward, right], axis=1))
    gaussians.quats[:5] = torch.from_numpy(sideways)
    gaussians.scales[5:10] = -np.inf
    options = RenderOptions(mode, paint=paint)
    expected = draw(ReferenceRenderer(rules=tested.rules), gaussians, view, options)
    got = draw(tested, gaussians, view, options)
    assert tested.left_out.total == 0
    assert np.isfinite(got.color).all()
    close(got, expected, 45)
    thin = replace(gaussians, scales=gaussians.scales.clamp(min=-16.0))
    close(draw(tested, thin, view, options), expected, 45)
    flat = replace(gaussians, scales=gaussians.scales.exp(), activated=(True, False))
    close(draw(tested, flat, view, options), expected, 45)
