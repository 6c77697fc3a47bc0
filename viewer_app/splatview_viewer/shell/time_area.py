"""The time area below the panes: a transport, and a lane each for training and path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.shell.user import User


def draw_time_area(user: User, rect: Rect, scale: float) -> bool:
    """Draw the time area; return True to draw the picture again."""
    with board("time", rect, (10 * scale, 0), theme.BAR):
        pass
    return False
