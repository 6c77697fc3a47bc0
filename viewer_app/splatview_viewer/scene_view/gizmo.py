"""The axes of the world in a corner of the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.scene_view.protocol import SceneView

_RADIUS = 30.0
"""Points from the middle to the dots."""
_DOT = 8.5
"""Points of a dot's radius."""
_HOLLOW = 6.0
"""Points of the radius of a dot at a negative end."""
_FROM_RIGHT = 56.0
"""Points from the middle to the picture's right edge."""
_FROM_TOP = 62.0
"""Points from the middle to the picture's upper edge."""
_PHONE_EDGE = 44.0
"""Points from the middle to the left and upper edge, on a phone."""
_PHONE_SIZE = 0.73
"""Size of the axes on a phone, of that elsewhere."""
_MIN_SIDE = 260.0
"""Points of the picture's shorter side below which the axes are left out."""
_COLORS = (
    ImVec4(0.941, 0.439, 0.478, 1),
    ImVec4(0.482, 0.847, 0.561, 1),
    ImVec4(0.424, 0.690, 1.0, 1),
)
"""Colours of x, y and z; over pictures, so the same in dark and light."""
_LETTER_COLOR = ImVec4(0.05, 0.05, 0.06, 1)
_RING_COLOR = ImVec4(1, 1, 1, 1)
"""Colour of the ring around the dot under the pointer."""


class _HalfAxis(NamedTuple):
    """One direction of an axis, shown as a dot."""

    axis: int
    sign: int

    @property
    def direction(self) -> np.ndarray:
        """Unit vector (3,) in the world."""
        return self.sign * np.eye(3)[self.axis]


_HALF_AXES = tuple(_HalfAxis(axis, sign) for axis in range(3) for sign in (1, -1))
_DIRECTIONS = np.array([half.direction for half in _HALF_AXES])


class _GizmoPlace(NamedTuple):
    """The middle of the axes on the screen."""

    x: float
    y: float
    scale: float
    """Pixels per point."""


class Gizmo:
    """Draws the axes in the upper right corner; a click on a dot looks along an axis."""

    def __init__(self, view: SceneView) -> None:
        self._view = view
        self._hovered: int | None = None
        """The index in `_HALF_AXES` of the dot under the pointer."""
        self._is_pressed = False

    def _find_place(self, rect: Rect) -> _GizmoPlace | None:
        """Return the middle; None where there is no room, or nothing to be seen."""
        scale = self._view.host.scale
        if any(tool.hides_axes for tool in self._view.tools.values()):
            return None
        is_small = min(rect.width, rect.height) < _MIN_SIDE * scale
        if is_small or self._view.data.summary is None:
            return None
        if self._view.host.around == "phone":
            # Its tools are at the right.
            edge = _PHONE_EDGE * scale
            return _GizmoPlace(rect.x + edge, rect.y + edge, scale * _PHONE_SIZE)
        x = rect.x + rect.width - _FROM_RIGHT * scale
        return _GizmoPlace(x, rect.y + _FROM_TOP * scale, scale)

    def _dots(self, gizmo: _GizmoPlace) -> np.ndarray:
        """Return x and y in pixels and depth (6, 3) of the dots of `_HALF_AXES`."""
        dots = _DIRECTIONS @ self._view.rig.orbit.rotation.T
        radius = _RADIUS * gizmo.scale
        return dots * [radius, radius, 1] + [gizmo.x, gizmo.y, 0]

    def _dot_at(self, x: float, y: float, rect: Rect) -> int | None:
        """Return the index of the nearest dot under a pixel; None where none is."""
        gizmo = self._find_place(rect)
        if gizmo is None:
            return None
        extent = (_RADIUS + _DOT) * gizmo.scale
        if max(abs(x - gizmo.x), abs(y - gizmo.y)) > extent:
            return None
        dots = self._dots(gizmo)
        for index in np.argsort(dots[:, 2]):
            distance = np.hypot(*(dots[index, :2] - (x, y)))
            if distance < (_DOT + 2) * gizmo.scale:
                return int(index)
        return None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        """Take presses on a dot, as `Tool.handle`."""
        if isinstance(event, PointerMove) and not self._view.rig.orbit.dragging:
            previous = self._hovered
            self._hovered = self._dot_at(event.x, event.y, rect)
            if previous != self._hovered:
                return True
            return None
        is_press = isinstance(event, PointerPress)
        if is_press and event.button == "left" and not event.mods:
            index = self._dot_at(event.x, event.y, rect)
            if index is not None:
                self._is_pressed = True
                # From the dot's side, towards the middle.
                self._view.rig.motion.fly_along(-_HALF_AXES[index].direction)
                return True
        if isinstance(event, PointerRelease) and self._is_pressed:
            self._is_pressed = False
            return False
        return None

    def draw(self, rect: Rect, scale: float) -> None:
        """Draw the axes with imgui; pictures to keep are of the scene alone."""
        gizmo = self._find_place(rect)
        if gizmo is None or self._view.host.exact:
            return
        scale = gizmo.scale
        draw = imgui.get_background_draw_list()
        middle = ImVec2(gizmo.x, gizmo.y)
        if self._hovered is not None:
            extent = (_RADIUS + _DOT + 4) * scale
            draw.add_circle_filled(middle, extent, theme.u32(theme.BAR, 0.5), 48)
        dots = self._dots(gizmo).tolist()

        def depth_of(index: int) -> float:
            return dots[index][2]

        # Far dots come first, so that near ones lie over them.
        far_to_near = sorted(range(len(dots)), key=depth_of, reverse=True)
        with theme.bold(12.9 * scale / theme.scale()):
            for index in far_to_near:
                x, y, depth = dots[index]
                half = _HALF_AXES[index]
                alpha = 0.85 - 0.15 * depth
                dot = ImVec2(x, y)
                if half.sign > 0:
                    _draw_positive(draw, half.axis, middle, dot, alpha, scale)
                else:
                    _draw_negative(draw, half.axis, dot, alpha, scale)
                if index == self._hovered:
                    ring = theme.u32(_RING_COLOR, 0.9)
                    radius = (_DOT + 2) * scale
                    draw.add_circle(dot, radius, ring, 24, 1.5 * scale)


def _draw_positive(
    draw: imgui.ImDrawList,
    axis: int,
    middle: ImVec2,
    dot: ImVec2,
    alpha: float,
    scale: float,
) -> None:
    """Draw the line from the middle to a dot, and the dot with its letter."""
    color = theme.u32(_COLORS[axis], alpha)
    letter = "XYZ"[axis]
    draw.add_line(middle, dot, color, 2.0 * scale)
    draw.add_circle_filled(dot, _DOT * scale, color, 20)
    size = imgui.calc_text_size(letter)
    corner = ImVec2(round(dot.x - size.x / 2), round(dot.y - size.y / 2))
    draw.add_text(corner, theme.u32(_LETTER_COLOR, 0.95), letter)


def _draw_negative(
    draw: imgui.ImDrawList, axis: int, dot: ImVec2, alpha: float, scale: float
) -> None:
    """Draw the smaller dot at the negative end of an axis."""
    color = _COLORS[axis]
    radius = _HOLLOW * scale
    draw.add_circle_filled(dot, radius, theme.u32(color, 0.13), 20)
    draw.add_circle(dot, radius, theme.u32(color, alpha), 20, 1.3 * scale)
