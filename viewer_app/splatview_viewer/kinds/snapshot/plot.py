"""The picture of a timeline on the screen: what threads paint is uploaded, and copied to where it belongs."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.gl.glapi import DRAW_FRAMEBUFFER, GL, READ_FRAMEBUFFER
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.kinds.snapshot.painting import Painting, paint
from splatview_viewer.kinds.snapshot.state import BACKGROUND

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.snapshot.painting import Material, Sheet
    from splatview_viewer.kinds.snapshot.world import Window

_COLOR_BUFFER_BIT, _NEAREST = 0x4000, 0x2600
_AT_ONCE_S, _AT_ONCE_SOFTWARE_S = 0.02, 0.07
"""Seconds for which a drawing waits for the picture that it shows: most are there by then. The second where stretching
an older one is the processor's work, and takes as long."""
_LIT, _OUTLINED = 0.30, 0.22
"""How far what is under the pointer, and what is selected, are drawn to white."""
_OUTLINE = (247, 250, 255, 255)


class Plot:
    """One user's picture. Every call comes from the thread that holds the context; `draw` waits a moment at most."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork, wake: Callable[[], None]) -> None:
        """`wake`: called from a thread when a picture is painted."""
        self.error = ""
        """Why the picture cannot be painted."""
        self.shown: Painting | None = None
        """What the texture holds."""
        self.ms: dict[str, float] = {}
        self._ctx = ctx
        self._work = work
        self._jobs = Jobs("picture", wake)
        self._job: Job[Painting] | None = None
        self._job_of: Sheet | None = None
        self._wanted: Sheet | None = None
        self._framebuffer: moderngl.Framebuffer | None = None
        """Over the texture."""
        self._lifted: tuple[object, ...] = ()
        """The allocations that are lifted in the texture."""

    # -- what is painted -----------------------------------------------------------------------------------------

    def want(self, sheet: Sheet, material: Material) -> None:
        """Have this painted, and take over what is done. Waits for it a moment."""
        self._wanted = sheet
        self._take()
        if self._job_of is not None and (self._job_of.world, self._job_of.colors) != (sheet.world, sheet.colors):
            self._cancel()
        for _ in range(2):  # first an older one may have to be done
            if self.shown is not None and self.shown.sheet == sheet:
                return
            if self._job is None:
                self._job_of = sheet
                self._job = self._jobs.submit(lambda job, before=self.shown: paint(sheet, material, before,
                                                                                   lambda: job.cancelled))
            if not self._job.wait(_AT_ONCE_SOFTWARE_S if self._work.software else _AT_ONCE_S):
                return
            self._take()
            if self.error:
                return

    def _cancel(self) -> None:
        if self._job is not None:
            self._job.cancel()
        self._job = self._job_of = None

    def _take(self) -> None:
        """Upload what is done."""
        job = self._job
        if job is None or not job.done:
            return
        self._job = self._job_of = None
        self.error = job.fault
        if self.error:
            return
        since = time.perf_counter()
        self.shown = job.result()
        size = self.shown.rows.shape[::-1]
        if self._framebuffer is None or self._framebuffer.size != size:
            self._release()
            self._framebuffer = self._ctx.framebuffer([self._ctx.texture(size, 4, alignment=4)])
        self._texture.write(self.shown.rows)
        self._lifted = ()
        self.ms["upload"] = (time.perf_counter() - since) * 1e3
        self.ms["paint"] = self.shown.seconds * 1e3

    @property
    def _texture(self) -> moderngl.Texture:
        assert self._framebuffer is not None
        return self._framebuffer.color_attachments[0]

    @property
    def complete(self) -> bool:
        """True if the wanted picture is shown, or cannot be."""
        return self._wanted is None or bool(self.error) or (
            self.shown is not None and self.shown.sheet == self._wanted)

    def tick(self) -> bool:
        """Return True if drawing again would show more."""
        return self._job.done if self._job is not None else not self.complete

    # -- drawing -------------------------------------------------------------------------------------------------

    def draw(self, framebuffer: moderngl.Framebuffer, window: Window, lifted: tuple[int | None, int | None],
             line: int) -> None:
        """Draw what there is of the world in `window`: as it should be, or what was painted before, stretched.

        lifted: the allocations under the pointer and selected; the second has an outline of `line` pixels.
        """
        painted, rect = self.shown, window.rect
        if painted is None or self._wanted is None or painted.sheet.world != self._wanted.world:
            framebuffer.clear(*BACKGROUND, 1.0, viewport=rect.viewport(framebuffer.height))
            return
        if self._lifted != (*lifted, line):
            self._lift(painted, lifted, line)
        s = painted.sheet
        columns = _span(window.x0, window.step, rect.width, s.x0, s.step, s.width)
        rows = _span(window.y0, window.per_pixel, rect.height, s.low, s.per_pixel, s.height)
        with self._work("timeline", rect.width, rect.height):
            self._copy(framebuffer, rect, columns, rows)

    def _copy(self, framebuffer: moderngl.Framebuffer, rect: Rect, columns: tuple[int, int, int, int],
              rows: tuple[int, int, int, int]) -> None:
        """Copy a part of the texture to a part of the rectangle: much quicker than a shader where the processor
        draws."""
        x, y, w, h = rect.viewport(framebuffer.height)
        if columns[2] > 0 or columns[3] < w or rows[2] > 0 or rows[3] < h:
            framebuffer.clear(*BACKGROUND, 1.0, viewport=(x, y, w, h))
        if columns[0] >= columns[1] or rows[0] >= rows[1]:
            return
        assert self._framebuffer is not None
        gl = GL.current()
        framebuffer.scissor = x, y, w, h
        framebuffer.use()
        gl.glBindFramebuffer(READ_FRAMEBUFFER, self._framebuffer.glo)
        gl.glBindFramebuffer(DRAW_FRAMEBUFFER, framebuffer.glo)
        gl.glBlitFramebuffer(columns[0], rows[0], columns[1], rows[1], x + columns[2], y + rows[2], x + columns[3],
                             y + rows[3], _COLOR_BUFFER_BIT, _NEAREST)
        framebuffer.scissor = None
        framebuffer.use()  # tells moderngl what is bound

    def _lift(self, painted: Painting, lifted: tuple[int | None, int | None], line: int) -> None:
        """Brighten these allocations in the texture, and no others any more."""
        if any(number is not None for number in self._lifted[:2]):
            self._texture.write(painted.rows)
        self._lifted = *lifted, line
        for number, outlined in ((lifted[0], False), (lifted[1], True)):
            if number is None or (outlined is False and number == lifted[1]):
                continue
            ids = painted.canvas.ids[:, ::-1].T[:len(painted.rows)]  # the lowest row first
            mask = ids == number
            columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
            if not len(columns):
                continue
            part = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
            mask, pixels = mask[part], np.ascontiguousarray(painted.rows[part])
            colors = pixels.view(np.uint8).reshape(*pixels.shape, 4)
            share = _OUTLINED if outlined else _LIT
            colors[mask] = np.round(colors[mask] * (1 - share) + 255 * share)
            if outlined:
                around = np.pad(mask, line)
                inner = np.logical_and.reduce([np.roll(around, d, axis) for axis in (0, 1) for d in (-line, line)])
                colors[mask & ~inner[line:-line, line:-line]] = _OUTLINE
            self._texture.write(pixels, (int(columns[0]), int(rows[0]), pixels.shape[1], pixels.shape[0]))

    def moment_at(self, window: Window, px: float) -> int | None:
        """The moment that the column under a point of the screen shows; None while nothing is painted there."""
        painted = self.shown
        if painted is None or self._wanted is None or painted.sheet.world != self._wanted.world:
            return None
        return painted.moment_at(window.x_at(math.floor(px) + 0.5))

    def release(self) -> None:
        """Give back the picture and its texture. Idempotent."""
        self._cancel()
        self.shown = self._wanted = None
        self._release()

    def _release(self) -> None:
        if self._framebuffer is not None:
            self._texture.release()
            self._framebuffer.release()
            self._framebuffer = None


def _span(begin: float, step: float, count: int, first: float, width: float, most: int) -> tuple[int, int, int, int]:
    """Columns of a picture from and to, and the pixels of a window where they lie.

    begin, step, count: of the window's pixels; first, width, most: of the picture's columns.
    """
    low = max(math.floor((begin - first) / width + 1e-3), 0)
    high = min(math.ceil((begin + step * count - first) / width - 1e-3), most)
    return low, high, round((first + low * width - begin) / step), round((first + high * width - begin) / step)
