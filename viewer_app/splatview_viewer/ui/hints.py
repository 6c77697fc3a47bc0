"""Hints over pictures: doubts about how numbers are shown, each with a button."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.ui import theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.widgets import colored, fitted

log = logging.getLogger("splatview")


class Hint(NamedTuple):
    """A doubt about how numbers are shown, and a button that shows them otherwise."""

    choice: Any
    """The style that the button sets."""
    text: str
    button: str


class Hints:
    """Shows a hint to users, each over their picture, and logs it once."""

    def __init__(self) -> None:
        self.hint: Hint | None = None
        self._rects: dict[Rect, Rect] = {}
        """The hint's rectangle in each picture."""
        self._logged: set[Any] = set()
        self._closed: set[Any] = set()

    def draw(self, rect: Rect, scale: float, name: str) -> bool:
        """Draw the hint at the lower edge of a stream's picture, inside an imgui frame.

        Args:
            rect: the rectangle of the picture.
            scale: pixels per point.
            name: the name of the stream, for the log.

        Returns:
            True when the button was pressed.
        """
        hint = self.hint
        if hint is None or hint.choice in self._closed:
            self._rects.clear()
            return False
        if hint.choice not in self._logged:
            self._logged.add(hint.choice)
            log.warning(
                '%s: %s; press "%s" over the picture', name, hint.text, hint.button
            )
        style = imgui.get_style()
        side = round(imgui.get_frame_height())
        pad = round(6 * scale)
        margins = 2 * (style.frame_padding.x + style.item_spacing.x + pad)
        buttons_width = imgui.calc_text_size(hint.button).x + side + margins
        text = fitted(hint.text, rect.width - buttons_width)
        text_width = imgui.calc_text_size(text).x
        width = min(round(text_width + buttons_width + 1), rect.width)
        height = side + pad
        hint_rect = Rect(
            rect.x + (rect.width - width) // 2,
            rect.y + rect.height - height,
            width,
            height,
        )
        key = f"hint {id(self)} {rect.x} {rect.y}"
        with board(key, hint_rect, (pad, pad / 2), theme.BAR):
            imgui.align_text_to_frame_padding()
            colored(text, theme.TEXT)
            imgui.same_line()
            pressed = imgui.button(hint.button)
            imgui.same_line()
            if imgui.button("\u00d7", ImVec2(side, 0)):
                self._closed.add(hint.choice)
        self._rects[rect] = hint_rect
        return pressed

    def covered(self, rect: Rect) -> list[Rect]:
        """Return the part of a picture that the hint covers, as `View.covered`."""
        if rect not in self._rects:
            return []
        return [self._rects[rect]]
