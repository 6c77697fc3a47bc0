"""Compositing with blending: instanced shapes around the ellipses, front to back into a float target.

They come in batches. After each one, pixels that are opaque are marked, and neither shaded again nor, where whole
tiles are finished, even rasterised. The way of graphics cards, which set up triangles in no time.

One rule of gsplat's is out of reach here: a pixel ends *before* the Gaussian that would take its transmittance to
1e-4 or below. Fixed blending cannot know the transmittance, so that Gaussian and some behind it are drawn too.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import moderngl

from viewer_app.renderers.base import TRANSMITTANCE_MIN
from viewer_app.renderers.gl_compositor import Pass
from viewer_app.renderers.gl_textures import Layers, Target

if TYPE_CHECKING:
    from viewer_app.renderers.gl_compositor import Stages

MAX_BATCHES = 8
SMALL = 40.0
"""Radius in pixels up to which one triangle around the ellipse is drawn instead of a rectangle's two. It covers 30 %
more, but most Gaussians are so thin that triangles, not pixels, cost time."""
PIXELS_PER_GAUSSIAN = 16
"""A batch has at least one Gaussian for this many pixels: marking costs as much as there are pixels."""


class QuadCompositor:
    """See `Compositor`."""

    def __init__(self, ctx: moderngl.Context, stages: Stages, precision: Literal["f4", "f2"], software: bool):
        self._ctx = ctx
        self._stages = stages
        self._precision: Literal["f4", "f2"] = precision
        # Software rasterisers pay for triangles most: there it is one for everything, and a corner less to shade.
        self._corners, self._small = (3, float("inf")) if software else (4, SMALL)
        self.projection = Pass(ctx, "fullscreen.vert", "project.frag")
        self._splat = Pass(ctx, "splat.vert", "splat.frag")
        self._mark = Pass(ctx, "fullscreen.vert", "mark.frag")
        self._tiles = Pass(ctx, "fullscreen.vert", "tiles.frag")
        self._projected: Layers | None = None
        self._target: Target | None = None

    def reserve(self, columns: int, rows: int) -> moderngl.Framebuffer:
        if self._projected is None or self._projected.size != (columns, rows):
            if self._projected is not None:
                self._projected.release()
            self._projected = Layers(self._ctx, (columns, rows), place=(4, "f4"), shape=(4, "f4"), color=(4, "f4"))
        return self._projected.framebuffer

    def begin(self, size: tuple[int, int], depth: bool) -> moderngl.Framebuffer:
        if self._target is None or self._target.size != size or self._target.kind != (depth, self._precision):
            if self._target is not None:
                self._target.release()
            self._target = Target(self._ctx, size, depth, self._precision)
        return self._target.framebuffer

    def draw(self, visible: int) -> tuple[moderngl.Texture, moderngl.Texture | None]:
        target = self._target
        assert target is not None
        with self._stages("draw"):
            target.clear()
            if visible:
                self._blend(target, visible)
        return target.color, target.depth

    def release(self) -> None:
        for held in (self.projection, self._splat, self._mark, self._tiles, self._projected, self._target):
            if held is not None:
                held.release()
        self._projected = self._target = None

    def _blend(self, target: Target, visible: int) -> None:
        assert self._projected is not None
        ctx, splat, mark, tiles = self._ctx, self._splat, self._mark, self._tiles
        splat.read(**self._projected.textures, tiles=target.tiles)
        splat.set(columns=self._projected.size[0], size=target.size, small=self._small)
        for p in (mark, tiles):
            p.read(8, finished=target.color)  # a unit that `splat` does not use
            p.set(enough=1 - TRANSMITTANCE_MIN)
        pixels = target.size[0] * target.size[1]
        batches = min(max(visible * PIXELS_PER_GAUSSIAN // pixels, 1), MAX_BATCHES)
        ctx.blend_func = moderngl.ONE_MINUS_DST_ALPHA, moderngl.ONE
        for first, end in pairwise(visible * k // batches for k in range(batches + 1)):
            if first:
                ctx.enable_only(moderngl.DEPTH_TEST)  # without it depth would not be written
                ctx.depth_func = "1"
                target.marking.use()
                mark.fill()
                ctx.enable_only(moderngl.NOTHING)
                target.tiling.use()
                tiles.fill()
            ctx.enable_only(moderngl.BLEND | (moderngl.DEPTH_TEST if first else moderngl.NOTHING))
            ctx.depth_func = "<"
            target.framebuffer.use()
            splat.set(first=first)
            splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=self._corners, instances=end - first)
        ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA
