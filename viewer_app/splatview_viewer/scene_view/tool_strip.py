"""The strip of tools over the picture: what a press on the scene does."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.scene_view.protocol import SceneView
from splatview_viewer.scene_view.tool import ORBIT, Tool
from splatview_viewer.ui import controls, icons, theme
from splatview_viewer.ui.boards import board

if TYPE_CHECKING:
    from collections.abc import Sequence

_GROUPS = ((ORBIT, "inspect"), ("box", "lasso", "brush", "crop"))
"""Names of the tools of the strip, from above; a line is between the groups."""
_LEFT = 12.0
_TOP = 14.0
_WIDTH = 38.0
_PAD = 3.0
_BUTTON = 32.0
_GAP = 2.0
_RULE = 7.0
"""Points of the line between two groups, and of the room around it."""
_ROUNDING = 7.0
_MIN_ROOM = 64.0
"""Points that the picture has below the strip, at least."""
_MIN_WIDTH = 240.0
"""Points of the picture's width below which there is no strip."""
_PHONE_EDGE = 8.0
_PHONE_WIDTH = 44.0
_PHONE_BUTTON = 44.0
_PHONE_PAD = 2.0
_PHONE_ROUNDING = 9.0
_CHOSEN_GROUND = ImVec4(0x28 / 255, 0x4A / 255, 0x73 / 255, 1)
_CHOSEN_INK = ImVec4(0xEA / 255, 0xF3 / 255, 1, 1)
_RULE_COLOR = ImVec4(0x34 / 255, 0x39 / 255, 0x43 / 255, 1)
"""Colours over pictures, which are the same in light and dark."""


class ToolStrip(Tool[SceneView]):
    """Chooses one of the view's tools; on a phone it has the three most needed ones."""

    name: ClassVar[str] = "tools"

    def _groups(self) -> list[list[Tool]]:
        """Return the tools of the strip, by groups from above."""
        tools = self.view.tools
        groups: list[list[Tool]] = []
        for names in _GROUPS:
            group = [tools[name] for name in names if name in tools]
            if group:
                groups.append(group)
        return groups

    def _strip_rect(self, rect: Rect) -> Rect | None:
        """Return where the strip lies; None where there is no room, or no choice."""
        host = self.view.host
        if self.view.data.summary is None or host.around == "none":
            return None
        if any(tool.hides_axes for tool in self.view.tools.values()):
            return None
        if host.around == "phone":
            return self._phone_strip_rect(rect)
        groups = self._groups()
        count = sum(len(group) for group in groups)
        if count < 2 or rect.width < _MIN_WIDTH * host.scale:
            return None
        height = 2 * _PAD + count * _BUTTON + (count - 1) * _GAP
        height += (len(groups) - 1) * (_RULE + _GAP)
        if rect.height < (_TOP + height + _MIN_ROOM) * host.scale:
            return None
        return Rect(
            rect.x + round(_LEFT * host.scale),
            rect.y + round(_TOP * host.scale),
            round(_WIDTH * host.scale),
            round(height * host.scale),
        )

    def _phone_strip_rect(self, rect: Rect) -> Rect | None:
        scale = self.view.host.scale
        width = round(_PHONE_WIDTH * scale)
        count = len(self._phone_buttons())
        height = round((count * _PHONE_BUTTON + 2 * _PHONE_PAD) * scale)
        edge = round(_PHONE_EDGE * scale)
        # The time strip lies over the lower edge of the last pane.
        needed_height = height + 3 * edge + round(theme.PHONE_TIME_HEIGHT * scale)
        if rect.height < needed_height or rect.width < 3 * width:
            return None
        x = rect.x + rect.width - width - edge
        return Rect(x, rect.y + edge, width, height)

    def covered(self, rect: Rect) -> Sequence[Rect]:
        strip = self._strip_rect(rect)
        if strip is None:
            return []
        return [strip]

    def draw_over(self, rect: Rect, scale: float) -> bool:
        strip = self._strip_rect(rect)
        if strip is None:
            return False
        is_phone = self.view.host.around == "phone"
        with board(f"tools {id(self)}", strip, color=theme.CLEAR) as opened:
            if not opened:
                return False
            rounding = (_PHONE_ROUNDING if is_phone else _ROUNDING) * scale
            imgui.get_window_draw_list().add_rect_filled(
                ImVec2(strip.x, strip.y),
                ImVec2(strip.x + strip.width, strip.y + strip.height),
                theme.u32(theme.CARD, 0.86 / 0.9),
                rounding,
            )
            with controls.tips_beside(strip.x + strip.width):
                if is_phone:
                    return self._draw_phone(strip, scale)
                return self._draw_groups(strip, scale)

    def _draw_groups(self, strip: Rect, scale: float) -> bool:
        x = strip.x + _PAD * scale
        y = strip.y + _PAD * scale
        is_changed = False
        for group_index, group in enumerate(self._groups()):
            if group_index:
                middle = round(y + _RULE / 2 * scale)
                imgui.get_window_draw_list().add_rect_filled(
                    ImVec2(x + 4 * scale, middle),
                    ImVec2(x + (_BUTTON - 4) * scale, middle + max(round(scale), 1)),
                    theme.u32(_RULE_COLOR),
                )
                y += (_RULE + _GAP) * scale
            for tool in group:
                imgui.set_cursor_screen_pos(ImVec2(x, y))
                size = (_BUTTON * scale, _BUTTON * scale)
                is_changed |= self._draw_tool(tool, size)
                y += (_BUTTON + _GAP) * scale
        return is_changed

    def _draw_tool(self, tool: Tool, size: tuple[float, float]) -> bool:
        """Draw the button of a tool at imgui's cursor; return True if it is chosen now."""
        button = tool.button
        if button is None:
            return False
        tools = self.view.tools
        is_chosen = tools.chosen == tool.name
        is_pressed = _draw_button(f"tool {tool.name}", button.icon, size, on=is_chosen)
        keys = f" ({button.keys})" if button.keys else ""
        controls.tip(f"{button.title}{keys}\n{button.tip}")
        if is_pressed:
            tools.choose(tool.name)
        return is_pressed

    def _phone_buttons(self) -> list[tuple[str, str]]:
        """Return the icons and names of the buttons that a phone has, from above."""
        buttons = [("fit", "tool fit"), ("camera", "tool picture")]
        if "inspect" in self.view.tools:
            buttons.insert(1, ("inspect", "tool inspect"))
        return buttons

    def _draw_phone(self, strip: Rect, scale: float) -> bool:
        """Draw what a phone has: fit, inspect, picture."""
        tools = self.view.tools
        inspects = tools.chosen == "inspect"
        size = ((_PHONE_WIDTH - 2 * _PHONE_PAD) * scale, _PHONE_BUTTON * scale)
        pressed = ""
        for index, (icon, name) in enumerate(self._phone_buttons()):
            on = icon == "inspect" and inspects
            x = strip.x + _PHONE_PAD * scale
            y = strip.y + (_PHONE_PAD + index * _PHONE_BUTTON) * scale
            imgui.set_cursor_screen_pos(ImVec2(x, y))
            if _draw_button(name, icon, size, on=on, points=18):
                pressed = icon
        if pressed == "fit":
            self.view.rig.motion.fly_to_whole_scene()
        elif pressed == "inspect":
            tools.choose(ORBIT if inspects else "inspect")
        elif pressed == "camera":
            self.view.host.keep_picture()
        return bool(pressed)


def _draw_button(
    name: str,
    icon: str,
    size: tuple[float, float],
    *,
    on: bool,
    points: float = icons.SIZE,
) -> bool:
    """Draw a button over the picture at imgui's cursor; return True if it was pressed."""
    item = controls.item(name, *size)
    ink = theme.INK_DIM
    ground = None
    if item.hovered:
        ink = theme.INK
        ground = theme.CARD_HOVERED
    if on:
        ink = _CHOSEN_INK
        ground = _CHOSEN_GROUND
    draw = imgui.get_window_draw_list()
    if ground is not None:
        rounding = theme.FIELD_ROUNDING * theme.scale()
        draw.add_rect_filled(item.low, item.high, theme.u32(ground), rounding)
    icons.draw(draw, icon, item.middle, ink, points)
    return item.pressed
