"""The axes of the world in the lower left corner of the picture; a click looks along one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.gaussians.frustums import Frustums
    from splatview_viewer.kinds.gaussians.navigate import Navigate

_RADIUS, _DOT, _MARGIN = 34.0, 8.5, 14.0
"""Points: from the middle to the dots, of a dot, and to the picture's edges."""
_LEAST = 260.0
"""Points of the picture's shorter side below which it is left out."""
_COLORS = ImVec4(0.90, 0.36, 0.38, 1), ImVec4(0.45, 0.72, 0.30, 1), ImVec4(0.30, 0.56, 0.93, 1)
"""Colours of x, y and z; over pictures, so the same in dark and light."""
_AXES = tuple((axis, sign) for axis in range(3) for sign in (1, -1))
_ENDS = np.array([np.eye(3)[axis] * sign for axis, sign in _AXES]).T
_DARK, _WHITE = ImVec4(0.05, 0.05, 0.06, 1), ImVec4(1, 1, 1, 1)
"""Colours of the letters on them, and of the ring around the one under the pointer."""


class Gizmo:
    """Drawn over the picture of one view."""

    def __init__(self, navigate: Navigate) -> None:
        self._navigate = navigate
        self._over: int | None = None
        """The index in `_AXES` of the one under the pointer."""
        self._pressed = False
        self._letters: tuple[float, list[tuple[float, float]]] = (0.0, [])
        """The scale, and half the extents of X, Y and Z in pixels."""

    @property
    def shown(self) -> bool:
        """True if the user wants it; remembered for the next time."""
        return self._navigate.view.host.memo.get("axes") is not False

    @shown.setter
    def shown(self, shown: bool) -> None:
        self._navigate.view.host.memo.put("axes", None if shown else False)

    def _middle(self, rect: Rect) -> tuple[float, float, float] | None:
        """(x, y, pixels per point); None where there is no room, or nothing to be seen."""
        scale = self._navigate.view.host.scale
        small = min(rect.width, rect.height) < _LEAST * scale
        frustums: Frustums = self._navigate.view.tools["frustums"]  # type: ignore[assignment]
        if frustums.through.index is not None:  # a photograph lies there, and it is known from where one looks
            return None
        if small or not self.shown or self._navigate.view.data.facts is None:
            return None
        reach = (_RADIUS + _DOT + _MARGIN) * scale
        return rect.x + reach, rect.y + rect.height - self._navigate.view.bars_height - reach, scale

    def _dots(self, middle: tuple[float, float, float]) -> np.ndarray:
        """(6, 3) x and y in pixels and depth, those of `_AXES`."""
        x, y, scale = middle
        dots = (self._navigate.view.orbit.rotation @ _ENDS).T
        return dots * [_RADIUS * scale, _RADIUS * scale, 1] + [x, y, 0]

    def _hit(self, x: float, y: float, rect: Rect) -> int | None:
        middle = self._middle(rect)
        if middle is None or max(abs(x - middle[0]), abs(y - middle[1])) > (_RADIUS + _DOT) * middle[2]:
            return None
        dots = self._dots(middle)
        near = [i for i in np.argsort(dots[:, 2]) if np.hypot(*(dots[i, :2] - (x, y))) < (_DOT + 2) * middle[2]]
        return int(near[0]) if near else None

    def handle(self, event: Event, rect: Rect) -> bool | None:
        """As `Tool.handle`: takes presses on a dot."""
        if isinstance(event, PointerMove) and not self._navigate.view.orbit.dragging:
            before, self._over = self._over, self._hit(event.x, event.y, rect)
            return True if before != self._over else None
        if isinstance(event, PointerPress) and event.button == "left" and not event.mods:
            hit = self._hit(event.x, event.y, rect)
            if hit is not None:
                axis, sign = _AXES[hit]
                self._pressed = True
                self._navigate.look_along(-sign * np.eye(3)[axis])  # from there, towards the middle
                return True
        if isinstance(event, PointerRelease) and self._pressed:
            self._pressed = False
            return False
        return None

    def draw(self, rect: Rect, scale: float) -> bool:
        """Draw it with imgui."""
        middle = self._middle(rect)
        if middle is None or self._navigate.view.host.exact:  # pictures to keep are of the scene alone
            return False
        draw, dots = imgui.get_background_draw_list(), self._dots(middle).tolist()
        at, size = ImVec2(middle[0], middle[1]), _DOT * scale
        if self._over is not None:
            draw.add_circle_filled(at, (_RADIUS + _DOT + 4) * scale, theme.u32(theme.BAR, 0.5), 48)
        with theme.font_size(11.0):
            if self._letters[0] != scale:
                self._letters = scale, [(e.x / 2, e.y / 2) for e in map(imgui.calc_text_size, "XYZ")]
            for i in sorted(range(len(dots)), key=lambda i: -dots[i][2]):
                (axis, sign), (x, y, depth) = _AXES[i], dots[i]
                near, color, to = 0.72 - 0.28 * depth, _COLORS[axis], ImVec2(x, y)
                if sign > 0:
                    draw.add_line(at, to, theme.u32(color, near), 2.0 * scale)
                    draw.add_circle_filled(to, size, theme.u32(color, near), 20)
                    half = self._letters[1][axis]
                    draw.add_text(ImVec2(round(x - half[0]), round(y - half[1])), theme.u32(_DARK, 0.95), "XYZ"[axis])
                else:
                    draw.add_circle_filled(to, size * 0.72, theme.u32(color, 0.35 * near), 20)
                    draw.add_circle(to, size * 0.72, theme.u32(color, 0.9 * near), 20, 1.2 * scale)
                if i == self._over:
                    draw.add_circle(to, size + 2 * scale, theme.u32(_WHITE, 0.9), 24, 1.5 * scale)
        return False
