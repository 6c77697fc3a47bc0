"""The OpenGL renderer keeps the caller's state and refuses too large work."""

from __future__ import annotations

from dataclasses import replace

import moderngl
import pytest
from support.renderer_cases import Chance, looking_at_origin, random_scene

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.render.gl.renderer import GlRenderer

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
