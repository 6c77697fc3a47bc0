"""The list of keys, over the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.shell.overlay import KEYS, draw_help

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.shell.user import User


def draw_key_list(user: User, picture: Rect, scale: float) -> None:
    """Draw the list of keys, those of the view that is shown first."""
    own = user.view.view.keys if user.view is not None else ()
    draw_help(picture, scale, [*own, *KEYS])
