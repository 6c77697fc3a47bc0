"""Scenes of any numbers have a defined picture, and invalid Gaussians are counted."""

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
from splatview_viewer.render.base import ALPHA_MIN, COLOR_MAX, Renderer, RenderOptions
from splatview_viewer.render.gl import tiles as gl_tiles
from splatview_viewer.render.gl.tile_lists import Chunks
from splatview_viewer.render.paints import PAINTS

VIEW = looking_at_origin(80, 60)


@pytest.fixture(scope="module", params=["quads", "tiles"])
def gl(request: pytest.FixtureRequest, ctx: moderngl.Context) -> Iterator[Renderer]:
    created = MAKERS[f"gl-{request.param}"](ctx)
    yield created
    created.close()


@pytest.fixture(scope="module")
def reference() -> ReferenceRenderer:
    return ReferenceRenderer()


@pytest.mark.parametrize("model", MODELS)
def test_odd_scenes_are_drawn_as_by_the_reference(
    ctx: moderngl.Context, gl: Renderer, reference: ReferenceRenderer, model: Any
) -> None:
    """A pinhole camera draws all scenes, each other lens half of them."""
    view = replace(VIEW, model=model)
    for i, (name, (make, left_out)) in enumerate(SCENES.items()):
        if model != "pinhole" and i % 2 == (model == "ortho"):
            continue
        odd = make()
        expected = draw(reference, odd, view)
        got = draw(gl, odd, view)
        assert reference.left_out == gl.left_out == left_out, name
        for p in (expected, got):
            assert p.depth is not None, name
            assert np.isfinite(p.color).all(), name
            assert np.isfinite(p.depth).all(), name
            assert p.color.max() <= COLOR_MAX, name
            assert p.alpha.min() >= 0, name
            assert p.alpha.max() <= 1, name
        assert expected.alpha.any() or name == "everything behind"
        # Rounding of the driver decides whether a Gaussian of the least alpha is drawn.
        step = 0.0 if is_software(ctx) else ALPHA_MIN
        difference = np.abs(got.alpha - expected.alpha)
        assert difference.max() < step + 2e-3, name
        assert (difference < 2e-3).mean() > 0.99, name
        assert psnr(np.minimum(got.color, 1), np.minimum(expected.color, 1)) > 50, name


def test_odd_scenes_are_drawn_in_every_paint(gl: Renderer) -> None:
    for i, (name, (make, _)) in enumerate(SCENES.items()):
        paint = list(PAINTS)[i % len(PAINTS)]
        p = draw(gl, make(), VIEW, RenderOptions(paint=paint))
        assert np.isfinite(p.color).all(), (name, paint)
        assert np.isfinite(p.alpha).all(), (name, paint)


def test_thinned_picture_shows_the_nearest_gaussians(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = everywhere(500)
    view = camera(80, 64)
    renderer = MAKERS["gl-tiles"](ctx)

    def small_chunks(boxes: Any, grid: Any) -> Chunks:
        return Chunks(boxes, grid, 62 * 80)

    monkeypatch.setattr(gl_tiles, "Chunks", small_chunks)
    expected = draw(ReferenceRenderer(), many[:62], view)
    got = draw(renderer, many, view)
    assert renderer.thinned
    assert psnr(got.color, expected.color) > 55
    draw(renderer, random_scene(1, Chance(n=40)), view)
    assert renderer.thinned == ""
    renderer.close()
