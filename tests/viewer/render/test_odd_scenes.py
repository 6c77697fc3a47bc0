"""Whatever numbers a scene holds, its picture is defined, what is left out is counted, and the work has an end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import moderngl
import numpy as np
import pytest
from support.odd_cases import SCENES, everywhere
from support.reference import ReferenceRenderer
from support.renderer_cases import (
    MAKERS,
    Chance,
    camera,
    draw,
    looking_at_origin,
    psnr,
    random_scene,
)

from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.gpu.work import is_software
from splatview_viewer.render.base import (
    ALPHA_MIN,
    COLOR_MAX,
    PAINTS,
    Renderer,
    RenderOptions,
)
from splatview_viewer.render.gl import tiles as gl_tiles
from splatview_viewer.render.gl.tile_lists import Chunks

VIEW = looking_at_origin(80, 60)


@pytest.fixture(scope="module", params=["quads", "tiles"])
def gl(request: pytest.FixtureRequest, ctx: moderngl.Context) -> Iterator[Renderer]:
    made = MAKERS[f"gl-{request.param}"](ctx)
    yield made
    made.close()


@pytest.fixture(scope="module")
def reference() -> ReferenceRenderer:
    return ReferenceRenderer()


@pytest.mark.parametrize("model", MODELS)
def test_every_odd_scene_has_the_reference_s_picture(
    ctx: moderngl.Context, gl: Renderer, reference: ReferenceRenderer, model: Any
) -> None:
    """All by a pinhole, and half of them by each other lens."""
    view = replace(VIEW, model=model)
    for i, (name, (make, left_out)) in enumerate(SCENES.items()):
        if model != "pinhole" and i % 2 == (model == "ortho"):
            continue
        odd = make()
        expected = draw(reference, odd, view)
        got = draw(gl, odd, view)
        assert reference.left_out == gl.left_out == left_out, name
        for p in (expected, got):
            assert (
                p.depth is not None
                and np.isfinite(p.color).all()
                and np.isfinite(p.depth).all()
            ), name
            assert (
                p.color.max() <= COLOR_MAX and p.alpha.min() >= 0 and p.alpha.max() <= 1
            ), name
        assert expected.alpha.any() or name == "everything behind"
        # A Gaussian whose alpha is the least that counts is drawn or not as the driver rounds.
        step = 0.0 if is_software(ctx) else ALPHA_MIN
        difference = np.abs(got.alpha - expected.alpha)
        assert difference.max() < step + 2e-3 and (difference < 2e-3).mean() > 0.99, (
            name
        )
        assert psnr(np.minimum(got.color, 1), np.minimum(expected.color, 1)) > 50, name


def test_odd_scenes_in_every_paint(gl: Renderer) -> None:
    for i, (name, (make, _)) in enumerate(SCENES.items()):
        paint = list(PAINTS)[i % len(PAINTS)]
        p = draw(gl, make(), VIEW, RenderOptions(paint=paint))
        assert np.isfinite(p.color).all() and np.isfinite(p.alpha).all(), (name, paint)


def test_what_is_shown_is_the_nearest(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = everywhere(500)
    view = camera(80, 64)
    renderer = MAKERS["gl-tiles"](ctx)
    monkeypatch.setattr(
        gl_tiles, "Chunks", lambda boxes, grid: Chunks(boxes, grid, 62 * 80)
    )
    expected = draw(ReferenceRenderer(), many[:62], view)
    got = draw(renderer, many, view)
    assert renderer.thinned
    assert psnr(got.color, expected.color) > 55
    draw(renderer, random_scene(1, Chance(n=40)), view)
    assert renderer.thinned == ""
    renderer.close()
