"""Pictures for the user to keep: what a view shows, without the panel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from viewer_app.controls import Rect
from viewer_app.errors import ViewerError

if TYPE_CHECKING:
    from viewer_app.seat import Seat


def keep_picture(seat: Seat) -> None:
    """Hand the user what the active pane's view shows, as large as the screen."""
    pane, screen = seat.panes.active, seat.screen
    found = pane.working()
    if found is None or found[1].empty:
        return
    slot, view = found
    with seat.catalogue.guard(slot):
        view.desk.exact = True
        try:
            view.draw(screen.framebuffer, Rect(0, 0, *screen.size))
        finally:
            view.desk.exact = False
        if seat.panel is not None:
            seat.panel.draw_over(screen.framebuffer, view.over, screen.scale)
        entry = slot.entry
        name = Path(entry.name).stem if entry.is_file else f"{entry.name}-{entry.version}"
        try:
            screen.keep(screen.pixels()[..., :3], name)
        except ViewerError as e:
            seat.notice(str(e))
    seat.mark()
