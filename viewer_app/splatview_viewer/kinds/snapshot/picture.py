"""The picture of a timeline: what threads paint, uploaded and drawn in its plot."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import moderngl
import numpy as np
from imgui_bundle import ImVec2, imgui, implot

from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.kinds.snapshot.painting import Painting, paint

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.snapshot.painting import Material, Sheet

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
            self.texture.filter = moderngl.NEAREST, moderngl.NEAREST
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

    def draw(self) -> None:
        """Draw what there is into the plot that is open: as it should be, or what was painted before, stretched."""
        shown = self.current
        if shown is not None and self.texture is not None:
            s = shown.sheet
            implot.plot_image("##picture", imgui.ImTextureRef(self.texture.glo), implot.Point(s.x0, s.low),
                              implot.Point(s.x0 + s.width * s.step, s.low + s.height * s.per_pixel),
                              ImVec2(0, 1), ImVec2(1, 0))

    def release(self) -> None:
        """Give back the picture and its texture. Idempotent."""
        self._cancel()
        self.shown = self._wanted = None
        self._release()

    def _release(self) -> None:
        if self.texture is not None:
            self.texture.release()
            self.texture = None

