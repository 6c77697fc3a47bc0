"""Every paint, scale and selection in every renderer, against the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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
from splatview_viewer.render.base import Renderer, RenderOptions
from splatview_viewer.scene import Selection

MIXED = Chance(n=600, log_scale=(-2.6, 0.8))


@pytest.fixture(params=[name for name in MARKED if name != "reference"])
def other(request: pytest.FixtureRequest, ctx: moderngl.Context) -> Iterator[Renderer]:
    """Any but the reference."""
    made = MAKERS[request.param](ctx)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("paint", "model", "chance"),
    [
        ("ellipsoids", "pinhole", MIXED),
        ("rings", "fisheye", MIXED),
        ("points", "ortho", MIXED),
        ("normals", "pinhole", MIXED),
        ("ellipsoids", "pinhole", Chance(n=60, log_scale=(-0.5, 0.8))),
        ("color", "ortho", Chance(log_scale=(-3.5, 1.6))),
        ("color", "pinhole", Chance(n=200, log_scale=(0.5, 1.5), logit=(-2.0, 1.0))),
        ("color", "pinhole", Chance(logit=(5.0, 1.0))),  # nearly opaque
        ("color", "fisheye", Chance(n=3000, spread=5.0)),
    ],
)
def test_the_picture_is_the_reference_s(
    other: Renderer,
    request: pytest.FixtureRequest,
    paint: Any,
    model: Any,
    chance: Chance,
) -> None:
    gaussians = random_scene(21, chance)
    view = looking_at_origin(model=model)
    options = RenderOptions(
        "antialiased" if model == "fisheye" else "classic", paint=paint, point_px=5.0
    )
    if paint == "color":
        least = {"gl-tiles": 80, "gl-quads": 60}.get(
            request.node.callspec.params["other"], 0
        )
    else:
        least = 50
    if not least:
        pytest.skip("tests/cuda holds its colours against gsplat itself")
    got = draw(other, gaussians, view, options)
    expected = draw(ReferenceRenderer(), gaussians, view, options)
    for _ in range(
        4 if other.name == "gsplat" else 0
    ):  # the last ones come from a graph
        close(got, expected, least)
        got = other.render(view, options).pixels()
    close(got, expected, least)


def test_selected_marked_and_scaled(other: Renderer) -> None:
    gaussians = random_scene(23, MIXED)
    view = looking_at_origin()
    # what is left out counts as an index all the same
    gaussians.means[5] = np.nan
    gaussians.quats[40] = 0
    some = Selection(
        opacity=(0.3, 0.95), scale=(0.02, 0.4), marked=(5, 17, 300, 599, 10_000)
    )
    options = RenderOptions(selection=some, scale=0.6)
    everything = draw(other, gaussians, view)
    got = other.render(view, options).pixels()
    close(got, draw(ReferenceRenderer(), gaussians, view, options))
    assert psnr(got.color, everything.color, float(everything.color.max())) < 40
    again = other.render(view, CLASSIC).pixels()
    assert np.array_equal(again.color, everything.color)
    assert np.array_equal(again.alpha, everything.alpha)
    newer = random_scene(32, MIXED)  # of which the same numbers choose others
    close(
        draw(other, newer, view, options),
        draw(ReferenceRenderer(), newer, view, options),
    )


def test_overdraw_counts_what_others_hide(renderer: Renderer) -> None:
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
def test_flat_gaussians_are_drawn_as_the_reference_s(
    other: Renderer, paint: Any, model: Any, mode: Any
) -> None:
    gaussians = random_scene(27, MIXED)
    view = looking_at_origin(model=model)
    gaussians.scales[:, 2] = -np.inf  # as a logarithm
    # Some are seen exactly from the side, their third axis to the right; some are of no size at all.
    right, down, forward = view.viewmat[:3, :3]
    sideways = rotations.quaternion(np.stack([down, forward, right], axis=1))
    gaussians.quats[:5] = torch.from_numpy(sideways)
    gaussians.scales[5:10] = -np.inf
    options = RenderOptions(mode, paint=paint)
    expected = draw(ReferenceRenderer(), gaussians, view, options)
    got = draw(other, gaussians, view, options)
    assert other.left_out.total == 0
    assert np.isfinite(got.color).all()
    close(got, expected, 45)
    thin = replace(gaussians, scales=gaussians.scales.clamp(min=-16.0))
    close(draw(other, thin, view, options), expected, 45)
    flat = replace(gaussians, scales=gaussians.scales.exp(), activated=(True, False))
    close(draw(other, flat, view, options), expected, 45)
