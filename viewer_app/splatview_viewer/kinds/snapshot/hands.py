"""From pointer, wheel, fingers and keys to a look."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.core.events import Key, Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.controls import ZOOM_STEP
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.kinds.snapshot.world import LEAST, LEAST_BYTES, full_y, held, pick, window_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.events import Event
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look, Range
    from splatview_viewer.kinds.snapshot.world import Layout, Window

_PAN = 0.12
"""Of what is seen, by one press of a key."""
_CLICK = 4.0
"""Points that the pointer may move between press and release of a click."""
_STEPS: dict[str, tuple[float, float]] = {
    "a": (-1, 0), "left": (-1, 0), "d": (1, 0), "right": (1, 0),
    "w": (0, 1), "up": (0, 1), "s": (0, -1), "down": (0, -1),
}
_ZOOMS = {"equal": 1, "e": 1, "minus": -1, "q": -1}


class Hands:
    """State of one user's pointer."""

    def __init__(self, moment_at: Callable[[Window, float], int | None]) -> None:
        """`moment_at(window, px)`: the moment that the plot's column there shows, if it is painted."""
        self.scale = 1.0
        """Pixels per point."""
        self.at: tuple[float, float] | None = None
        """Where the pointer is, while it is over the picture."""
        self._moment_at = moment_at
        self._grab: tuple[float, float] | None = None
        self._pressed: tuple[float, float] | None = None
        self._strip = False
        """Whether the hand is on the minimap."""
        self._chosen_before: tuple[int | None, int | None] = (None, None)
        """The allocation and the moment that were chosen before the last click."""

    @property
    def dragging(self) -> bool:
        """True while the picture is being moved."""
        return self._grab is not None and self._pressed is None

    def handle(self, event: Event, layout: Layout, content: Content, look: Look) -> bool:
        """Take a user's event; True when the picture has to be drawn again."""
        match event:
            case PointerMove():
                self.at = event.x, event.y
                return self._move(event.x, event.y, layout, content, look)
            case PointerLeave():
                self.at = None
                return self._point(None, content, look)
            case PointerPress():
                return self._press(event, layout, content, look)
            case PointerRelease():
                return self._release(event, layout, content, look)
            case Wheel():
                return self._wheel(event, layout, content, look)
            case Pinch():
                return self._pinch(event, layout, content, look)
            case Key(pressed=True):
                return not event.mods & {"ctrl", "alt", "super"} and self._key(event, layout, content, look)
        return False

    def look_again(self, layout: Layout, content: Content, look: Look) -> None:
        """Find the allocation under a resting pointer again after the picture has changed."""
        if self.at is not None and self._grab is None and layout.plot is not None and layout.plot.contains(*self.at):
            self._point(self.at, content, look, layout.plot)

    # -- the window ----------------------------------------------------------------------------------------------

    def _show(self, content: Content, look: Look, x: Range | None, y: Range | None) -> bool:
        """See these ranges, as far as they exist; None: leave it."""
        axis, full = content.axis(look.device, look.settings.unit), full_y(content, look)
        if axis is None or full is None:
            return False
        before = look.x, look.y, look.places
        if x is not None:
            look.x = held(x, axis.extent, LEAST[look.settings.unit])
        if y is not None:
            seen = held(y, full, LEAST_BYTES)
            if look.tab == "addresses":
                look.places = seen
            else:
                look.y = seen
        return (look.x, look.y, look.places) != before

    def _zoom(self, window: Window, content: Content, look: Look, at: tuple[float, float],
              factors: tuple[float, float]) -> bool:
        """Magnify around a point of the screen; factors of 1 leave an axis alone."""
        w = window
        x, y = w.x_at(at[0]), w.y_at(at[1])
        fx, fy = factors
        return self._show(content, look, (x - (x - w.x0) / fx, x + (w.x1 - x) / fx) if fx != 1 else None,
                          (y - (y - w.y0) / fy, y + (w.y1 - y) / fy) if fy != 1 else None)

    def _pan(self, window: Window, content: Content, look: Look, dx: float, dy: float) -> bool:
        """The picture follows a drag of (dx, dy) pixels. What is fitted stays so."""
        w = window
        x, y = dx * w.step, dy * w.per_pixel
        return self._show(content, look, (w.x0 - x, w.x1 - x) if dx and look.x is not None else None,
                          (w.y0 + y, w.y1 + y) if dy and look.chosen_y is not None else None)

    # -- events --------------------------------------------------------------------------------------------------

    def _press(self, event: PointerPress, layout: Layout, content: Content, look: Look) -> bool:
        self._strip = layout.minimap is not None and layout.minimap.contains(event.x, event.y)
        if event.clicks == 2 and event.button == "left":
            self._grab = self._pressed = None
            look.selected, look.moment = self._chosen_before  # its first half was a click
            look.fit()
            return True
        if self._strip:
            self._grab, self._pressed = (event.x, event.y), None
            return self._to_strip(event.x, layout, content, look)
        plot, margin = layout.plot, round(70 * self.scale)  # its axes lie beside it
        if plot is not None and Rect(plot.x - margin, plot.y, plot.width + margin, plot.height + margin).contains(
                event.x, event.y):
            self._grab = event.x, event.y
            self._pressed = self._grab if event.button == "left" else None
        return False

    def _move(self, x: float, y: float, layout: Layout, content: Content, look: Look) -> bool:
        if self._grab is None:
            return self._point((x, y) if layout.plot is not None and layout.plot.contains(x, y) else None, content,
                               look, layout.plot)
        if self._pressed is not None:
            if math.dist(self._pressed, (x, y)) <= _CLICK * self.scale:
                return False
            self._pressed = None
        dx, dy = x - self._grab[0], y - self._grab[1]
        self._grab = x, y
        if self._strip:
            return self._to_strip(x, layout, content, look)
        window = window_of(content, look, layout.plot) if layout.plot is not None else None
        return window is not None and self._pan(window, content, look, dx, dy)

    def _release(self, event: PointerRelease, layout: Layout, content: Content, look: Look) -> bool:
        clicked = self._pressed is not None
        self._grab = self._pressed = None
        self._strip = False
        if not clicked or layout.plot is None or not layout.plot.contains(event.x, event.y):
            return False
        self._point((event.x, event.y), content, look, layout.plot)
        self._chosen_before = look.selected, look.moment
        look.select(look.hovered)
        look.moment = look.pointed if look.pointed is not None else look.moment
        return True

    def _point(self, at: tuple[float, float] | None, content: Content, look: Look, plot: Rect | None = None) -> bool:
        """Tell what lies under the pointer."""
        before = look.hovered, look.pointed, at is None
        look.hovered = look.pointed = None
        window = window_of(content, look, plot) if at is not None and plot is not None else None
        if at is not None and window is not None:
            axis = content.axis(look.device, look.settings.unit)
            moment = self._moment_at(window, at[0])
            if moment is None and axis is not None:
                moment = axis.moment(window.x_at(at[0]))
            if moment is not None:
                look.pointed = moment
                found = pick(content, look, moment, window.y_at(at[1]))
                look.hovered = found if found >= 0 else None
            return True  # the cross hair follows the pointer
        return before != (None, None, True)

    def _to_strip(self, x: float, layout: Layout, content: Content, look: Look) -> bool:
        """The window's middle goes where the hand is on the minimap."""
        axis, strip = content.axis(look.device, look.settings.unit), layout.minimap
        if axis is None or strip is None:
            return False
        low, high = axis.extent
        seen = look.x or (low, low + (high - low) / 8)
        middle = low + (x - strip.x) / strip.width * (high - low)
        half = (seen[1] - seen[0]) / 2
        return self._show(content, look, (middle - half, middle + half), None)

    def _wheel(self, event: Wheel, layout: Layout, content: Content, look: Look) -> bool:
        plot, f = layout.plot, ZOOM_STEP ** max(min(event.dy, 8.0), -8.0)
        if layout.minimap is not None and layout.minimap.contains(event.x, event.y):
            axis = content.axis(look.device, look.settings.unit)
            if axis is None:
                return False
            (low, high), (x0, x1) = axis.extent, look.x or axis.extent
            at = low + (event.x - layout.minimap.x) / layout.minimap.width * (high - low)
            at = min(max(at, x0), x1)
            return self._show(content, look, (at - (at - x0) / f, at + (x1 - at) / f), None)
        window = window_of(content, look, plot) if plot is not None else None
        if window is None or plot is None:
            return False
        at = min(max(event.x, plot.x), plot.x + plot.width), min(max(event.y, plot.y), plot.y + plot.height)
        beside = event.x < plot.x, event.y >= plot.y + plot.height
        fx = 1.0 if "ctrl" in event.mods or beside[0] else f
        fy = 1.0 if "shift" in event.mods or beside[1] else f
        moved = self._zoom(window, content, look, at, (fx, fy)) if event.dy else False
        if event.dx:
            moved |= self._pan(window, content, look, -event.dx * plot.width * _PAN / 2, 0)
        if moved:
            self._point(self.at if self.at is not None and plot.contains(*self.at) else None, content, look, plot)
        return moved

    def _pinch(self, event: Pinch, layout: Layout, content: Content, look: Look) -> bool:
        window = window_of(content, look, layout.plot) if layout.plot is not None else None
        if window is None or layout.plot is None:
            return False
        f = min(max(event.factor, 1 / 8), 8.0)
        moved = self._zoom(window, content, look, (event.x - event.dx, event.y - event.dy), (f, f))
        window = window_of(content, look, layout.plot)
        return (window is not None and self._pan(window, content, look, event.dx, event.dy)) or moved

    def _key(self, event: Key, layout: Layout, content: Content, look: Look) -> bool:
        name, plot = event.name, layout.plot
        window = window_of(content, look, plot) if plot is not None else None
        if name in _STEPS and window is not None and plot is not None:
            x, y = _STEPS[name]
            return self._pan(window, content, look, -x * plot.width * _PAN, y * plot.height * _PAN)
        if name in _ZOOMS and window is not None and plot is not None:
            at = self.at if self.at is not None and plot.contains(*self.at) else (
                plot.x + plot.width / 2, plot.y + plot.height / 2)
            f = (ZOOM_STEP ** 2) ** _ZOOMS[name]
            return self._zoom(window, content, look, at, (f, 1.0 if "shift" in event.mods else f))
        match name:
            case "f":
                look.fit()
            case "escape":
                look.clear()
            case "slash":
                look.wants_focus = "search"
            case "m" if (look.pointed if look.pointed is not None else look.moment) is not None:
                look.mark(look.pointed if look.pointed is not None else look.moment)  # type: ignore[arg-type]
            case "home" | "end" if look.x is not None and window is not None:
                far = window.x1 - window.x0 if name == "home" else window.x0 - window.x1
                axis = content.axis(look.device, look.settings.unit)
                low, high = axis.extent if axis is not None else (0.0, 0.0)
                return self._show(content, look, (low, low + far) if far > 0 else (high + far, high), None)
            case _ if name.isdigit() and len(name) == 1 and 1 <= int(name) <= len(TABS):
                look.tab = list(TABS)[int(name) - 1]
            case _:
                return False
        return True
