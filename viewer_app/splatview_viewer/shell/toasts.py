"""Short messages at the lower edge of the active pane, some with a button "Undo"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.cards import dark_button, dark_card
from splatview_viewer.shell.commands import named
from splatview_viewer.shell.overlay import text_room
from splatview_viewer.shell.page_corner import words_of_page
from splatview_viewer.ui import lettering, theme
from splatview_viewer.ui.text_cards import card
from splatview_viewer.ui.widgets import lines_of
from splatview_viewer.ui.words import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.settings import State, Toast
    from splatview_viewer.shell.user import User

TOAST_S = 4.0
"""Seconds for which a message is shown."""
_STAYS_S = 1.0
"""Seconds for which it stays once the pointer has left it."""
_MOST_LINES = 6
_GAP = 4.0
"""Points between two messages, and below the last one."""
_BELOW = 16.0
_PAD = 12.0
_HEIGHT = 40.0
"""Points of a message with a button, and of the button's width."""
_BUTTON = 82.0


class Toasts:
    """Draws the messages of one user."""

    def __init__(self) -> None:
        self._drawn_toasts: list[tuple[Toast, Rect]] = []
        """The messages of the last picture."""

    def end_old(self, state: State, now: float) -> bool:
        """Drop messages whose time is over; return whether there were any."""
        count = len(state.toasts)
        current = [toast for toast in state.toasts if now < toast.until]
        latest = now + TOAST_S
        state.toasts = [replace(t, until=min(t.until, latest)) for t in current]
        return len(state.toasts) != count

    def keep_pointed(
        self, state: State, point: tuple[float, float], now: float
    ) -> None:
        """Keep the message that the pointer is over."""
        texts = {
            toast.text for toast, rect in self._drawn_toasts if rect.contains(*point)
        }
        if not texts:
            return
        for index, toast in enumerate(state.toasts):
            if toast.text in texts:
                until = max(toast.until, now + _STAYS_S)
                state.toasts[index] = replace(toast, until=until)

    def draw(self, user: User, scale: float) -> None:
        """Draw the messages, the newest one at the bottom."""
        self._drawn_toasts = []
        picture = user.layout.active.rect
        bottom = picture.y + picture.height - _BELOW * scale
        zones = user.interface.zones
        if zones.form == "phone":
            # Its time strip lies over the lower edge of the picture.
            bottom -= zones.time.height
        if user.state.toasts:
            boards = [*user.layout.active.covered(), *words_of_page(user)]
            bottom = _above_boards(boards, picture, bottom, scale)
        for toast in reversed(user.state.toasts):
            if toast.gesture is not None and user.history.offers(toast.gesture):
                rect = _draw_offer(user, toast, picture, bottom, scale)
            else:
                rect = _draw_words(toast, picture, bottom, scale)
            self._drawn_toasts.append((toast, rect))
            bottom = rect.y - _GAP * scale


def _above_boards(
    boards: Sequence[Rect], picture: Rect, bottom: float, scale: float
) -> float:
    """Return where messages end, so that they lie on none of a view's boards.

    Args:
        boards: what covers the picture: those in the middle of its lower half count.
        picture: the picture.
        bottom: where messages end without them.
        scale: pixels of a point.
    """
    middle = picture.x + picture.width / 2
    for board in boards:
        is_in_the_way = board.x <= middle < board.x + board.width
        is_in_the_way &= board.y > picture.y + picture.height / 2
        if is_in_the_way:
            bottom = min(bottom, board.y - _GAP * scale)
    return bottom


def _draw_words(toast: Toast, picture: Rect, bottom: float, scale: float) -> Rect:
    """Draw a message without a button; return where it is."""
    lines = "\n".join(lines_of(toast.text, text_room(picture, scale), _MOST_LINES))
    return card(
        imgui.get_foreground_draw_list(),
        (picture.x + picture.width / 2, bottom),
        [(lines, theme.INK)],
        (0.5, 1),
        bounds=picture,
        ground=theme.CARD,
        pad=0.65,
    )


def _draw_offer(
    user: User, toast: Toast, picture: Rect, bottom: float, scale: float
) -> Rect:
    """Draw a message with the button that takes back what was done."""
    free_width = text_room(picture, scale) - (_BUTTON + 3 * _PAD) * scale
    (text,) = lines_of(toast.text, max(free_width, 1), 1)
    width = lettering.measure(text).x + (_BUTTON + 3 * _PAD) * scale
    height = _HEIGHT * scale
    x = picture.x + (picture.width - width) / 2
    rect = Rect(round(x), round(bottom - height), round(width), round(height))
    with dark_card("toast", user.layout.active, rect) as opened:
        if not opened:
            return rect
        middle = rect.y + rect.height / 2
        write(text, rect.x + _PAD * scale, middle, theme.INK)
        right = rect.x + rect.width - _PAD / 2 * scale
        button_corner = (right - _BUTTON * scale, middle - 15 * scale)
        if dark_button("Undo", "undo", button_corner, _BUTTON):
            user.do(user.run, named("edit.undo"))
    return rect
