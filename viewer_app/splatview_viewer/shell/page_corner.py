"""The corner of a scene's picture in which a page says who draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.screen import Rect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.shell.user import User

WIDTH = 280.0
HEIGHT = 44.0
"""Points that the words of a page take, with what is free around them."""


def page_corner(user: User) -> Rect | None:
    """Return the part of the first scene's picture that ends where the corner is free.

    None: no scene is shown, there is no room, or the screen is no page.
    """
    if user.screen.interface is None:
        return None
    scale = user.screen.state.scale
    for viewport in user.layout.visible_viewports:
        working = viewport.working()
        if working is None or working.view.empty or not working.view.view.shows_scene:
            continue
        boards = list(user.layout.covered())
        legend = working.view.view.legend_place(viewport.rect, scale)
        if legend is not None:
            boards.append(legend)
        return _above_boards(viewport.rect, boards, scale)
    return None


def words_of_page(user: User) -> list[Rect]:
    """Return where a page says who draws, if it does."""
    corner = page_corner(user)
    if corner is None:
        return []
    scale = user.screen.state.scale
    width = min(round(WIDTH * scale), corner.width)
    height = round(HEIGHT * scale)
    x = corner.x + corner.width - width
    return [Rect(x, corner.y + corner.height - height, width, height)]


def _above_boards(picture: Rect, boards: Sequence[Rect], scale: float) -> Rect | None:
    """Return the upper part of a picture that ends above what lies in its corner.

    None: that leaves no room.
    """
    width = min(round(WIDTH * scale), picture.width)
    height = round(HEIGHT * scale)
    left = picture.x + picture.width - width
    bottom = picture.y + picture.height
    # From below, so that what is raised above one board is compared with the next.
    for board in sorted(boards, key=_bottom_of, reverse=True):
        is_beside = board.x + board.width <= left or board.x >= left + width
        is_apart = _bottom_of(board) <= bottom - height or board.y >= bottom
        if not is_beside and not is_apart:
            bottom = board.y
    free_height = bottom - picture.y
    if free_height < height:
        return None
    return Rect(picture.x, picture.y, picture.width, free_height)


def _bottom_of(board: Rect) -> int:
    return board.y + board.height
