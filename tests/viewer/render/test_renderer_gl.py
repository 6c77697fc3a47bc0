"""The OpenGL renderer keeps the caller's state and refuses too large work."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import moderngl
import numpy as np
import pytest
from support.renderer_cases import Chance, looking_at_origin, random_scene

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.gl import renderer as gl_renderer
from splatview_viewer.render.gl import tile_lists
from splatview_viewer.render.gl.passes import Parts
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.paints import PAINTS, Paint

OPTIONS = RenderOptions()


def test_rendering_keeps_the_state_of_the_caller(ctx: moderngl.Context) -> None:
    renderer = GlRenderer(ctx)
    renderer.load(random_scene(1, Chance(n=100)))
    texture = ctx.texture((16, 16), 4)
    mine = ctx.framebuffer([texture])
    mine.use()
    mine.clear(1.0, 0.0, 0.0, 1.0)
    renderer.render(looking_at_origin(80, 60), OPTIONS)
    # This clears the framebuffer that is bound.
    ctx.clear(0.0, 1.0, 0.0, 1.0)
    assert mine.read(components=3)[:3] == b"\x00\xff\x00"
    assert mine.viewport == (0, 0, 16, 16)
    mine.release()
    texture.release()
    renderer.close()


def test_too_large_pictures_and_scenes_are_refused(ctx: moderngl.Context) -> None:
    renderer = GlRenderer(ctx)
    side = min(ctx.info["GL_MAX_TEXTURE_SIZE"], *ctx.info["GL_MAX_VIEWPORT_DIMS"])
    with pytest.raises(RendererError, match=f"{side + 1}x8 .*{side}"):
        renderer.render(replace(looking_at_origin(), width=side + 1, height=8), OPTIONS)
    # The driver's textures are 16 by 16; a Gaussian takes four texels.
    renderer._limit = 16
    renderer._columns = 16
    with pytest.raises(RendererError, match=r"300 Gaussians.*16x16.* 64$"):
        renderer.load(random_scene(1, Chance(n=300, sh_degree=0)))
    renderer.load(random_scene(1, Chance(n=16, sh_degree=3)))
    assert renderer.render(looking_at_origin(10, 10), OPTIONS).pixels().alpha.any()
    renderer.close()


@pytest.mark.parametrize("paint", PAINTS)
def test_picture_in_steps_is_the_one_that_is_drawn_at_once(
    ctx: moderngl.Context, monkeypatch: pytest.MonkeyPatch, paint: Paint
) -> None:
    """Whatever is drawn between the steps, which are many."""
    monkeypatch.setattr(gl_renderer, "STEPPED_FROM", 1)
    monkeypatch.setattr(gl_renderer, "COLUMNS", 64)
    monkeypatch.setattr(gl_renderer, "Parts", partial(Parts, 64, 500, 500, 64))
    monkeypatch.setattr(tile_lists, "BUDGET", 1500)
    scene = random_scene(1, Chance(n=300))
    camera = looking_at_origin(80, 60)
    options = RenderOptions(paint=paint)
    renderer = GlRenderer(ctx)
    renderer.load(scene)
    expected = renderer.render(camera, options).pixels()
    texture = ctx.texture((16, 16), 4)
    other_framebuffer = ctx.framebuffer([texture])
    renderer.load_kept(scene)
    steps = renderer.steps(camera, options)
    count = 0
    reply = None
    while True:
        try:
            function = steps.send(reply)
        except StopIteration as stop:
            picture = stop.value
            break
        count += 1
        reply = None if function is None else function()
        ctx.enable_only(moderngl.BLEND | moderngl.DEPTH_TEST)
        other_framebuffer.use()
        other_framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    assert count > 30
    pixels = picture.pixels()
    np.testing.assert_array_equal(pixels.color, expected.color)
    np.testing.assert_array_equal(pixels.alpha, expected.alpha)
    np.testing.assert_array_equal(pixels.depth, expected.depth)
    assert other_framebuffer.read(components=3)[:3] == b"\x00\xff\x00"
    ctx.enable_only(moderngl.NOTHING)
    other_framebuffer.release()
    texture.release()
    renderer.close()
