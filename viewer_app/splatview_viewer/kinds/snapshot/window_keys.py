"""Keys that move the window of the plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.geometry.pan_zoom import ZOOM_STEP
from splatview_viewer.kinds.snapshot.world import zoom_range

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.state import SnapshotState
    from splatview_viewer.kinds.snapshot.world import PlotWorld

_PAN = 0.12
"""Share of the window that one press of a key moves it."""


class WindowMove(NamedTuple):
    """A key's effect on the window of the plot."""

    right: int = 0
    up: int = 0
    zoom: int = 0


MOVES = {
    "a": WindowMove(right=-1),
    "left": WindowMove(right=-1),
    "d": WindowMove(right=1),
    "right": WindowMove(right=1),
    "w": WindowMove(up=1),
    "up": WindowMove(up=1),
    "s": WindowMove(up=-1),
    "down": WindowMove(up=-1),
    "e": WindowMove(zoom=1),
    "equal": WindowMove(zoom=1),
    "q": WindowMove(zoom=-1),
    "minus": WindowMove(zoom=-1),
    "home": WindowMove(),
    "end": WindowMove(),
}
"""Keys that move the window."""


def move_window(
    world: PlotWorld,
    state: SnapshotState,
    key: str,
    pointer: tuple[float, float] | None,
    *,
    along_x: bool,
) -> SnapshotState:
    """Return the state with the window moved as a key says.

    Args:
        world: axes and layers of the plot.
        state: the present state.
        key: one of MOVES.
        pointer: on both axes, the point that zooming keeps in place; None: the middle.
        along_x: the axis of bytes stays as it is.
    """
    x, y = world.window(state)
    center_x = (x[0] + x[1]) / 2
    center_y = (y[0] + y[1]) / 2
    if pointer is not None:
        center_x, center_y = pointer
    move = MOVES[key]
    factor = ZOOM_STEP ** (2 * move.zoom)
    x = zoom_range(_shifted(x, move.right), center_x, factor)
    y = zoom_range(_shifted(y, move.up), center_y, factor)
    low, high = world.axis.extent
    width = x[1] - x[0]
    if key == "home":
        x = (low, low + width)
    elif key == "end":
        x = (high - width, high)
    if along_x:
        return world.with_window(state, x)
    return world.with_window(state, x, y)


def _shifted(span: tuple[float, float], steps: int) -> tuple[float, float]:
    """Return a range moved by some presses of a key."""
    low, high = span
    shift = steps * _PAN * (high - low)
    return low + shift, high + shift
