"""The axes of the world in a corner of the picture; a click looks along one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from viewer_app.events import PointerMove, PointerPress, PointerRelease

if TYPE_CHECKING:
    from viewer_app.controls import Rect
    from viewer_app.events import Event
    from viewer_app.views._gaussians.navigate import Navigate

_RADIUS, _DOT, _MARGIN = 34.0, 8.5, 14.0
"""Points: from the middle to the dots, of a dot, and to the picture's edges."""
_LEAST = 260.0
"""Points of the picture's shorter side below which it is left out."""
_COLORS = (0.90, 0.36, 0.38), (0.45, 0.72, 0.30), (0.30, 0.56, 0.93)
"""Of x, y and z, as everybody paints them; over pictures, so the same in dark and light."""
_AXES = tuple((axis, sign) for axis in range(3) for sign in (1, -1))


class Gizmo:
    """Drawn over the picture of one view."""

    def __init__(self, navigate: Navigate) -> None:
        self._navigate = navigate
        self._over: int | None = None
        """Which of `_AXES` the pointer is over."""
        self._pressed = False

    @property
    def shown(self) -> bool:
        """Whether the user wants it; remembered for the next time."""
        return self._navigate.view.desk.memo.get("axes") is not False

    @shown.setter
    def shown(self, shown: bool) -> None:
        self._navigate.view.desk.memo.put("axes", None if shown else False)

    def _middle(self, rect: Rect) -> tuple[float, float, float] | None:
        """(x, y, pixels per point); None where there is no room, or nothing to be seen."""
        scale = self._navigate.view.desk.scale
        small = min(rect.width, rect.height) < _LEAST * scale
        if small or not self.shown or self._navigate.view.content.facts is None:
            return None
        reach = (_RADIUS + _DOT + _MARGIN) * scale
        return rect.x + rect.width - reach, rect.y + reach, scale

    def _dots(self, middle: tuple[float, float, float]) -> np.ndarray:
        """(6, 3) x and y in pixels and depth, those of `_AXES`."""
        x, y, scale = middle
        ends = self._navigate.view.orbit.rotation @ np.array([np.eye(3)[a] * s for a, s in _AXES]).T
        return np.stack([x + ends[0] * _RADIUS * scale, y + ends[1] * _RADIUS * scale, ends[2]], axis=1)

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
        if middle is None or self._navigate.view.desk.exact:  # pictures to keep are of the scene alone
            return False
        from imgui_bundle import ImVec2, ImVec4, imgui

        from viewer_app import imgui_compat, theme

        draw, dots = imgui.get_background_draw_list(), self._dots(middle)
        at, size = ImVec2(middle[0], middle[1]), _DOT * scale
        if self._over is not None:
            draw.add_circle_filled(at, (_RADIUS + _DOT + 4) * scale, theme.u32(theme.BAR, 0.5), 48)
        with imgui_compat.font_size(11.0):
            for i in np.argsort(-dots[:, 2]):
                (axis, sign), (x, y, depth) = _AXES[i], dots[i]
                near = 0.72 - 0.28 * float(depth)
                color = ImVec4(_COLORS[axis][0], _COLORS[axis][1], _COLORS[axis][2], 1.0)
                to = ImVec2(float(x), float(y))
                if sign > 0:
                    draw.add_line(at, to, theme.u32(color, near), 2.0 * scale)
                    draw.add_circle_filled(to, size, theme.u32(color, near), 20)
                    text = "XYZ"[axis]
                    extent = imgui.calc_text_size(text)
                    draw.add_text(ImVec2(round(to.x - extent.x / 2), round(to.y - extent.y / 2)),
                                  imgui.color_convert_float4_to_u32(ImVec4(0.05, 0.05, 0.06, 0.95)), text)
                else:
                    draw.add_circle_filled(to, size * 0.72, theme.u32(color, 0.35 * near), 20)
                    draw.add_circle(to, size * 0.72, theme.u32(color, 0.9 * near), 20, 1.2 * scale)
                if i == self._over:
                    draw.add_circle(to, size + 2 * scale, theme.u32(ImVec4(1, 1, 1, 1), 0.9), 24, 1.5 * scale)
        return False
