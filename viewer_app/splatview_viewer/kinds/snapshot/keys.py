"""From keys to a state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from splatview_viewer.geometry.controls import ZOOM_STEP
from splatview_viewer.kinds.snapshot.state import TABS

if TYPE_CHECKING:
    from splatview_viewer.core.events import Key
    from splatview_viewer.kinds.snapshot.state import Range, SnapshotState
    from splatview_viewer.kinds.snapshot.world import World

_PAN = 0.12
"""Share of the window that one press of a key moves it."""
_STEPS: dict[str, tuple[float, float]] = {
    "a": (-1, 0), "left": (-1, 0), "d": (1, 0), "right": (1, 0),
    "w": (0, 1), "up": (0, 1), "s": (0, -1), "down": (0, -1),
}
_ZOOMS = {"equal": 1, "e": 1, "minus": -1, "q": -1}


def pressed(state: SnapshotState, event: Key, world: World | None, at: tuple[float, float] | None) -> SnapshotState:
    """Return the state after a key was pressed; `at`: the place of the pointer in the plot."""
    name, moment = event.name, state.moment if state.pointed is None else state.pointed
    if event.mods & {"ctrl", "alt", "super"}:
        return state
    if world is not None and (name in _STEPS or name in _ZOOMS or name in ("home", "end")):
        return _moved(state, event, world, at)
    if name == "f":
        return state.fitted()
    if name == "escape":
        return state.cleared()
    if name == "m" and moment is not None:
        return state.marked(moment)
    if name.isdigit() and len(name) == 1 and 1 <= int(name) <= len(TABS):
        return replace(state, tab=list(TABS)[int(name) - 1])
    return state


def _moved(state: SnapshotState, event: Key, world: World, at: tuple[float, float] | None) -> SnapshotState:
    (x, y), name = world.window(state), event.name
    if name in _STEPS:
        right, up = _STEPS[name]
        return world.showing(state, _shifted(x, right * _PAN), _shifted(y, up * _PAN))
    if name in _ZOOMS:
        f, middle = ZOOM_STEP ** (2 * _ZOOMS[name]), ((x[0] + x[1]) / 2, (y[0] + y[1]) / 2)
        x, y = (magnified(span, place, f) for span, place in zip((x, y), at or middle, strict=True))
        return world.showing(state, x, None if "shift" in event.mods else y)
    (low, high), width = world.axis.extent, x[1] - x[0]
    return world.showing(state, (low, low + width) if name == "home" else (high - width, high))


def _shifted(span: Range, share: float) -> Range:
    step = share * (span[1] - span[0])
    return span[0] + step, span[1] + step


def magnified(span: Range, at: float, factor: float) -> Range:
    """Return the range that is seen after zooming in by a factor at a place."""
    return at - (at - span[0]) / factor, at + (span[1] - at) / factor
