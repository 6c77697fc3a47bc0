"""Choosing Gaussians in the picture: a box, a lasso, a brush, and what is done then."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.events import (
    Key,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.kinds.gaussians import select_panel
from splatview_viewer.kinds.gaussians.filter import Filter
from splatview_viewer.render.region import choose_later
from splatview_viewer.scene.selecting import array_of, mask_of
from splatview_viewer.scene_view.tool import Tool, ToolButton

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event, Mod
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.selection import Mask
    from splatview_viewer.kinds.gaussians.view import GaussianView

SelectMode = Literal["new", "add", "remove"]
"""What becomes of the Gaussians that were chosen before."""
RegionKind = Literal["box", "lasso", "brush"]
BRUSHES = (4.0, 120.0)
"""The smallest and the largest radius of the brush, points."""
_MIN_DRAG = 3.0
"""Points from which a press draws a box or a lasso."""
_MIN_STEP = 2.0
"""Points between two corners of a lasso, or of a brush's line."""


class Select(Tool["GaussianView"]):
    """Holds the chosen Gaussians, and how they are chosen; draws the section "Select"."""

    name: ClassVar[str] = "select"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Select", "B, L, N", "With a box, a lasso, a brush"),
        KeyHelp("Select", "Shift, Ctrl + drag", "Add, take away"),
        KeyHelp("Select", "Escape", "Choose none"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.through = False
        """Gaussians behind others are chosen as well."""
        self.radius = 24.0
        """Of the brush, points."""

    @property
    def mask(self) -> Mask | None:
        """The chosen Gaussians; None: there are none."""
        return self.view.state.selection.chosen

    def _change(self, **masks: Mask | None) -> None:
        self.view.change(selection=replace(self.view.state.selection, **masks))

    def choose(self, mask_found: np.ndarray, mode: SelectMode) -> None:
        """Choose the Gaussians for which (N,) bool is True, in place of others or not."""
        mask = self.mask
        if mask is not None and mask.total == len(mask_found) and mode != "new":
            mask_before = array_of(mask)
            if mode == "add":
                mask_found = mask_before | mask_found
            else:
                mask_found = mask_before & ~mask_found
        elif mode == "remove":
            return
        self._change(chosen=mask_of(mask_found) if mask_found.any() else None)

    def choose_region(self, region: np.ndarray, rect: Rect, mode: SelectMode) -> None:
        """Choose what is seen in a region of the picture, (height, width) bool."""
        camera = self.view.rig.camera(rect)
        if camera is None:
            return
        try:
            scene = self.view.data.renderer.scene()
        except RendererError as error:
            self.view.host.notify(str(error))
            return
        selection = self.view.state.selection
        find = choose_later(scene, camera, region, selection, through=self.through)
        self.choose(find(), mode)

    def choose_none(self) -> None:
        self._change(chosen=None)

    def invert(self) -> None:
        """Choose those that are not chosen."""
        summary = self.view.data.summary
        if summary is None:
            return
        inverse = np.ones(summary.count, bool)
        if self.mask is not None and self.mask.total == summary.count:
            inverse = ~array_of(self.mask)
        self.choose(inverse, "new")

    def hide(self) -> None:
        """Hide the chosen Gaussians."""
        if self.mask is not None:
            self._hide(array_of(self.mask))

    def show_only(self) -> None:
        """Hide all but the chosen Gaussians."""
        if self.mask is not None:
            self._hide(~array_of(self.mask))

    def _hide(self, newly_hidden: np.ndarray) -> None:
        hidden = self.view.state.selection.hidden
        if hidden is not None and hidden.total == len(newly_hidden):
            newly_hidden = newly_hidden | array_of(hidden)
        mask = mask_of(newly_hidden)
        self._change(chosen=None, hidden=mask)
        self.view.host.offer_undo(f"{mask.count:,} Gaussians are hidden")

    def save(self) -> None:
        """Save the chosen Gaussians as a .ply."""
        self.view.tools.of(Filter).save(only_shown=False, chosen_mask=self.mask)

    @property
    def why_none(self) -> str | None:
        """The reason why nothing can be done with the chosen ones; None: it can."""
        if self.mask is None:
            return "no Gaussian is chosen"
        return None

    # -- the methods of tools ------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        is_escape = isinstance(event, Key) and event.name == "escape" and event.pressed
        if is_escape and self.mask is not None:
            self.choose_none()
            return True
        return None

    def tick(self, now: float) -> bool:
        summary = self.view.data.summary
        selection = self.view.state.selection
        masks = [m for m in (selection.chosen, selection.hidden) if m is not None]
        if summary is None or all(mask.total == summary.count for mask in masks):
            return False
        self._change(chosen=None, hidden=None)
        self.view.host.notify(
            "The scene has another number of Gaussians now: none is chosen or hidden"
        )
        return True

    def draw_over(self, rect: Rect, scale: float) -> bool:
        return select_panel.draw_bar(self, rect, scale)

    def covered(self, rect: Rect) -> Sequence[Rect]:
        bar = select_panel.place_bar(self, rect, self.view.host.scale)
        if bar is None:
            return []
        return [bar]

    def sections(self) -> Sequence[Section]:
        section = Section(
            "Select",
            partial(select_panel.draw_panel, self),
            opened=True,
            tip="Choose Gaussians in the picture, to hide or save them",
            tab="data",
            state=select_panel.state_words(self),
        )
        return [section]


class _RegionTool(Tool["GaussianView"]):
    """Draws a region with the pointer, and chooses what is seen in it."""

    kind: ClassVar[RegionKind]

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self._points: list[tuple[float, float]] | None = None
        """Pixels of the screen along the drag; None while there is none."""
        self._mode: SelectMode = "new"
        self._pointer: tuple[float, float] | None = None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        if not self.is_chosen:
            self._points = None
            return None
        match event:
            case PointerPress(button="left", clicks=1) if "alt" not in event.mods:
                self._points = [(event.x, event.y)]
                self._mode = select_mode(event.mods)
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
                points = self._points
                self._points = None
                self._finish(points, rect)
                return True
            case Key(name="escape", pressed=True) if self._points is not None:
                self._points = None
                return True
        return None

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
        select = self.view.tools.of(Select)
        extent = np.ptp(np.array(points), axis=0).max()
        if self.kind != "brush" and extent < _MIN_DRAG * self.view.host.scale:
            if self._mode == "new":
                select.choose_none()
            return
        inside = [(x - rect.x, y - rect.y) for x, y in points]
        radius = select.radius * self.view.host.scale
        region = region_of(self.kind, inside, (rect.width, rect.height), radius)
        select.choose_region(region, rect, self._mode)

    def draw_over(self, rect: Rect, scale: float) -> bool:
        radius = self.view.tools.of(Select).radius * scale
        if self._points is not None:
            select_panel.draw_region(self.kind, self._points, radius, rect, scale)
        if self.is_chosen and self.kind == "brush" and self._pointer is not None:
            select_panel.draw_brush(self._pointer, radius, rect, scale)
        return False


class BoxSelect(_RegionTool):
    """Chooses with a rectangle."""

    name: ClassVar[str] = "box"
    kind = "box"
    button: ClassVar[ToolButton | None] = ToolButton(
        "box", "Select with a box", "B", "Shift adds, Ctrl takes away"
    )


class LassoSelect(_RegionTool):
    """Chooses with a line that is drawn around."""

    name: ClassVar[str] = "lasso"
    kind = "lasso"
    button: ClassVar[ToolButton | None] = ToolButton(
        "lasso", "Select with a lasso", "L", "Shift adds, Ctrl takes away"
    )


class BrushSelect(_RegionTool):
    """Chooses what a circle goes over."""

    name: ClassVar[str] = "brush"
    kind = "brush"
    button: ClassVar[ToolButton | None] = ToolButton(
        "brush", "Select with a brush", "N", "Shift adds, Ctrl takes away"
    )


REGION_TOOLS: tuple[type[_RegionTool], ...] = (BoxSelect, LassoSelect, BrushSelect)


def select_mode(mods: frozenset[Mod]) -> SelectMode:
    if "shift" in mods:
        return "add"
    if "ctrl" in mods:
        return "remove"
    return "new"


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
