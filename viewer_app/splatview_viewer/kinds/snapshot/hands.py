"""From pointer, wheel, fingers and keys to a state."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.events import Key, Pinch, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.controls import ZOOM_STEP
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.kinds.snapshot.world import LEAST, LEAST_BYTES, held

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.kinds.snapshot.state import Range
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.kinds.snapshot.world import Layout, World

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
    """The pointer of one user over a plot and its minimap."""

    def __init__(self, view: SnapshotView) -> None:
        self.at: tuple[float, float] | None = None
        """The place of the pointer, while it is over the picture."""
        self._view = view
        self._grab: tuple[float, float] | None = None
        self._pressed: tuple[float, float] | None = None
        self._strip = False
        """The hand is on the minimap."""
        self._chosen_before: tuple[int | None, int | None] = (None, None)
        """The allocation and the moment that were chosen before the last click."""

    @property
    def dragging(self) -> bool:
        """True while the picture is being moved."""
        return self._grab is not None and self._pressed is None

    def handle(self, event: Event, layout: Layout) -> bool:
        """Take a user's event; True when the picture has to be drawn again though the state is the same."""
        world = self._view.world()
        if isinstance(event, Key):
            if event.pressed and not event.mods & {"ctrl", "alt", "super"}:
                self._key(event, layout.plot, world)
            return False
        if isinstance(event, PointerMove):
            self.at = event.x, event.y
        elif isinstance(event, PointerLeave):
            self.at = None
        if world is None:
            return False
        match event:
            case PointerMove():
                self._move(event.x, event.y, layout, world)
            case PointerPress():
                self._press(event, layout, world)
            case PointerRelease():
                self._release(event, layout, world)
            case Wheel() if layout.minimap is not None and layout.minimap.contains(event.x, event.y):
                self._wheel_over_strip(event, layout.minimap, world)
            case Wheel() if layout.plot is not None:
                self._wheel(event, layout.plot, world)
            case Pinch() if layout.plot is not None:
                f = min(max(event.factor, 1 / 8), 8.0)
                self._zoom(world, layout.plot, (event.x - event.dx, event.y - event.dy), (f, f))
                self._pan(world, layout.plot, event.dx, event.dy)
        self.point(layout.plot, world)
        return isinstance(event, PointerMove) and self._view.state.pointed is not None  # the cross hair goes along

    def point(self, plot: Rect | None, world: World) -> None:
        """Tell what lies under the pointer."""
        view, at = self._view, self.at
        hovered = pointed = None
        if at is not None and plot is not None and plot.contains(*at) and not self.dragging:
            window = world.window(view.state, plot)
            pointed = view.picture.moment_at(window, at[0])
            if pointed is None:
                pointed = world.axis.moment(window.x_at(at[0]))
            hovered = world.pick(pointed, window.y_at(at[1]))
        view.see(hovered=hovered, pointed=pointed)

    # -- the window ----------------------------------------------------------------------------------------------

    def _show(self, world: World, x: Range | None, y: Range | None = None) -> None:
        """See these ranges, as far as they exist; None: leave it."""
        state = self._view.state
        changes: dict[str, Any] = {}
        if x is not None:
            changes["x"] = held(x, world.axis.extent, LEAST[state.style.unit])
        if y is not None:
            changes["places" if state.tab == "addresses" else "y"] = held(y, world.full, LEAST_BYTES)
        self._view.see(**changes)

    def _zoom(self, world: World, plot: Rect, at: tuple[float, float], factors: tuple[float, float]) -> None:
        """Magnify around a point of the screen; factors of 1 leave an axis alone."""
        w, (fx, fy) = world.window(self._view.state, plot), factors
        x, y = w.x_at(at[0]), w.y_at(at[1])
        self._show(world, (x - (x - w.x0) / fx, x + (w.x1 - x) / fx) if fx != 1 else None,
                   (y - (y - w.y0) / fy, y + (w.y1 - y) / fy) if fy != 1 else None)

    def _pan(self, world: World, plot: Rect, dx: float, dy: float) -> None:
        """The picture follows a drag of (dx, dy) pixels. What is fitted stays so."""
        state = self._view.state
        w, y = world.window(state, plot), state.places if state.tab == "addresses" else state.y
        right, up = dx * w.step, dy * w.per_pixel
        self._show(world, (w.x0 - right, w.x1 - right) if dx and state.x is not None else None,
                   (w.y0 + up, w.y1 + up) if dy and y is not None else None)

    # -- events --------------------------------------------------------------------------------------------------

    def _press(self, event: PointerPress, layout: Layout, world: World) -> None:
        view, plot = self._view, layout.plot
        self._strip = layout.minimap is not None and layout.minimap.contains(event.x, event.y)
        if event.clicks == 2 and event.button == "left":
            self._grab = self._pressed = None
            selected, moment = self._chosen_before  # its first half was a click
            view.state = replace(view.state.fitted(), selected=selected, moment=moment)
        elif self._strip:
            self._grab, self._pressed = (event.x, event.y), None
            self._to_strip(event.x, layout, world)
        elif plot is not None:
            margin = round(70 * view.scale)  # its axes lie beside it
            if Rect(plot.x - margin, plot.y, plot.width + margin, plot.height + margin).contains(event.x, event.y):
                self._grab = event.x, event.y
                self._pressed = self._grab if event.button == "left" else None

    def _move(self, x: float, y: float, layout: Layout, world: World) -> None:
        if self._grab is None:
            return
        if self._pressed is not None:
            if math.dist(self._pressed, (x, y)) <= _CLICK * self._view.scale:
                return
            self._pressed = None
        dx, dy = x - self._grab[0], y - self._grab[1]
        self._grab = x, y
        if self._strip:
            self._to_strip(x, layout, world)
        elif layout.plot is not None:
            self._pan(world, layout.plot, dx, dy)

    def _release(self, event: PointerRelease, layout: Layout, world: World) -> None:
        clicked, view = self._pressed is not None, self._view
        self._grab = self._pressed = None
        self._strip = False
        if clicked and layout.plot is not None and layout.plot.contains(event.x, event.y):
            self.at = event.x, event.y
            self.point(layout.plot, world)
            state = view.state
            self._chosen_before = state.selected, state.moment
            view.see(selected=state.hovered, moment=state.moment if state.pointed is None else state.pointed)

    def _to_strip(self, x: float, layout: Layout, world: World) -> None:
        """The window's middle goes where the hand is on the minimap."""
        strip, (low, high) = layout.minimap, world.axis.extent
        if strip is not None:
            seen = self._view.state.x or (low, low + (high - low) / 8)
            middle, half = low + (x - strip.x) / strip.width * (high - low), (seen[1] - seen[0]) / 2
            self._show(world, (middle - half, middle + half))

    def _wheel_over_strip(self, event: Wheel, strip: Rect, world: World) -> None:
        (low, high), (x0, x1) = world.axis.extent, self._view.state.x or world.axis.extent
        at = min(max(low + (event.x - strip.x) / strip.width * (high - low), x0), x1)
        f = _factor(event)
        self._show(world, (at - (at - x0) / f, at + (x1 - at) / f))

    def _wheel(self, event: Wheel, plot: Rect, world: World) -> None:
        at = min(max(event.x, plot.x), plot.x + plot.width), min(max(event.y, plot.y), plot.y + plot.height)
        beside, below = event.x < plot.x, event.y >= plot.y + plot.height
        f = _factor(event)
        self._zoom(world, plot, at, (1.0 if "ctrl" in event.mods or beside else f,
                                     1.0 if "shift" in event.mods or below else f))
        if event.dx:
            self._pan(world, plot, -event.dx * plot.width * _PAN / 2, 0)

    def _key(self, event: Key, plot: Rect | None, world: World | None) -> None:
        view, name, state = self._view, event.name, self._view.state
        if (name in _STEPS or name in _ZOOMS or name in ("home", "end")) and world is not None and plot is not None:
            self._key_of_window(event, plot, world)
            return
        moment = state.moment if state.pointed is None else state.pointed
        match name:
            case "f":
                view.state = state.fitted()
            case "escape":
                view.state = state.cleared()
            case "slash":
                view.focus = True
            case "m" if moment is not None:
                view.state = state.marked(moment)
            case _ if name.isdigit() and len(name) == 1 and 1 <= int(name) <= len(TABS):
                view.see(tab=list(TABS)[int(name) - 1])

    def _key_of_window(self, event: Key, plot: Rect, world: World) -> None:
        name, x = event.name, self._view.state.x
        if name in _STEPS:
            right, up = _STEPS[name]
            self._pan(world, plot, -right * plot.width * _PAN, up * plot.height * _PAN)
        elif name in _ZOOMS:
            at = self.at if self.at is not None and plot.contains(*self.at) else (
                plot.x + plot.width / 2, plot.y + plot.height / 2)
            f = (ZOOM_STEP ** 2) ** _ZOOMS[name]
            self._zoom(world, plot, at, (f, 1.0 if "shift" in event.mods else f))
        elif x is not None:
            (low, high), width = world.axis.extent, x[1] - x[0]
            self._show(world, (low, low + width) if name == "home" else (high - width, high))


def _factor(event: Wheel) -> float:
    return ZOOM_STEP ** max(min(event.dy, 8.0), -8.0)
