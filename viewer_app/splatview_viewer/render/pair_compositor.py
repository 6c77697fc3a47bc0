"""Two pictures in one: each is drawn into a target, and one pass lays them side by side."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import moderngl
import numpy as np

from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.screen import Rect
from splatview_viewer.gpu.work import GpuWork
from splatview_viewer.render.gl.passes import PassVariants, RenderTarget, read_texels

PairMode = Literal["split", "difference", "side", "blend"]
PAIR_MODES: tuple[PairMode, ...] = get_args(PairMode)
_BLOCK = 16
"""Pixels along the side of a block of which the GPU adds up the squared differences."""


class _Measurement(NamedTuple):
    """Squared differences that the GPU adds up."""

    sums: RenderTarget
    value_count: int
    """Numbers whose squared differences are in `sums`."""


class PairCompositor:
    """Holds two pictures of colours as they are shown.

        for side, view in enumerate(views):
            target = pair.target(side, rect.width, rect.height)
            view.draw(target, Rect(0, 0, rect.width, rect.height))
        pair.draw(framebuffer, rect, "split", position=0.5)

    Belongs to the thread that holds the context.
    """

    def __init__(self, ctx: moderngl.Context, gpu_work: GpuWork | None = None) -> None:
        self._ctx = ctx
        self._gpu_work = gpu_work or GpuWork(ctx)
        self._passes = PassVariants(ctx, "fullscreen.vert", "pair.frag")
        self._targets: dict[int, RenderTarget] = {}
        self._measurement: _Measurement | None = None

    def target(
        self, side: int, width: int, height: int, dtype: Literal["f4", "f1"] = "f4"
    ) -> moderngl.Framebuffer:
        """Return the target of the first (0) or second (1) picture.

        Its content stays if size and dtype do.

        Args:
            side: 0 or 1.
            width: pixels.
            height: pixels.
            dtype: f4: float32, nothing is rounded on the way. f1: a quarter of the
                memory, rounded as on a screen.
        """
        layers = self._targets.pop(side, None)
        if layers is not None:
            has_size = layers.size == (width, height)
            if not has_size or layers.textures["picture"].dtype != dtype:
                layers.release()
                layers = None
        if layers is None:
            layers = RenderTarget(self._ctx, (width, height), picture=(4, dtype))
            layers.textures["picture"].repeat_x = False
            layers.textures["picture"].repeat_y = False
            layers.framebuffer.clear()
        self._targets[side] = layers
        return layers.framebuffer

    def draw(
        self,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        mode: PairMode,
        position: float = 0.5,
        gain: float = 1.0,
        source_rect: Rect | None = None,
    ) -> None:
        """Draw both into a part of a framebuffer, every pixel of it once.

        A target of another size is stretched.

        Args:
            framebuffer: where to draw.
            rect: the part of it.
            mode: split: the first left of `position`, the second right of it.
                difference: the mean over R, G and B of the absolute differences, times
                `gain`, from black (none) to bright yellow (1 or more). side: the first in
                the left half, the second in the right one. blend: `position` of the
                second over the first.
            position: 0 to 1.
            gain: factor of differences.
            source_rect: the part of the targets that is shown, in their pixels from the
                upper left, of which there are as many then as in `rect`; None for all.

        Raises:
            ValueError: another mode, or there are not both targets yet.
        """
        if mode not in PAIR_MODES:
            raise ValueError(
                f"compare: how is {mode!r}; expected {', '.join(PAIR_MODES)}"
            )
        if len(self._targets) < 2:
            raise ValueError(
                "compare: both pictures have to be drawn first: see target"
            )
        textures = self._textures()
        widths = [rect.width, rect.width]
        if mode == "side":
            widths = [rect.width // 2, rect.width - rect.width // 2]
        shares = []
        for texture, width in zip(textures, widths, strict=True):
            x, y, source_width, source_height = _source_viewport(texture, source_rect)
            is_same_size = (source_width, source_height) == (width, rect.height)
            sampling = moderngl.NEAREST if is_same_size else moderngl.LINEAR
            texture.filter = sampling, sampling
            share = (
                x / texture.width,
                y / texture.height,
                source_width / texture.width,
                source_height / texture.height,
            )
            shares.append(share)
        viewport = rect.viewport(framebuffer.height)
        compose = self._passes()
        compose.bind_textures(first_picture=textures[0], second_picture=textures[1])
        compose.set_uniforms(
            corner=viewport[:2],
            size=(rect.width, rect.height),
            how=PAIR_MODES.index(mode),
            at=min(max(position, 0.0), 1.0),
            gain=gain,
            first_part=shares[0],
            second_part=shares[1],
        )
        framebuffer.use()
        framebuffer.viewport = viewport
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        with self._gpu_work("compare", rect.width, rect.height):
            compose.draw_fullscreen()

    def _textures(self) -> list[moderngl.Texture]:
        return [self._targets[side].textures["picture"] for side in (0, 1)]

    def measure(self, rect: Rect | None = None) -> None:
        """Have the GPU compare the two; `psnr` returns the result.

        Args:
            rect: the part to compare, in pixels of the targets from the upper left;
                None: all.
        """
        if self._measurement is not None:
            self._measurement.sums.release()
            self._measurement = None
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
        size = ceil_div(x1 - x0, _BLOCK), ceil_div(y1 - y0, _BLOCK)
        sums = RenderTarget(self._ctx, size, sums=(1, "f4"))
        self._measurement = _Measurement(sums, 3 * (x1 - x0) * (y1 - y0))
        add_up = self._passes("ERROR")
        first, second = self._textures()
        add_up.bind_textures(first_picture=first, second_picture=second)
        add_up.set_uniforms(low=(x0, y0), high=(x1, y1), block=_BLOCK)
        with (
            self._ctx.scope(sums.framebuffer, moderngl.NOTHING),
            self._gpu_work("psnr", *size),
        ):
            add_up.draw_fullscreen()

    def psnr(self) -> float | None:
        """Return the peak signal-to-noise ratio of the two in dB, as last measured.

        -10 log10 of the mean squared difference of R, G and B in [0, 1]; infinite for
        equal ones. None where nothing can be said: targets that are missing, of different
        sizes, or a rectangle without pixels. Waits until the GPU has compared them.
        """
        if self._measurement is None:
            return None
        squares = read_texels(self._measurement.sums.textures["sums"])
        total = float(squares.sum(dtype=np.float64))
        if math.isnan(total):
            return None
        return psnr_of(total / self._measurement.value_count)

    def drop(self) -> None:
        """Release the pictures, which are drawn again when they are wanted again."""
        for layers in self._targets.values():
            layers.release()
        self._targets.clear()
        if self._measurement is not None:
            self._measurement.sums.release()
            self._measurement = None

    def close(self) -> None:
        """Release everything. Idempotent. The context must still be current."""
        self.drop()
        self._passes.release()


def psnr_of(mean_square: float) -> float:
    """Return the PSNR in dB of a mean squared difference of numbers in [0, 1]."""
    if mean_square == 0:
        return math.inf
    return -10 * math.log10(mean_square)


def _source_viewport(
    texture: moderngl.Texture, source_rect: Rect | None
) -> tuple[int, int, int, int]:
    """Return x, y, width and height of the part of a target that is shown.

    In its pixels from the lower left.
    """
    if source_rect is None:
        return 0, 0, texture.width, texture.height
    x, y = source_rect.viewport(texture.height)[:2]
    return x, y, source_rect.width, source_rect.height
