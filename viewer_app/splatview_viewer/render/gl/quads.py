"""Compositing with blending, the way of graphics cards."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import moderngl

from splatview_viewer.render.base import (
    AMBIENT,
    BODY_SIGMAS,
    LIGHT,
    RING_INSIDE,
    RING_PX,
    TRANSMITTANCE_MIN,
    RenderOptions,
)
from splatview_viewer.render.gl.passes import (
    BlendTarget,
    Channels,
    Compositor,
    Pass,
    PassVariants,
)
from splatview_viewer.render.paints import PAINTS

if TYPE_CHECKING:
    from splatview_viewer.gpu.steps import Steps
    from splatview_viewer.render.gl.passes import Parts, Size

MAX_BATCHES = 8
SMALL = 40.0
"""Radius in pixels up to which one triangle around the ellipse is drawn instead of a
rectangle's two. It covers 30 % more, but most Gaussians are so thin that triangles, not
pixels, cost time."""
PIXELS_PER_GAUSSIAN = 16
"""A batch has at least one Gaussian for this many pixels: marking costs as much as there
are pixels."""
_FINISHED_UNIT = 8
"""A texture unit that the splat pass does not use."""


class QuadCompositor(Compositor):
    """Draws instanced shapes around the ellipses, front to back into a float target.

    They come in batches. After each one, pixels that are opaque are marked, and neither
    shaded again nor, where whole tiles are finished, even rasterised. Graphics cards set
    up triangles in no time.

    One rule of gsplat's is out of reach here: a pixel ends *before* the Gaussian that
    would take its transmittance to 1e-4 or below. Fixed blending cannot know the
    transmittance, so that Gaussian and some behind it are drawn too.
    """

    formats = dict.fromkeys(("place", "shape", "color"), (4, "f4"))

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self.projection = PassVariants(
            ctx, "fullscreen.vert", "project.frag", reading="read_floats.glsl"
        )
        """The projection pass by the defines of paints, with the outputs that this
        compositor reads."""
        self._splat = PassVariants(ctx, "splat.vert", "splat.frag")
        self._mark = Pass(ctx, "fullscreen.vert", "mark.frag")
        self._tiles = Pass(ctx, "fullscreen.vert", "tiles.frag")
        self._target: BlendTarget | None = None
        self._options = RenderOptions()

    def begin(self, size: Size, options: RenderOptions) -> None:
        self._options = options
        target = self._target
        if target is not None:
            has_depth = target.depth is not None
            if target.size != size or has_depth != options.depth:
                self.free_pictures()
        if self._target is None:
            self._target = BlendTarget(self._ctx, size, options.depth)

    def steps(self, visible: int, near: float, part_sizes: Parts) -> Steps[Channels]:
        """Return the one step that composites the first `visible` projections.

        A graphics card draws beside the program, so that parts would gain nothing.
        """
        target = self._target
        assert target is not None
        with self._ctx.scope(target.framebuffer, moderngl.NOTHING):
            target.clear()
            if visible:
                self._draw(target, visible, near)
        yield None
        return Channels(target.color, target.depth)

    def _draw(self, target: BlendTarget, visible: int, near: float) -> None:
        """Composite the first `visible` projections."""
        paint = PAINTS[self._options.paint]
        if paint.composition == "nearest":
            self._draw_nearest(target, visible, near)
        elif paint.is_counted:
            self._count(target, visible, *paint.compositing_defines)
        else:
            self._blend(target, visible, *paint.compositing_defines)

    def free_pictures(self) -> None:
        """Release the memory that a picture's size takes."""
        if self._target is not None:
            self._target.release()
            self._target = None

    def release(self) -> None:
        """Release everything."""
        self.free_pictures()
        for resource in (self.projection, self._splat, self._mark, self._tiles):
            resource.release()
        if self._projected is not None:
            self._projected.release()
            self._projected = None

    def _splats(self, target: BlendTarget, *defines: str) -> Pass:
        """Return the pass that draws, ready but for the first Gaussian."""
        assert self._projected is not None
        splat = self._splat(*defines)
        splat.bind_textures(**self._projected.textures, tiles=target.tiles)
        splat.set_uniforms(
            columns=self._projected.size[0],
            size=target.size,
            small=SMALL,
            body_sigmas=BODY_SIGMAS,
            ring_px=RING_PX,
            ring_inside=RING_INSIDE,
            point_reach=self._options.point_reach,
            light=LIGHT,
            ambient=AMBIENT,
        )
        return splat

    def _draw_nearest(self, target: BlendTarget, visible: int, near: float) -> None:
        """Draw bodies by the depth test."""
        splat = self._splats(target, "BODIES")
        splat.set_uniforms(first=0, z_near=near)
        target.framebuffer.use()
        target.framebuffer.depth_mask = True
        self._ctx.enable_only(moderngl.DEPTH_TEST)
        self._ctx.depth_func = "<"
        splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=visible)
        target.framebuffer.depth_mask = False

    def _count(self, target: BlendTarget, visible: int, *defines: str) -> None:
        """Add all Gaussians up, with the depth of colours."""
        ctx = self._ctx
        if target.depth is not None:
            self._blend(target, visible)
        target.sum_framebuffer.use()
        target.sum_framebuffer.clear()
        splat = self._splats(target, *defines)
        splat.set_uniforms(first=0)
        ctx.enable_only(moderngl.BLEND)
        ctx.blend_func = moderngl.ONE, moderngl.ONE
        ctx.blend_equation = moderngl.FUNC_ADD, moderngl.MAX
        splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=visible)
        ctx.blend_equation = moderngl.FUNC_ADD, moderngl.FUNC_ADD
        ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA

    def _blend(self, target: BlendTarget, visible: int, *defines: str) -> None:
        """Blend front to back, in batches."""
        ctx = self._ctx
        splat = self._splats(target, *defines)
        for marking in (self._mark, self._tiles):
            marking.bind_textures(_FINISHED_UNIT, finished=target.color)
            marking.set_uniforms(enough=1 - TRANSMITTANCE_MIN)
        pixels = target.size[0] * target.size[1]
        batches = min(max(visible * PIXELS_PER_GAUSSIAN // pixels, 1), MAX_BATCHES)
        limits = [visible * batch // batches for batch in range(batches + 1)]
        ctx.blend_func = moderngl.ONE_MINUS_DST_ALPHA, moderngl.ONE
        for first, end in pairwise(limits):
            if first:
                self._mark_finished(target)
                ctx.enable_only(moderngl.BLEND | moderngl.DEPTH_TEST)
            else:
                ctx.enable_only(moderngl.BLEND)
            ctx.depth_func = "<"
            target.framebuffer.use()
            splat.set_uniforms(first=first)
            splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=end - first)
        ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA

    def _mark_finished(self, target: BlendTarget) -> None:
        """Mark pixels and tiles that are opaque."""
        # Without the depth test depth would not be written.
        self._ctx.enable_only(moderngl.DEPTH_TEST)
        self._ctx.depth_func = "1"
        target.mark_framebuffer.use()
        self._mark.draw_fullscreen()
        self._ctx.enable_only(moderngl.NOTHING)
        target.tile_framebuffer.use()
        self._tiles.draw_fullscreen()
