"""Compositing with blending: instanced shapes around the ellipses, front to back into a float target.

They come in batches. After each one, pixels that are opaque are marked, and neither shaded again nor, where whole
tiles are finished, even rasterised. The way of graphics cards, which set up triangles in no time.

One rule of gsplat's is out of reach here: a pixel ends *before* the Gaussian that would take its transmittance to
1e-4 or below. Fixed blending cannot know the transmittance, so that Gaussian and some behind it are drawn too.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import moderngl
import numpy as np

from splatview_viewer.render.base import (
    AMBIENT,
    BODY_SIGMAS,
    LIGHT,
    PIXELS_MAX,
    RING_INSIDE,
    RING_PX,
    TRANSMITTANCE_MIN,
    RenderOptions,
    thinned_words,
)
from splatview_viewer.render.gl.passes import DEFINES, Compositor, Pass, Passes, Target

if TYPE_CHECKING:
    from splatview_viewer.render.gl.passes import Stages

MAX_BATCHES = 8
SMALL = 40.0
"""Radius in pixels up to which one triangle around the ellipse is drawn instead of a rectangle's two. It covers 30 %
more, but most Gaussians are so thin that triangles, not pixels, cost time."""
PIXELS_PER_GAUSSIAN = 16
"""A batch has at least one Gaussian for this many pixels: marking costs as much as there are pixels."""


class QuadCompositor(Compositor):
    """Turns Gaussians, projected in drawing order by shaders/project.frag, into a picture."""

    formats = dict.fromkeys(("place", "shape", "color"), (4, "f4"))

    def __init__(self, ctx: moderngl.Context, stages: Stages) -> None:
        self._ctx = ctx
        self._stages = stages
        self.projection = Passes(ctx, "fullscreen.vert", "project.frag")
        """The projection pass by `DEFINES`, with the outputs that this compositor reads."""
        self._splat = Passes(ctx, "splat.vert", "splat.frag")
        self._mark = Pass(ctx, "fullscreen.vert", "mark.frag")
        self._tiles = Pass(ctx, "fullscreen.vert", "tiles.frag")
        self._target: Target | None = None
        self._options = RenderOptions()
        self.thinned = ""
        """As `Renderer.thinned`."""
        self.most_pixels = PIXELS_MAX
        """Number of pixels that may be filled without an exact count; 0: not used."""

    def begin(self, size: tuple[int, int], options: RenderOptions) -> moderngl.Framebuffer:
        """Make room for a picture of `size` pixels. Returns what to bind; call before projecting."""
        self._options, depth = options, options.depth
        if self._target is None or self._target.size != size or (self._target.depth is not None) != depth:
            if self._target is not None:
                self._target.release()
                self._target = None
            self._target = Target(self._ctx, size, depth)
        return self._target.framebuffer

    def draw(self, visible: int, near: float, pixels: float) -> tuple[moderngl.Texture, moderngl.Texture | None]:
        """Composite the first `visible` projections. Returns colour (RGBA, premultiplied, row 0 at the top) and,
        if asked for, accumulated depth in the first channel. `near`: the camera's. `pixels`: how many are filled at
        most, if each Gaussian were as large as it could be; asked for where `most_pixels` is not 0."""
        target = self._target
        assert target is not None
        self.thinned = ""
        if pixels > self.most_pixels:
            visible = self._affordable(visible, target.size)
        with self._stages("draw"):
            target.clear()
            if visible and self._options.paint == "ellipsoids":
                self._nearest(target, visible, near)
            elif visible and self._options.paint == "overdraw":
                self._count(target, visible)
            elif visible:
                self._blend(target, visible, *DEFINES[self._options.paint])
        return target.color, target.depth

    def release(self) -> None:
        for held in (self.projection, self._splat, self._mark, self._tiles, self._projected, self._target):
            if held is not None:
                held.release()
        self._projected = self._target = None

    def _affordable(self, visible: int, size: tuple[int, int]) -> int:
        """Number of Gaussians, the nearest first, within the limit of filled pixels. Reads the projection back."""
        assert self._projected is not None
        columns = self._projected.size[0]
        rows = -(-visible // columns)
        place, shape = (np.empty((rows * columns, 4), np.float32) for _ in range(2))
        for number, to in enumerate((place, shape)):
            self._projected.framebuffer.read_into(to, viewport=(0, 0, columns, rows), components=4, attachment=number,
                                                  dtype="f4", alignment=1)
        filled = np.cumsum(footprints(place[:visible], shape[:visible], size), dtype=np.float64)
        if filled[-1] <= self.most_pixels:
            return visible
        count = max(int(np.searchsorted(filled, self.most_pixels, side="right")), 1)
        self.thinned = thinned_words(float(filled[-1]), float(filled[count - 1]))
        return count

    def _splats(self, target: Target, *defines: str) -> Pass:
        """The pass that draws, ready but for the first Gaussian."""
        assert self._projected is not None
        splat, options = self._splat(*defines), self._options
        splat.read_used(**self._projected.textures, tiles=target.tiles)
        splat.set_used(columns=self._projected.size[0], size=target.size, small=SMALL, body_sigmas=BODY_SIGMAS,
                       ring_px=RING_PX, ring_inside=RING_INSIDE, point_reach=options.point_reach, light=LIGHT,
                       ambient=AMBIENT)
        return splat

    def _nearest(self, target: Target, visible: int, near: float) -> None:
        """Bodies, by the depth test."""
        ctx, splat = self._ctx, self._splats(target, "BODIES")
        splat.set(first=0, z_near=near)
        target.framebuffer.use()
        target.framebuffer.depth_mask = True
        ctx.enable_only(moderngl.DEPTH_TEST)
        ctx.depth_func = "<"
        splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=visible)
        target.framebuffer.depth_mask = False

    def _count(self, target: Target, visible: int) -> None:
        if target.depth is not None:
            self._blend(target, visible)
        target.counting.use()
        target.counting.clear()
        splat = self._splats(target, "OVERDRAW")
        splat.set(first=0)
        ctx = self._ctx
        ctx.enable_only(moderngl.BLEND)
        ctx.blend_func = moderngl.ONE, moderngl.ONE
        ctx.blend_equation = moderngl.FUNC_ADD, moderngl.MAX
        splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=visible)
        ctx.blend_equation = moderngl.FUNC_ADD, moderngl.FUNC_ADD
        ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA

    def _blend(self, target: Target, visible: int, *defines: str) -> None:
        ctx, mark, tiles = self._ctx, self._mark, self._tiles
        splat = self._splats(target, *defines)
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
            splat.vao.render(moderngl.TRIANGLE_STRIP, vertices=4, instances=end - first)
        ctx.blend_func = moderngl.SRC_ALPHA, moderngl.ONE_MINUS_SRC_ALPHA


def footprints(place: np.ndarray, shape: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """(M,) pixels that rectangles around ellipses fill, at most, in a picture of `size`; from what project.frag wrote:
    (M, 4) float32 each."""
    with np.errstate(over="ignore", invalid="ignore"):
        major = np.hypot(shape[:, 0], shape[:, 1])
        whole = 4 * shape[:, 3] ** 2 * major * shape[:, 2]
        reach = shape[:, 3] * np.maximum(major, shape[:, 2])
        sides = [np.clip(np.minimum(place[:, k] + reach, size[k]) - np.maximum(place[:, k] - reach, 0), 0, size[k])
                 for k in range(2)]
    return np.where(shape[:, 3] > 0, np.fmin(whole, sides[0] * sides[1]), 0)
