"""What the pictures of every renderer can do beside giving their pixels, and what renderers tell about them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.renderer_cases import (
    CLASSIC,
    MAKERS,
    MARKED,
    Chance,
    camera,
    draw,
    looking_at_origin,
    random_scene,
    read_source,
    scene,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

    from splatview.viewer_app.renderers.base import Renderer


@pytest.fixture(params=MARKED)
def renderer(request: pytest.FixtureRequest, ctx: moderngl.Context) -> Iterator[Renderer]:
    made = MAKERS[request.param](ctx)
    yield made
    made.close()


def test_texture(renderer: Renderer, ctx: moderngl.Context) -> None:
    renderer.load(scene([(0, -0.7, 2), (0.5, 0, 2)], [(1, 0, 0), (0, 1, 0)]))
    picture = renderer.render(camera(), CLASSIC)
    p = picture.pixels()
    texture = picture.texture(ctx)
    assert texture.size == (64, 48) and texture.components == 4
    rgba = np.frombuffer(texture.read(), np.float32).reshape(48, 64, 4)
    assert np.array_equal(rgba, np.dstack([p.color, p.alpha]))
    assert rgba[:10, ..., 0].max() > 0.1 and rgba[38:, ..., 0].max() == 0  # the red one is at the top: row 0


def test_source(renderer: Renderer, ctx: moderngl.Context) -> None:
    renderer.load(random_scene(16, Chance(n=300)))
    for size in [(80, 60), (131, 47), (80, 60), (1, 1)]:  # buffers are given up and taken again
        picture = renderer.render(looking_at_origin(*size), CLASSIC)
        values = read_source(ctx, picture.source())
        p = picture.pixels()
        expected = np.dstack([p.color, p.alpha])
        # gsplat's pictures pass through float16, 11 bits.
        assert np.abs(values - expected).max() <= (2 ** -11 * expected.max() if renderer.name == "gsplat" else 0)
        assert np.array_equal(read_source(ctx, picture.source()), values)


def test_sizes(renderer: Renderer) -> None:
    renderer.load(scene((0, 0, 2), scales=0.5))
    for width, height in [(1, 1), (1, 37), (300, 1), (17, 16)]:
        p = renderer.render(replace(camera(), width=width, height=height), CLASSIC).pixels()
        assert p.color.shape == (height, width, 3) and p.depth is not None and p.depth.shape == (height, width)


def test_where_it_reads(renderer: Renderer) -> None:
    draw(renderer, scene((0, 0, 2)))
    assert not renderer.reading and not renderer.tick()
    assert renderer.wants_gpu is (renderer.name == "gsplat")
    assert (renderer.gpu_ms is None) is (renderer.name != "gsplat")


def test_timings(renderer: Renderer) -> None:
    draw(renderer, scene((0, 0, 2)))
    assert {"activate", "draw"} <= set(renderer.timings)
    assert all(ms >= 0 for ms in renderer.timings.values())
