"""The picture of a timeline: painted by a few threads, uploaded, drawn in its plot."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import moderngl
import numpy as np
from imgui_bundle import ImVec2, imgui, implot

from splatview_viewer.core.jobs import Job, JobQueue
from splatview_viewer.snapshot.timeline.bands import DARK, Grounds, inks_of, peaks
from splatview_viewer.snapshot.timeline.compiled import pool

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from splatview_viewer.kinds.snapshot.world import PlotWorld
    from splatview_viewer.snapshot.analysis.colors import Colors

_WAIT_S = 0.02
"""Seconds for which a drawing waits for the picture that it needs: most are there by then.
Until then the picture before is drawn in its place."""
_HOVERED_WHITE = 0.30
"""Share of white over the allocation under the pointer."""
_SELECTED_WHITE = 0.22
"""Share of white over the selected allocation."""
_OUTLINE = (247, 250, 255, 255)


@dataclass(frozen=True)
class Sheet:
    """A picture to be painted: a part of a world in columns and rows."""

    world: Hashable
    """Pictures of one world show the same things at the same x and y."""
    colors: Hashable
    """Pictures of one world and of these colours look the same where they overlap."""
    x0: float
    """The left edge of the first column."""
    step: float
    """The width of a column."""
    width: int
    """Width in pixels."""
    low: float
    """The byte at which the lowest row begins."""
    per_pixel: float
    """Bytes of a row."""
    height: int
    """Height in pixels."""
    grounds: Grounds = DARK
    """Colours of what holds no allocation."""


@dataclass(frozen=True, eq=False)
class Painting:
    """A painted picture, its lowest row first."""

    sheet: Sheet
    pixels: np.ndarray
    """uint32 (H, W): red, green, blue, alpha."""
    ids: np.ndarray
    """int32 (H, W): the allocation under the centre of each pixel; -1: none."""
    column_moments: np.ndarray
    """int32 (W,): the moment that each column shows."""
    seconds: float

    def pixel_at(self, x: float, y: float) -> tuple[int | None, int | None]:
        """Return the moment and the allocation at a point of the axes; None for none."""
        sheet = self.sheet
        height, width = self.ids.shape
        column = int((x - sheet.x0) // sheet.step)
        row = int((y - sheet.low) // sheet.per_pixel)
        if not 0 <= column < width or self.column_moments[column] < 0:
            return None, None
        event_index = int(self.column_moments[column])
        if not 0 <= row < height or self.ids[row, column] < 0:
            return event_index, None
        return event_index, int(self.ids[row, column])


def paint_sheet(
    sheet: Sheet, world: PlotWorld, colors: Colors, highlighted: np.ndarray | None
) -> Painting:
    """Paint a picture by the threads of `pool()`.

    Args:
        highlighted: allocations that are not dimmed, bool (A,); None for all.
    """
    started_at = time.perf_counter()
    inks = inks_of(colors.classes, colors.palette, highlighted, sheet.grounds)
    x1 = sheet.x0 + sheet.step * sheet.width
    edges = world.axis.edges(sheet.x0, x1, sheet.width)
    column_moments = peaks(world.bands.live, edges)
    shape = (sheet.height, sheet.width)
    pixels = np.empty(shape, np.uint32)
    ids = np.empty(shape, np.int32)
    # Several pieces a thread, since some columns take longer than others.
    piece_width = math.ceil(sheet.width / (4 * pool()._max_workers))

    def paint_piece(first: int) -> None:
        world.painter.layers.paint(
            canvas=(pixels, ids),
            columns=(first, min(first + piece_width, sheet.width)),
            column_moments=column_moments,
            low=sheet.low,
            per_pixel=sheet.per_pixel,
            inks=inks,
            grounds=sheet.grounds,
        )

    list(pool().map(paint_piece, range(0, sheet.width, piece_width)))
    seconds = time.perf_counter() - started_at
    return Painting(sheet, pixels, ids, column_moments, seconds)


class TimelinePicture:
    """One user's picture.

    Every call comes from the thread that holds the OpenGL context; `request` waits a moment
    at most.
    """

    def __init__(self, ctx: moderngl.Context, wake: Callable[[], None]) -> None:
        """Start without a picture.

        Args:
            wake: called from a thread when a picture is painted.
        """
        self.error = ""
        """The reason why the picture cannot be painted."""
        self.painting: Painting | None = None
        """The painting in the texture."""
        self.texture: moderngl.Texture | None = None
        self.ms: dict[str, float] = {}
        """Milliseconds of the last upload and painting."""
        self._ctx = ctx
        self._jobs = JobQueue("picture", wake)
        self._job: Job[Painting] | None = None
        self._requested: Sheet | None = None
        self._brightened: tuple[int | None, int | None] = (None, None)
        """The hovered and the selected allocation in the texture."""

    def request(
        self,
        sheet: Sheet,
        world: PlotWorld,
        colors: Colors,
        highlighted: np.ndarray | None,
    ) -> None:
        """Have a picture painted, and upload what is done. Waits for it a moment."""
        self._requested = sheet
        self._upload_finished()
        is_painted = self.painting is not None and self.painting.sheet == sheet
        if self._job is not None or is_painted:
            return
        self._job = self._jobs.submit(
            lambda job: paint_sheet(sheet, world, colors, highlighted)
        )
        if self._job.wait(_WAIT_S):
            self._upload_finished()

    def _upload_finished(self) -> None:
        """Upload the picture once its job has finished."""
        job = self._job
        if job is None or not job.done:
            return
        self._job = None
        self.error = job.fault
        if self.error:
            return
        started_at = time.perf_counter()
        self.painting = job.result()
        sheet = self.painting.sheet
        texture = self._texture_of_size((sheet.width, sheet.height))
        texture.write(self.painting.pixels)
        self._brightened = (None, None)
        self.ms = {
            "upload": (time.perf_counter() - started_at) * 1e3,
            "paint": self.painting.seconds * 1e3,
        }

    def _texture_of_size(self, size: tuple[int, int]) -> moderngl.Texture:
        """Return the texture, made again if its size changes."""
        if self.texture is not None and self.texture.size == size:
            return self.texture
        if self.texture is not None:
            self.texture.release()
        self.texture = self._ctx.texture(size, 4, alignment=4)
        self.texture.filter = moderngl.NEAREST, moderngl.NEAREST
        return self.texture

    @property
    def current(self) -> Painting | None:
        """The painting in the texture, if it is of the requested world."""
        if self.painting is None or self._requested is None:
            return None
        if self.painting.sheet.world != self._requested.world:
            return None
        return self.painting

    @property
    def complete(self) -> bool:
        """The requested picture is in the texture, or cannot be painted."""
        if self._requested is None or self.error:
            return True
        return self.painting is not None and self.painting.sheet == self._requested

    def tick(self) -> bool:
        """Return True if drawing again would show more."""
        if self._job is not None:
            return self._job.done
        return not self.complete

    def draw(self, hovered: int | None, selected: int | None) -> None:
        """Draw the picture into the open plot; the one before is stretched.

        The hovered and the selected allocation are brighter; the second has an outline.
        """
        painting = self.current
        if painting is None or self.texture is None:
            return
        sheet = painting.sheet
        self.brighten(hovered, selected)
        x1 = sheet.x0 + sheet.width * sheet.step
        y1 = sheet.low + sheet.height * sheet.per_pixel
        implot.plot_image(
            "##picture",
            imgui.ImTextureRef(self.texture.glo),
            implot.Point(sheet.x0, sheet.low),
            implot.Point(x1, y1),
            ImVec2(0, 1),
            ImVec2(1, 0),
        )

    def brighten(self, hovered: int | None, selected: int | None) -> None:
        """Draw these allocations brighter into the texture, and no others."""
        painting = self.painting
        texture = self.texture
        if painting is None or texture is None:
            return
        if self._brightened == (hovered, selected):
            return
        if self._brightened != (None, None):
            texture.write(painting.pixels)
        self._brightened = (hovered, selected)
        if hovered is not None and hovered != selected:
            _brighten(texture, painting, hovered, _HOVERED_WHITE, outline=False)
        if selected is not None:
            _brighten(texture, painting, selected, _SELECTED_WHITE, outline=True)

    def release(self) -> None:
        """Release the picture and its texture. Idempotent."""
        if self._job is not None:
            self._job.cancel()
        self.painting = None
        self._requested = None
        self._job = None
        if self.texture is not None:
            self.texture.release()
            self.texture = None


def _brighten(
    texture: moderngl.Texture,
    painting: Painting,
    allocation: int,
    white: float,
    *,
    outline: bool,
) -> None:
    """Draw one allocation brighter into the texture. white: share of white."""
    mask = painting.ids == allocation
    columns = np.flatnonzero(mask.any(axis=0))
    rows = np.flatnonzero(mask.any(axis=1))
    if not len(columns):
        return
    x = int(columns[0])
    y = int(rows[0])
    bounds = (slice(y, rows[-1] + 1), slice(x, columns[-1] + 1))
    mask = mask[bounds]
    pixels = np.ascontiguousarray(painting.pixels[bounds])
    colors = pixels.view(np.uint8).reshape(*pixels.shape, 4)
    colors[mask] = np.round(colors[mask] * (1 - white) + 255 * white)
    if outline:
        colors[mask & ~_interior(mask)] = _OUTLINE
    height, width = pixels.shape
    texture.write(pixels, (x, y, width, height))


def _interior(mask: np.ndarray) -> np.ndarray:
    """Return the pixels of a mask whose four neighbours are all in it."""
    padded = np.pad(mask, 1)
    ids_above = padded[:-2, 1:-1]
    ids_below = padded[2:, 1:-1]
    left = padded[1:-1, :-2]
    right = padded[1:-1, 2:]
    return ids_above & ids_below & left & right
