"""The picture of a timeline: painted by a few threads, uploaded, and drawn in its plot."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import moderngl
import numpy as np
from imgui_bundle import ImVec2, imgui, implot

from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.snapshot.timeline.bands import inks_of, peaks
from splatview_viewer.snapshot.timeline.compiled import pool

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.world import PlotWorld
    from splatview_viewer.snapshot.analysis.colors import Colors

_AT_ONCE_S = 0.02
"""Seconds for which a drawing waits for the picture that it shows: most are there by then. The one before is drawn in
its place until then."""
_LIT = 0.30
_OUTLINED = 0.22
"""Shares of white over the allocation under the pointer, and over the selected one."""
_OUTLINE = (247, 250, 255, 255)


@dataclass(frozen=True)
class Sheet:
    """A picture that is wanted: a part of a world in so many columns and rows."""

    world: Hashable
    """Pictures of one world show the same things at the same x and y."""
    colors: Hashable
    """Pictures of one world and of these colours look the same where they show the same."""
    x0: float
    step: float
    """The first column begins at x0; a column is `step` wide."""
    width: int
    low: float
    per_pixel: float
    """The lowest row begins at the byte `low`; a row is `per_pixel` bytes high."""
    height: int


@dataclass(frozen=True, eq=False)
class Painting:
    """A picture that is painted, its lowest row first."""

    sheet: Sheet
    pixels: np.ndarray
    """uint32 (H, W): red, green, blue, alpha."""
    ids: np.ndarray
    """int32 (H, W): the allocation under the centre of each pixel; -1: none."""
    moments: np.ndarray
    """int32 (W,): the moment that each column shows."""
    seconds: float

    def pixel_at(self, x: float, y: float) -> tuple[int | None, int | None]:
        """Return the moment and the allocation that the pixel at a place of the axes shows; None: there is none."""
        s, (height, width) = self.sheet, self.ids.shape
        column = int((x - s.x0) // s.step)
        row = int((y - s.low) // s.per_pixel)
        if not 0 <= column < width or self.moments[column] < 0:
            return None, None
        number = int(self.ids[row, column]) if 0 <= row < height else -1
        return int(self.moments[column]), number if number >= 0 else None


def paint_sheet(
    s: Sheet, world: PlotWorld, colors: Colors, lit: np.ndarray | None
) -> Painting:
    """Paint a picture by the threads of `pool()`. lit: bool (A,), the allocations that are not dimmed; None: all."""
    since = time.perf_counter()
    inks = inks_of(colors.classes, colors.palette, lit)
    moments = peaks(
        world.bands.live, world.axis.edges(s.x0, s.x0 + s.step * s.width, s.width)
    )
    canvas = (
        np.empty((s.height, s.width), np.uint32),
        np.empty((s.height, s.width), np.int32),
    )
    part = -(-s.width // (4 * pool()._max_workers))

    def work(x: int) -> None:
        world.painter.layers.paint(
            canvas, (x, min(x + part, s.width)), moments, s.low, s.per_pixel, inks
        )

    list(pool().map(work, range(0, s.width, part)))
    return Painting(s, *canvas, moments, time.perf_counter() - since)


class TimelinePicture:
    """One user's picture. Every call comes from the thread that holds the context; `want` waits a moment at most."""

    def __init__(self, ctx: moderngl.Context, wake: Callable[[], None]) -> None:
        """`wake`: called from a thread when a picture is painted."""
        self.error = ""
        """The reason why the picture cannot be painted."""
        self.painting: Painting | None = None
        """The painting in the texture."""
        self.texture: moderngl.Texture | None = None
        self.ms: dict[str, float] = {}
        self._ctx = ctx
        self._jobs = Jobs("picture", wake)
        self._job: Job[Painting] | None = None
        self._wanted: Sheet | None = None
        self._lifted: tuple[int | None, ...] = ()
        """The allocations that are lifted in the texture."""

    def request(
        self, sheet: Sheet, world: PlotWorld, colors: Colors, lit: np.ndarray | None
    ) -> None:
        """Have this painted, and take over what is done. Waits for it a moment."""
        self._wanted = sheet
        self._take()
        if self._job is None and (
            self.painting is None or self.painting.sheet != sheet
        ):
            self._job = self._jobs.submit(
                lambda job: paint_sheet(sheet, world, colors, lit)
            )
            if self._job.wait(_AT_ONCE_S):
                self._take()

    def _take(self) -> None:
        """Upload what is done."""
        job = self._job
        if job is None or not job.done:
            return
        self._job = None
        self.error = job.fault
        if self.error:
            return
        since = time.perf_counter()
        self.painting = job.result()
        size = self.painting.sheet.width, self.painting.sheet.height
        if self.texture is None or self.texture.size != size:
            if self.texture is not None:
                self.texture.release()
            self.texture = self._ctx.texture(size, 4, alignment=4)
            self.texture.filter = moderngl.NEAREST, moderngl.NEAREST
        self.texture.write(self.painting.pixels)
        self._lifted = ()
        self.ms = {
            "upload": (time.perf_counter() - since) * 1e3,
            "paint": self.painting.seconds * 1e3,
        }

    @property
    def current(self) -> Painting | None:
        """The painting shown, if it is of the world that is wanted."""
        shown = self.painting
        if (
            shown is not None
            and self._wanted is not None
            and (shown.sheet.world == self._wanted.world)
        ):
            return shown
        return None

    @property
    def complete(self) -> bool:
        """True if the wanted picture is shown, or cannot be."""
        return (
            self._wanted is None
            or bool(self.error)
            or (self.painting is not None and self.painting.sheet == self._wanted)
        )

    def tick(self) -> bool:
        """Return True if drawing again would show more."""
        return self._job.done if self._job is not None else not self.complete

    def draw(self, hovered: int | None, selected: int | None) -> None:
        """Draw what there is into the plot that is open: as it should be, or what was painted before, stretched. These
        allocations are brighter; the second has an outline.
        """
        shown = self.current
        if shown is None or self.texture is None:
            return
        s = shown.sheet
        self.brighten(hovered, selected)
        implot.plot_image(
            "##picture",
            imgui.ImTextureRef(self.texture.glo),
            implot.Point(s.x0, s.low),
            implot.Point(s.x0 + s.width * s.step, s.low + s.height * s.per_pixel),
            ImVec2(0, 1),
            ImVec2(1, 0),
        )

    def brighten(self, hovered: int | None, selected: int | None) -> None:
        """Brighten these allocations in the texture, and no others any more."""
        painted = self.painting
        texture = self.texture
        if painted is None or texture is None or self._lifted == (hovered, selected):
            return
        if any(number is not None for number in self._lifted):
            texture.write(painted.pixels)
        self._lifted = hovered, selected
        for number, share in (
            (hovered if hovered != selected else None, _LIT),
            (selected, _OUTLINED),
        ):
            if number is not None:
                mask = painted.ids == number
            else:
                mask = np.zeros((1, 1), bool)
            columns = np.flatnonzero(mask.any(axis=0))
            rows = np.flatnonzero(mask.any(axis=1))
            if not len(columns):
                continue
            part = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
            mask = mask[part]
            pixels = np.ascontiguousarray(painted.pixels[part])
            colors = pixels.view(np.uint8).reshape(*pixels.shape, 4)
            colors[mask] = np.round(colors[mask] * (1 - share) + 255 * share)
            if share == _OUTLINED:
                around = np.pad(mask, 1)
                inner = np.logical_and.reduce(
                    [np.roll(around, d, axis) for axis in (0, 1) for d in (-1, 1)]
                )
                colors[mask & ~inner[1:-1, 1:-1]] = _OUTLINE
            texture.write(
                pixels,
                (int(columns[0]), int(rows[0]), pixels.shape[1], pixels.shape[0]),
            )

    def release(self) -> None:
        """Give back the picture and its texture. Idempotent."""
        if self._job is not None:
            self._job.cancel()
        self.painting = None
        self._wanted = None
        self._job = None
        if self.texture is not None:
            self.texture.release()
            self.texture = None
