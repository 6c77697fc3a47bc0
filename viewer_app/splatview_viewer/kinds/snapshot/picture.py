"""The picture of a timeline: what threads paint, uploaded and copied to where it belongs."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.gl.glapi import DRAW_FRAMEBUFFER, GL, READ_FRAMEBUFFER
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.kinds.snapshot.painting import Painting, paint

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.snapshot.painting import Material, Sheet
    from splatview_viewer.kinds.snapshot.state import Range

_COLOR_BUFFER_BIT, _NEAREST = 0x4000, 0x2600
_AT_ONCE_S, _AT_ONCE_SOFTWARE_S = 0.02, 0.07
"""Seconds for which a drawing waits for the picture that it shows: most are there by then. The second where stretching
an older one is the processor's work, and takes as long."""
_LIT, _OUTLINED = 0.30, 0.22
"""Shares of white over the allocation under the pointer, and over the selected one."""
_OUTLINE = (247, 250, 255, 255)


class Picture:
    """One user's picture. Every call comes from the thread that holds the context; `want` waits a moment at most."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork, wake: Callable[[], None]) -> None:
        """`wake`: called from a thread when a picture is painted."""
        self.error = ""
        """The reason why the picture cannot be painted."""
        self.shown: Painting | None = None
        """The painting in the texture."""
        self.texture: moderngl.Texture | None = None
        self._framebuffer: moderngl.Framebuffer | None = None
        """Over the texture."""
        self.ms: dict[str, float] = {}
        self._ctx = ctx
        self._work = work
        self._jobs = Jobs("picture", wake)
        self._job: Job[Painting] | None = None
        self._job_of: Sheet | None = None
        self._wanted: Sheet | None = None
        self._lifted: tuple[int | None, ...] = ()
        """The allocations that are lifted in the texture."""

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
        size = self.shown.rows.shape[1], self.shown.rows.shape[0]
        if self.texture is None or self.texture.size != size:
            self._release()
            self.texture = self._ctx.texture(size, 4, alignment=4)
            self._framebuffer = self._ctx.framebuffer([self.texture])
        self.texture.write(self.shown.rows)
        self._lifted = ()
        self.ms = {"upload": (time.perf_counter() - since) * 1e3, "paint": self.shown.seconds * 1e3}

    @property
    def current(self) -> Painting | None:
        """The painting shown, if it is of the world that is wanted."""
        shown = self.shown
        return shown if shown is not None and self._wanted is not None and (
            shown.sheet.world == self._wanted.world) else None

    @property
    def complete(self) -> bool:
        """True if the wanted picture is shown, or cannot be."""
        return self._wanted is None or bool(self.error) or (
            self.shown is not None and self.shown.sheet == self._wanted)

    def tick(self) -> bool:
        """Return True if drawing again would show more."""
        return self._job.done if self._job is not None else not self.complete

    def lift(self, hovered: int | None, selected: int | None, line: int) -> None:
        """Brighten these allocations, and no others any more; the second gets an outline of `line` pixels."""
        painted, texture = self.shown, self.texture
        if painted is None or texture is None or self._lifted == (hovered, selected, line):
            return
        if any(number is not None for number in self._lifted[:2]):
            texture.write(painted.rows)
        self._lifted = hovered, selected, line
        ids = painted.canvas.ids[:, ::-1].T[:len(painted.rows)]  # the lowest row first
        for number, share in ((hovered if hovered != selected else None, _LIT), (selected, _OUTLINED)):
            mask = ids == number if number is not None else np.zeros((1, 1), bool)
            columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
            if not len(columns):
                continue
            part = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
            mask, pixels = mask[part], np.ascontiguousarray(painted.rows[part])
            colors = pixels.view(np.uint8).reshape(*pixels.shape, 4)
            colors[mask] = np.round(colors[mask] * (1 - share) + 255 * share)
            if share == _OUTLINED:
                around = np.pad(mask, line)
                inner = np.logical_and.reduce([np.roll(around, d, axis) for axis in (0, 1) for d in (-line, line)])
                colors[mask & ~inner[line:-line, line:-line]] = _OUTLINE
            texture.write(pixels, (int(columns[0]), int(rows[0]), pixels.shape[1], pixels.shape[0]))

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect, x: Range, y: Range) -> None:
        """Draw what there is between these places: as it should be, or what was painted before, stretched. A copy is
        much quicker than a shader where the processor draws."""
        shown, own = self.current, self._framebuffer
        if shown is None or own is None:
            return
        s, (left, bottom, width, height) = shown.sheet, rect.viewport(framebuffer.height)
        columns = _span(x, width, s.x0, s.step, s.width)
        rows = _span(y, height, s.low, s.per_pixel, s.height)
        if columns[0] >= columns[1] or rows[0] >= rows[1]:
            return
        gl = GL.current()
        framebuffer.scissor = left, bottom, width, height
        framebuffer.use()
        gl.glBindFramebuffer(READ_FRAMEBUFFER, own.glo)
        gl.glBindFramebuffer(DRAW_FRAMEBUFFER, framebuffer.glo)
        with self._work("timeline", width, height):
            gl.glBlitFramebuffer(columns[0], rows[0], columns[1], rows[1], left + columns[2], bottom + rows[2],
                                 left + columns[3], bottom + rows[3], _COLOR_BUFFER_BIT, _NEAREST)
        framebuffer.scissor = None  # type: ignore[assignment]
        framebuffer.use()  # tells moderngl what is bound

    def release(self) -> None:
        """Give back the picture and its texture. Idempotent."""
        self._cancel()
        self.shown = self._wanted = None
        self._release()

    def _release(self) -> None:
        if self.texture is not None and self._framebuffer is not None:
            self._framebuffer.release()
            self.texture.release()
            self.texture = self._framebuffer = None


def _span(window: Range, pixels: int, first: float, step: float, count: int) -> tuple[int, int, int, int]:
    """The columns of a picture from and to that are in a window, and the pixels of the window where they are.

    first, step, count: of the columns.
    """
    begin, pixel = window[0], (window[1] - window[0]) / pixels
    low = max(math.floor((begin - first) / step + 1e-3), 0)
    high = min(math.ceil((window[1] - first) / step - 1e-3), count)
    return low, high, round((first + low * step - begin) / pixel), round((first + high * step - begin) / pixel)
