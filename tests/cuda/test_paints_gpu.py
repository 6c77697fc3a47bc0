"""The other paints, selections and scales on a GPU: what comes from CUDA graphs, and what a scene is lent for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.renderer_cases import CLASSIC, Chance, looking_at_origin, psnr, random_scene

from splatview_viewer.render.base import PAINTS, RenderOptions
from splatview_viewer.render.gsplat.renderer import GsplatRenderer
from splatview_viewer.render.reference import ReferenceRenderer
from splatview_viewer.scene import HIDDEN, MARKED, Selection
from splatview_viewer.scene import flags as flags_of
from splatview_viewer.scene.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

pytestmark = pytest.mark.cuda
VIEW = looking_at_origin()
DRAWS = 5
"""Enough that the last ones come from a graph."""
SOME = Selection(opacity=(0.2, 0.97), scale=(0.01, 0.6), marked=(3, 50, 400))


@pytest.fixture
def renderer(ctx: moderngl.Context) -> Iterator[GsplatRenderer]:
    made = GsplatRenderer(ctx)
    yield made
    assert made.note == ""
    made.close()


def on_gpu(s: GaussianScene) -> GaussianScene:
    return replace(s, **{name: getattr(s, name).cuda() for name in FIELDS})


def assert_reference(renderer: GsplatRenderer, reference: ReferenceRenderer, options: RenderOptions) -> None:
    wanted = reference.render(VIEW, options).pixels()
    for i in range(DRAWS):
        # Another camera in between, so that each picture is drawn anew.
        renderer.render(looking_at_origin(distance=3.0 + 0.1 * i), options).pixels()
        got = renderer.render(VIEW, options).pixels()
        edge = np.abs(got.alpha - wanted.alpha) == 1
        assert edge.mean() < 2e-3
        peak = float(wanted.color.max())
        assert psnr(got.color[~edge], wanted.color[~edge], peak) > 50, f"picture {i} of {options}"
        assert psnr(got.alpha[~edge], wanted.alpha[~edge]) > 50
        if got.depth is not None and wanted.depth is not None:
            assert psnr(got.depth[~edge], wanted.depth[~edge], float(wanted.depth.max())) > 50


@pytest.mark.parametrize("paint", PAINTS)
def test_pictures_that_come_from_graphs(renderer: GsplatRenderer, paint: Any) -> None:
    reference = ReferenceRenderer()
    for seed in (1, 2):
        s = random_scene(seed, Chance(n=800))
        renderer.load(on_gpu(s))
        reference.load(s)
        for options in (RenderOptions(paint=paint), RenderOptions(paint=paint, scale=0.7),
                        RenderOptions(paint=paint, scale=1.3, selection=SOME, point_px=6.0),
                        RenderOptions(paint=paint, depth=False)):
            assert_reference(renderer, reference, options)


def test_a_selection_and_another_paint_leave_colours_as_they_were(renderer: GsplatRenderer) -> None:
    renderer.load(on_gpu(random_scene(3, Chance(n=800))))
    before = renderer.render(VIEW, CLASSIC).pixels()
    for options in (RenderOptions(selection=SOME), RenderOptions(paint="ellipsoids"), RenderOptions(scale=2.0)):
        for _ in range(DRAWS):
            renderer.render(VIEW, options).pixels()
            after = renderer.render(VIEW, CLASSIC).pixels()
            assert np.array_equal(before.color, after.color) and np.array_equal(before.alpha, after.alpha)


def test_a_scene_is_lent_to_another_stream(renderer: GsplatRenderer) -> None:
    s = random_scene(6, Chance(n=50_000))
    other = torch.cuda.Stream()
    for turn in range(3):
        moved = replace(s, means=s.means + turn)
        renderer.load(on_gpu(moved))
        with torch.cuda.stream(other):
            lent = renderer.scene()
            total = lent.means.double().sum(0)
            flags = flags_of(lent, SOME)
        renderer.load(on_gpu(replace(s, means=s.means + 100)))
        renderer.render(VIEW, CLASSIC).pixels()
        assert lent.on_gpu and lent.activated and len(lent) == 50_000
        np.testing.assert_allclose(total.cpu().numpy(), moved.means.double().sum(0), rtol=1e-5, atol=1.0)
        opacities = s.opacities.sigmoid().numpy()
        hidden = (flags.cpu().numpy() & HIDDEN) != 0
        sure = np.abs(opacities - 0.2) > 1e-5
        assert hidden[sure & (opacities < 0.2)].all() and (flags.cpu().numpy()[[3, 50]] & MARKED).all()
