"""A line over the picture about numbers that look like something else than they are shown as."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from splatview_viewer.geometry.controls import Rect

log = logging.getLogger("splatview")


class Hint(NamedTuple):
    """A doubt about how numbers are shown, and a button that shows them otherwise."""

    choice: Any
    """How to show them."""
    text: str
    button: str


class Hints:
    """Shows a hint to users, each over their picture, and logs it once."""

    def __init__(self) -> None:
        self.hint: Hint | None = None
        self._places: dict[Rect, Rect] = {}
        """Where it lies in each picture."""
        self._told: set[Any] = set()
        self._closed: set[Any] = set()

    def draw(self, rect: Rect, scale: float, name: str) -> bool:
        """Draw inside an imgui frame at the lower edge of a stream's picture; True when the button was pressed."""
        hint = self.hint
        if hint is None or hint.choice in self._closed:
            self._places.clear()
            return False
        if hint.choice not in self._told:
            self._told.add(hint.choice)
            log.warning('%s: %s; press "%s" over the picture', name, hint.text, hint.button)
        from imgui_bundle import ImVec2, imgui

        from splatview_viewer.ui import theme
        from splatview_viewer.ui.widgets import board, colored, fitted

        style, side, pad = imgui.get_style(), round(imgui.get_frame_height()), round(6 * scale)
        rest = imgui.calc_text_size(hint.button).x + side + 2 * (style.frame_padding.x + style.item_spacing.x + pad)
        text = fitted(hint.text, rect.width - rest)
        width, height = min(round(imgui.calc_text_size(text).x + rest + 1), rect.width), side + pad
        place = Rect(rect.x + (rect.width - width) // 2, rect.y + rect.height - height, width, height)
        with board(f"hint {id(self)} {rect.x} {rect.y}", place, (pad, pad / 2), theme.BAR):
            imgui.align_text_to_frame_padding()
            colored(text, theme.TEXT)
            imgui.same_line()
            pressed = imgui.button(hint.button)
            imgui.same_line()
            if imgui.button("\u00d7", ImVec2(side, 0)):
                self._closed.add(hint.choice)
        self._places[rect] = place
        return pressed

    def boards(self, rect: Rect) -> list[Rect]:
        """As `View.boards`."""
        return [self._places[rect]] if rect in self._places else []
