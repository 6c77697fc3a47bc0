"""The tools that choose Gaussians by a region of the picture: a box, a lasso, a brush."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from splatview_viewer.core.events import (
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.kinds.gaussians import select_panel
from splatview_viewer.kinds.gaussians.select import Select, SelectMode
from splatview_viewer.scene_view.tool import Tool, ToolButton

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event, Mod
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView

RegionKind = Literal["box", "lasso", "brush"]
_MIN_DRAG = 3.0
"""Points from which a press draws a box or a lasso."""
_MIN_STEP = 2.0
"""Points between two corners of a lasso, or of a brush's line."""
_TIP = "Shift adds, Ctrl takes away, both keep only what is within"


class RegionTool(Tool["GaussianView"]):
    """Draws a region with the pointer, and chooses what is seen in it."""

    kind: ClassVar[RegionKind]

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self._points: list[tuple[float, float]] | None = None
        """Pixels of the screen along the drag; None while there is none."""
        self._mode: SelectMode = "new"
        self._pointer: tuple[float, float] | None = None

    @property
    def _select(self) -> Select:
        return self.view.tools.of(Select)

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if not self.is_chosen:
            self._cancel()
            return None
        match event:
            case PointerPress(button="left", clicks=1) if "alt" not in event.mods:
                self._cancel()
                self._points = [(event.x, event.y)]
                self._mode = select_mode(event.mods, self._select.mode)
                self._select.prepare(rect)
                return True
            case PointerMove():
                self._pointer = (event.x, event.y)
                if self._points is None:
                    # The circle of the brush follows.
                    if self.kind == "brush":
                        return True
                    return None
                self._add((event.x, event.y))
                return True
            case PointerRelease(button="left") if self._points is not None:
                self._finish(self._points, rect)
                self._cancel()
                return True
            case Key(name="escape", pressed=True) if self._points is not None:
                self._cancel()
                return True
        return None

    def _cancel(self) -> None:
        """Forget the region that is being drawn."""
        self._points = None

    def _add(self, point: tuple[float, float]) -> None:
        assert self._points is not None
        if self.kind == "box":
            self._points[1:] = [point]
            return
        last = self._points[-1]
        min_step = _MIN_STEP * self.view.host.scale
        if math.dist(point, last) >= min_step:
            self._points.append(point)

    def _finish(self, points: list[tuple[float, float]], rect: Rect) -> None:
        """Choose what is in the region that was drawn; a click chooses none."""
        extent = np.ptp(np.array(points), axis=0).max()
        if extent < _MIN_DRAG * self.view.host.scale:
            if self._mode == "new":
                self._select.choose_none()
            return
        seen = self._select.seen(rect)
        if seen is not None:
            self._select.choose(seen.inside(self._region(points, rect)), self._mode)

    def _region(self, points: list[tuple[float, float]], rect: Rect) -> np.ndarray:
        """Return the pixels in the region along a drag, (height, width) bool."""
        inside = [(x - rect.x, y - rect.y) for x, y in points]
        radius = self._select.radius * self.view.host.scale
        return region_of(self.kind, inside, (rect.width, rect.height), radius)

    def draw_over(self, rect: Rect, scale: float) -> bool:
        radius = self._select.radius * scale
        if self._points is not None:
            select_panel.draw_region(self.kind, self._points, radius, rect, scale)
        if self.is_chosen and self.kind == "brush" and self._pointer is not None:
            select_panel.draw_brush(self._pointer, radius, rect, scale)
        return False


class BoxSelect(RegionTool):
    """Chooses with a rectangle."""

    name: ClassVar[str] = "box"
    kind = "box"
    button: ClassVar[ToolButton | None] = ToolButton(
        "box", "Select with a box", "B", _TIP
    )


class LassoSelect(RegionTool):
    """Chooses with a line that is drawn around."""

    name: ClassVar[str] = "lasso"
    kind = "lasso"
    button: ClassVar[ToolButton | None] = ToolButton(
        "lasso", "Select with a lasso", "L", _TIP
    )


class BrushSelect(RegionTool):
    """Chooses what a circle goes over, while it goes."""

    name: ClassVar[str] = "brush"
    kind = "brush"
    button: ClassVar[ToolButton | None] = ToolButton(
        "brush", "Select with a brush", "N", _TIP
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self._stroke: np.ndarray | None = None
        """(N,) bool: the Gaussians that the stroke has gone over so far."""
        self._counted_points = 0
        """How many of the stroke's points are in it."""

    def tick(self, now: float) -> bool:
        if self._points is None or len(self._points) == self._counted_points:
            return False
        self._count(self._points, self.view.rig.rect)
        if self._stroke is not None:
            self._select.preview(self._stroke, self._mode)
        return True

    def _count(self, points: list[tuple[float, float]], rect: Rect) -> None:
        """Add to the stroke what its newest points go over."""
        seen = self._select.seen(rect)
        # The line goes on from the last point that was counted.
        new_points = points[max(self._counted_points - 1, 0) :]
        self._counted_points = len(points)
        if seen is None:
            return
        newly_inside = seen.inside(self._region(new_points, rect))
        if self._stroke is None or len(self._stroke) != len(newly_inside):
            self._stroke = newly_inside
        else:
            self._stroke = self._stroke | newly_inside

    def _finish(self, points: list[tuple[float, float]], rect: Rect) -> None:
        if len(points) > self._counted_points:
            self._count(points, rect)
        if self._stroke is not None:
            self._select.choose(self._stroke, self._mode)

    def _cancel(self) -> None:
        super()._cancel()
        if self._counted_points:
            self._select.end_preview()
        self._stroke = None
        self._counted_points = 0


REGION_TOOLS: tuple[type[RegionTool], ...] = (BoxSelect, LassoSelect, BrushSelect)


def select_mode(mods: frozenset[Mod], default: SelectMode) -> SelectMode:
    """Return what keys that are down make of a choice; without any, the default."""
    if "shift" in mods and "ctrl" in mods:
        return "intersect"
    if "shift" in mods:
        return "add"
    if "ctrl" in mods:
        return "remove"
    return default


def region_of(
    kind: RegionKind,
    points: Sequence[tuple[float, float]],
    size: tuple[int, int],
    radius: float,
) -> np.ndarray:
    """Return the pixels of a picture in a region that was drawn, (height, width) bool.

    Args:
        kind: which region.
        points: pixels from the picture's corner: two corners of a box, those of a lasso,
            or the places of a brush.
        size: the picture's width and height.
        radius: of the brush, pixels.
    """
    from PIL import Image, ImageDraw

    image = Image.new("1", size)
    draw = ImageDraw.Draw(image)
    if kind == "lasso":
        draw.polygon(points, fill=1, outline=1)
    elif kind == "box":
        (x0, y0), (x1, y1) = points[0], points[-1]
        corners = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        draw.rectangle(corners, fill=1)
    else:
        width = max(round(2 * radius), 1)
        if len(points) > 1:
            draw.line(points, fill=1, width=width)
        for x, y in points:
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=1)
    return np.array(image)
