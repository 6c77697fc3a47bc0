"""Two pictures in one: each is drawn into a target, and one pass lays them beside each other."""

from __future__ import annotations

import math
from typing import Literal, get_args

import moderngl
import numpy as np

from splatview_viewer.core.screen import Rect
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.render.gl.passes import LayerTextures, Passes, texels

How = Literal["split", "difference", "side", "blend"]
HOWS: tuple[How, ...] = get_args(How)
_BLOCK = 16
"""Pixels along the side of a block of which the GPU adds up the squared differences."""


class PairCompositor:
    """Holds two pictures of colours as they are shown:

        for side, view in enumerate(views):
            view.draw(pair.target(side, rect.width, rect.height), Rect(0, 0, rect.width, rect.height))
        pair.draw(framebuffer, rect, "split", at=0.5)

    Belongs to the thread that holds the context.
    """

    def __init__(self, ctx: moderngl.Context, work: GpuWork | None = None) -> None:
        self._ctx = ctx
        self._work = work or GpuWork(ctx)
        self._passes = Passes(ctx, "fullscreen.vert", "pair.frag")
        self._targets: dict[int, LayerTextures] = {}
        self._sums: LayerTextures | None = None
        self._numbers = 0
        """Numbers of which `_sums` has the squared differences."""

    def target(
        self, side: int, width: int, height: int, dtype: Literal["f4", "f1"] = "f4"
    ) -> moderngl.Framebuffer:
        """Target of the first (0) or second (1) picture; what was there stays if size and dtype do. f4: float32,
        nothing is rounded on the way. f1: a quarter of the memory, rounded as on a screen.
        """
        held = self._targets.pop(side, None)
        if held is not None and (
            held.size != (width, height) or held.textures["picture"].dtype != dtype
        ):
            held.release()
            held = None
        if held is None:
            held = LayerTextures(self._ctx, (width, height), picture=(4, dtype))
            held.textures["picture"].repeat_x = False
            held.textures["picture"].repeat_y = False
            held.framebuffer.clear()
        self._targets[side] = held
        return held.framebuffer

    def draw(
        self,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        how: How,
        at: float = 0.5,
        gain: float = 1.0,
        part: Rect | None = None,
    ) -> None:
        """Draw both into a part of a framebuffer, every pixel of it once; a target of another size is stretched.
        `part`: what is seen of the targets, in their pixels from the upper left, of which there are as many then as in
        `rect`; None: all.

        split: the first left of `at` (0 to 1), the second right of it. difference: the mean over R, G and B of the
        absolute differences, times `gain`, from black (none) to bright yellow (1 or more). side: the first in the left
        half, the second in the right one. blend: `at` of the second over the first. Raises ValueError for another
        `how`, or before there are both targets.
        """
        if how not in HOWS:
            raise ValueError(f"compare: how is {how!r}; legal are {', '.join(HOWS)}")
        if len(self._targets) < 2:
            raise ValueError(
                "compare: both pictures have to be drawn first: see target"
            )
        textures = [self._targets[side].textures["picture"] for side in (0, 1)]
        if how == "side":
            widths = [rect.width // 2, rect.width - rect.width // 2]
        else:
            widths = [rect.width] * 2
        parts = []
        for texture, width in zip(textures, widths, strict=True):
            (x, y), seen = (0, 0), texture.size
            if part is not None:
                (x, y), seen = (
                    part.viewport(texture.height)[:2],
                    (part.width, part.height),
                )
            parts.append(
                (
                    x / texture.width,
                    y / texture.height,
                    seen[0] / texture.width,
                    seen[1] / texture.height,
                )
            )
            if seen == (width, rect.height):
                filter_ = moderngl.NEAREST
            else:
                filter_ = moderngl.LINEAR
            texture.filter = filter_, filter_
        viewport = rect.viewport(framebuffer.height)
        shown = self._passes()
        shown.read(first_picture=textures[0], second_picture=textures[1])
        shown.set(
            corner=viewport[:2],
            size=(rect.width, rect.height),
            how=HOWS.index(how),
            at=min(max(at, 0.0), 1.0),
            gain=gain,
            first_part=parts[0],
            second_part=parts[1],
        )
        framebuffer.use()
        framebuffer.viewport = viewport
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        with self._work("compare", rect.width, rect.height):
            shown.fill()

    def measure(self, rect: Rect | None = None) -> None:
        """Have the GPU compare the two, in `rect`, in pixels of the targets from the upper left, or in all: `psnr`
        returns the result.
        """
        if self._sums is not None:
            self._sums.release()
        self._sums = None
        if len(self._targets) < 2 or self._targets[0].size != self._targets[1].size:
            return
        width, height = self._targets[0].size
        rect = rect or Rect(0, 0, width, height)
        x0 = max(rect.x, 0)
        x1 = min(rect.x + rect.width, width)
        y0 = height - min(rect.y + rect.height, height)
        y1 = height - max(rect.y, 0)
        if x0 >= x1 or y0 >= y1:
            return
        size = -(-(x1 - x0) // _BLOCK), -(-(y1 - y0) // _BLOCK)
        self._sums = LayerTextures(self._ctx, size, sums=(1, "f4"))
        self._numbers = 3 * (x1 - x0) * (y1 - y0)
        summed = self._passes("ERROR")
        first, second = (self._targets[side].textures["picture"] for side in (0, 1))
        summed.read(first_picture=first, second_picture=second)
        summed.set(low=(x0, y0), high=(x1, y1), block=_BLOCK)
        with (
            self._ctx.scope(self._sums.framebuffer, moderngl.NOTHING),
            self._work("psnr", *size),
        ):
            summed.fill()

    def psnr(self) -> float | None:
        """The peak signal-to-noise ratio of the two in dB, as last measured: -10 log10 of the mean squared difference
        of R, G and B in [0, 1]; infinite for equal ones. None where nothing can be said: targets that are missing, of
        different sizes, or a rectangle without pixels. Waits until the GPU has compared them.
        """
        if self._sums is None:
            return None
        total = float(texels(self._sums.textures["sums"]).sum(dtype=np.float64))
        if math.isnan(total):
            return None
        return math.inf if total == 0 else -10 * math.log10(total / self._numbers)

    def drop(self) -> None:
        """Give back the pictures, which are drawn anew when they are wanted again."""
        for held in (*self._targets.values(), self._sums):
            if held is not None:
                held.release()
        self._targets.clear()
        self._sums = None

    def close(self) -> None:
        """Give back everything. Idempotent. The context must still be current."""
        self.drop()
        self._passes.release()
