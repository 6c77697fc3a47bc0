"""Two pictures in one: each is drawn into a target, and one pass lays them beside each other."""

from __future__ import annotations

import math
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, get_args

import moderngl
import numpy as np

from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import VERTEX
from splatview_viewer.gpu.work import GpuWork

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        self._targets: list[moderngl.Framebuffer | None] = [None, None]
        self._dtypes = ["", ""]
        self._arrays: dict[str, moderngl.VertexArray] = {}
        self._sums: moderngl.Framebuffer | None = None
        self._on_its_way: tuple[moderngl.Buffer, int, int] | None = None
        """Sums that the GPU is about to write, how many there are, and of how many numbers."""

    def target(self, side: int, width: int, height: int,
               dtype: Literal["f4", "f1"] = "f4") -> moderngl.Framebuffer:
        """Target of the first (0) or second (1) picture; what was there stays if size and dtype do. f4: float32,
        nothing is rounded on the way. f1: a quarter of the memory, rounded as on a screen."""
        before = self._targets[side]
        if before is not None and before.size == (width, height) and self._dtypes[side] == dtype:
            return before
        self._release(side)
        texture = self._ctx.texture((width, height), 4, dtype=dtype)
        self._dtypes[side] = dtype
        texture.repeat_x = texture.repeat_y = False
        made = self._targets[side] = self._ctx.framebuffer([texture])
        made.clear()
        return made

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, how: How, at: float = 0.5, gain: float = 1.0,
             part: Rect | None = None) -> None:
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
        textures = self._textures()
        viewport = rect.viewport(framebuffer.height)
        array = self._array("")
        program = array.program
        program["u_corner"] = viewport[:2]
        program["u_size"] = rect.width, rect.height
        program["u_how"] = HOWS.index(how)
        program["u_at"] = min(max(at, 0.0), 1.0)
        program["u_gain"] = gain
        sizes = [rect.width // 2, rect.width - rect.width // 2] if how == "side" else [rect.width] * 2
        for side, (texture, width) in enumerate(zip(textures, sizes, strict=True)):
            corner, seen = (0, 0), texture.size
            if part is not None:
                corner, seen = part.viewport(texture.height)[:2], (part.width, part.height)
            program[("u_first_part", "u_second_part")[side]] = (
                corner[0] / texture.width, corner[1] / texture.height,
                seen[0] / texture.width, seen[1] / texture.height)
            exact = seen == (width, rect.height)
            texture.filter = (moderngl.NEAREST, moderngl.NEAREST) if exact else (moderngl.LINEAR, moderngl.LINEAR)
        self._bind(array, textures)
        framebuffer.use()
        framebuffer.viewport = viewport
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        with self._work("compare", rect.width, rect.height):
            array.render(moderngl.TRIANGLES, vertices=3)

    def measure(self, rect: Rect | None = None) -> None:
        """Have the GPU compare the two, in `rect`, in pixels of the targets from the upper left, or in all: `psnr` says
        what came of it."""
        first, second = self._targets
        if first is None or second is None or first.size != second.size:
            self._forget()
            return
        width, height = first.size
        rect = rect or Rect(0, 0, width, height)
        x0, x1 = max(rect.x, 0), min(rect.x + rect.width, width)
        y0, y1 = height - min(rect.y + rect.height, height), height - max(rect.y, 0)
        if x0 >= x1 or y0 >= y1:
            self._forget()
            return
        size = -(-(x1 - x0) // _BLOCK), -(-(y1 - y0) // _BLOCK)
        sums = self._sums
        if sums is None or sums.size != size:
            self._release_sums()
            sums = self._sums = self._ctx.framebuffer([self._ctx.texture(size, 1, dtype="f4")])
        count = size[0] * size[1]
        if self._on_its_way is None or self._on_its_way[1] != count:
            self._forget()
            buffer = self._ctx.buffer(reserve=4 * count)
        else:
            buffer = self._on_its_way[0]
        array = self._array("ERROR")
        program = array.program
        program["u_from"] = x0, y0
        program["u_to"] = x1, y1
        program["u_block"] = _BLOCK
        self._bind(array, self._textures())
        with self._ctx.scope(sums, moderngl.NOTHING), self._work("psnr", *size):
            array.render(moderngl.TRIANGLES, vertices=3)
            sums.read_into(buffer, components=1, dtype="f4", alignment=1)
        self._on_its_way = buffer, count, 3 * (x1 - x0) * (y1 - y0)

    def psnr(self) -> float | None:
        """The peak signal-to-noise ratio of the two in dB, as last measured: -10 log10 of the mean squared difference
        of R, G and B in [0, 1]; infinite for equal ones. None where nothing can be said: targets that are missing, of
        different sizes, or a rectangle without pixels. Waits until the GPU has compared them."""
        if self._on_its_way is None:
            return None
        buffer, count, numbers = self._on_its_way
        total = float(np.frombuffer(buffer.read(4 * count), np.float32).sum(dtype=np.float64))
        if math.isnan(total):
            return None
        return math.inf if total == 0 else -10 * math.log10(total / numbers)

    def _textures(self) -> list[moderngl.Texture]:
        if None in self._targets:
            raise ValueError("compare: both pictures have to be drawn first: see target")
        return [target.color_attachments[0] for target in self._targets]  # type: ignore[union-attr, misc]

    def _bind(self, array: moderngl.VertexArray, textures: Sequence[moderngl.Texture]) -> None:
        for unit, (name, texture) in enumerate(zip(("u_first", "u_second"), textures, strict=True)):
            texture.use(unit)
            array.program[name] = unit

    def _array(self, define: str) -> moderngl.VertexArray:
        if define not in self._arrays:
            source = files("splatview_viewer.render").joinpath("pair.glsl").read_text()
            head, _, rest = source.partition("#version 330\n")
            source = f"#version 330\n{f'#define {define}' if define else ''}\n{head}{rest}"
            self._arrays[define] = self._ctx.vertex_array(
                self._ctx.program(vertex_shader=VERTEX, fragment_shader=source), [])
        return self._arrays[define]

    def drop(self) -> None:
        """Give back the pictures, which are drawn anew when they are wanted again."""
        for side in (0, 1):
            self._release(side)
        self._release_sums()
        self._forget()

    def _forget(self) -> None:
        if self._on_its_way is not None:
            self._on_its_way[0].release()
        self._on_its_way = None

    def _release(self, side: int) -> None:
        target, self._targets[side] = self._targets[side], None
        if target is not None:
            target.color_attachments[0].release()
            target.release()

    def _release_sums(self) -> None:
        if self._sums is not None:
            self._sums.color_attachments[0].release()
            self._sums.release()
            self._sums = None

    def close(self) -> None:
        """Give back everything. Idempotent. The context must still be current."""
        self.drop()
        for array in self._arrays.values():
            array.program.release()
            array.release()
        self._arrays.clear()
