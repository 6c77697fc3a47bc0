"""The keyboard's way through the interface.

At the end of a board, Tab goes on to the next one, and F6 goes from board to board.
imgui itself goes round within one window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

_RING = 1.5
"""Points of the line around the focused control."""
_TABBING = imgui.internal.NavMoveFlags_.is_tabbing.value
_NO_SCROLL = 0
_FROM_TABBING = imgui.internal.ActivateFlags_.from_tabbing.value


@dataclass
class _Request:
    """A move to another board."""

    step: int
    """1: to the next board, -1: to the one before."""
    to_last: bool
    """True for the last control of that board, False for its first."""
    tries: int
    """Boards that may still be passed because they have no controls."""
    stays: bool = False
    """True to stay in the board where the focus was."""
    name: str = ""
    """The board that it has come to."""


class Focus:
    """The boards of one imgui context, and the move to another one of them."""

    def __init__(self) -> None:
        self.order: Sequence[str] = ()
        """Beginnings of the names of boards, in the order of the keyboard; others come
        last."""
        self._boards: list[str] = []
        """The boards of this frame."""
        self._sorted_boards: list[str] = []
        """The boards that `_names` was made of."""
        self._names: list[str] = []
        """The boards of the last frame, in order."""
        self._request: _Request | None = None

    @property
    def is_moving(self) -> bool:
        """True if the next frame has to be drawn soon."""
        return self._request is not None

    @property
    def has_focus(self) -> bool:
        """True if a control has a place from which Tab goes on."""
        nav_id = imgui.get_current_context().nav_id
        return bool(nav_id) and self._current() is not None

    def move(self, step: int, *, to_last: bool = False) -> None:
        """Focus the next board (1), or the one before (-1), in the next frame."""
        self._request = _Request(step, to_last, len(self._names))

    def start(self, step: int) -> None:
        """Focus the board that was used last, at its beginning or (-1) at its end."""
        self._request = _Request(step, step < 0, len(self._names), stays=True)

    # -- called by the frame and by boards ------------------------------------------------

    def begin_frame(self) -> None:
        """Carry out a move, before the first board is drawn."""
        if self._boards != self._sorted_boards:
            self._sorted_boards = self._boards
            self._names = sorted(self._boards, key=self._rank)
        self._boards = []
        request = self._request
        if request is None or not self._names:
            return
        if request.name:
            self._request = None
            if imgui.get_current_context().nav_id or request.tries <= 0:
                return
            self._request = request
        self._move(request)

    def _move(self, request: _Request) -> None:
        """Ask imgui for the first or last control of the next board."""
        start = request.name or self._current()
        if request.step > 0:
            index = 0
        else:
            index = -1
        if start in self._names:
            index = self._names.index(start)
            if not request.stays:
                index += request.step
        request.stays = False
        request.name = self._names[index % len(self._names)]
        request.tries -= 1
        window = imgui.internal.find_window_by_name(f"##{request.name}")
        if window is None:
            return
        imgui.internal.focus_window(window)
        context = imgui.get_current_context()
        context.nav_id = 0
        direction = imgui.Dir.none
        imgui.internal.nav_move_request_submit(
            direction, direction, _TABBING, _NO_SCROLL
        )
        tab_step = -1 if request.to_last else 1
        context.nav_tabbing_dir = tab_step
        context.nav_tabbing_counter = tab_step

    def begin_board(self, name: str) -> None:
        """Note a board that is drawn."""
        self._boards.append(name)

    def end_board(self, name: str) -> None:
        """Go on to the next board where imgui would begin at the other end of this one."""
        context = imgui.get_current_context()
        if not context.nav_move_scoring_items or not context.nav_id:
            return
        if not context.nav_move_flags & _TABBING or self._current() != name:
            return
        # Backwards, imgui has stopped scoring if there is a control before.
        direction = context.nav_tabbing_dir
        is_last = context.nav_tabbing_counter == 1
        is_last &= not context.nav_move_result_local.id_
        if direction < 0 or (direction > 0 and is_last):
            imgui.internal.nav_move_request_cancel()
            self.move(direction, to_last=direction < 0)

    def _current(self) -> str | None:
        """Return the name of the board that imgui's focus is in."""
        window = imgui.get_current_context().nav_window
        if window is None:
            return None
        name = window.root_window.name.removeprefix("##")
        if name in self._boards or name in self._names:
            return name
        return None

    def _rank(self, name: str) -> int:
        for rank, prefix in enumerate(self.order):
            if name.startswith(prefix):
                return rank
        return len(self.order)


_focus = Focus()


def use(focus: Focus) -> None:
    """Move through the boards of this imgui context, which is current, from now on."""
    global _focus
    _focus = focus


def current() -> Focus:
    """Return the moves of the current imgui context."""
    return _focus


def keep_tab_from_typing(name: str) -> None:
    """Have Tab only focus the next item; imgui would also let its number be typed."""
    context = imgui.get_current_context()
    if not context.nav_activate_flags & _FROM_TABBING:
        return
    if context.nav_activate_id == imgui.get_id(name):
        context.nav_activate_id = 0


def is_chosen() -> bool:
    """Return whether the keyboard has chosen the last item."""
    is_seen = imgui.get_current_context().nav_cursor_visible
    return bool(is_seen and imgui.is_item_focused())


def arrow_steps() -> int:
    """Return by how many steps the arrows move the last item, with Shift by ten.

    0 unless the keyboard has chosen it.
    """
    if not is_chosen() or imgui.is_item_active():
        return 0
    steps = 0
    for code, direction in (
        (imgui.Key.left_arrow, -1),
        (imgui.Key.right_arrow, 1),
    ):
        # imgui would go to the control beside.
        imgui.internal.set_key_owner(code, imgui.get_item_id())
        if imgui.is_key_pressed(code):
            steps += direction
    if imgui.get_io().key_shift:
        return 10 * steps
    return steps


def draw_ring() -> None:
    """Draw the line around the control that has the keyboard, at the end of a frame."""
    context = imgui.get_current_context()
    window = context.nav_window
    is_seen = context.nav_cursor_visible or imgui.get_io().want_text_input
    if window is None or not context.nav_id or not is_seen:
        return
    if window.flags & imgui.WindowFlags_.no_nav_inputs.value:
        return
    scale = theme.scale()
    rect = context.nav_scoring_rect
    half = _RING * scale / 2
    clip = window.inner_clip_rect
    draw = imgui.get_foreground_draw_list()
    draw.push_clip_rect(clip.min, clip.max)
    draw.add_rect(
        ImVec2(rect.min.x + half, rect.min.y + half),
        ImVec2(rect.max.x - half, rect.max.y - half),
        theme.u32(theme.ACCENT),
        theme.FIELD_ROUNDING * scale,
        _RING * scale,
    )
    draw.pop_clip_rect()
