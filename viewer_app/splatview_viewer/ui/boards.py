"""Boards: windows of imgui's exactly over a part of the framebuffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.ui import focus, theme
from splatview_viewer.ui.recovery import end_window

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect

SHOWING_FLAGS = (
    imgui.WindowFlags_.no_decoration
    | imgui.WindowFlags_.no_inputs
    | imgui.WindowFlags_.no_nav
    | imgui.WindowFlags_.no_saved_settings
    | imgui.WindowFlags_.no_focus_on_appearing
).value
"""Flags of a window that shows something and takes no input."""
_BOARD_FLAGS = (
    imgui.WindowFlags_.no_decoration
    | imgui.WindowFlags_.no_move
    | imgui.WindowFlags_.no_saved_settings
    | imgui.WindowFlags_.no_bring_to_front_on_focus
    | imgui.WindowFlags_.no_scroll_with_mouse
    | imgui.WindowFlags_.no_focus_on_appearing
).value
_NO_SCROLL_FLAGS = (
    imgui.WindowFlags_.no_scrollbar | imgui.WindowFlags_.no_scroll_with_mouse
).value
_SCROLLED_FLAGS = _BOARD_FLAGS & ~_NO_SCROLL_FLAGS
_WINDOW_PADDING = imgui.StyleVar_.window_padding
_WINDOW_MIN_SIZE = imgui.StyleVar_.window_min_size
_WINDOW_GROUND = imgui.Col_.window_bg
_LEAST_SIZE = ImVec2(1, 1)
_KEPT = (
    imgui.internal.WindowRefreshFlags_.try_to_avoid_refresh
    | imgui.internal.WindowRefreshFlags_.refresh_on_hover
    | imgui.internal.WindowRefreshFlags_.refresh_on_focus
).value


class _Board:
    """A window over a part of the framebuffer; a class, as frames have a dozen."""

    __slots__ = ("_color", "_name", "_pad", "_raised", "_rect", "_scroll", "_stays")

    def __init__(
        self,
        name: str,
        rect: Rect,
        pad: tuple[float, float],
        color: ImVec4 | None,
        scroll: bool,
        raised: bool,
        stays: bool,
    ) -> None:
        self._name = name
        self._rect = rect
        self._pad = pad
        self._color = color
        self._scroll = scroll
        self._raised = raised
        self._stays = stays

    def __enter__(self) -> bool:
        """Open the window; return False if nothing is to be drawn in it."""
        rect = self._rect
        pad_x, pad_y = self._pad
        imgui.set_next_window_pos(ImVec2(rect.x, rect.y))
        imgui.set_next_window_size(ImVec2(max(rect.width, 1), max(rect.height, 1)))
        flags = _BOARD_FLAGS
        if self._scroll:
            # A bar that appears lies in the margin, and nothing becomes narrower.
            imgui.set_next_window_content_size(ImVec2(rect.width - 2 * pad_x, 0))
            flags = _SCROLLED_FLAGS
        if self._stays and _keeps_boards:
            imgui.internal.set_next_window_refresh_policy(_KEPT)
        imgui.push_style_var(_WINDOW_PADDING, ImVec2(pad_x, pad_y))
        imgui.push_style_var(_WINDOW_MIN_SIZE, _LEAST_SIZE)
        imgui.push_style_color(_WINDOW_GROUND, theme.u32(self._color or theme.PANEL))
        is_visible, _ = imgui.begin(f"##{self._name}", None, flags)
        imgui.pop_style_color()
        imgui.pop_style_var(2)
        if self._raised and imgui.is_window_appearing():
            window = imgui.internal.get_current_window_read()
            imgui.internal.bring_window_to_display_front(window)
        focus.current().begin_board(self._name)
        return is_visible

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: object
    ) -> None:
        focus.current().end_board(self._name)
        # Recovery ends it after an exception: what is open in it has to be ended before.
        if kind is None:
            end_window()


def board(
    name: str,
    rect: Rect,
    pad: tuple[float, float] = (0.0, 0.0),
    color: ImVec4 | None = None,
    *,
    scroll: bool = False,
    raised: bool = False,
    stays: bool = False,
) -> _Board:
    """Open a window exactly over a part of the framebuffer.

    Inside it is False if nothing is to be drawn: it cannot be seen, or keeps what was
    drawn in it.

    Args:
        name: for imgui, unlike all others.
        rect: the part, in pixels.
        pad: pixels around what is in it.
        color: of its ground; the panel's without.
        scroll: True if what is in it may be longer.
        raised: True to lie over all other boards, which are behind those before them.
        stays: True if it keeps what was drawn in it where frames say so.
    """
    return _Board(name, rect, pad, color, scroll, raised, stays)


_keeps_boards = False


def keep_boards(keeps: bool) -> None:
    """Have boards that stay keep what was drawn in them, or draw them anew.

    This is called before each frame. What is under the pointer or has the keyboard is
    drawn anew all the same.
    """
    global _keeps_boards
    _keeps_boards = keeps
