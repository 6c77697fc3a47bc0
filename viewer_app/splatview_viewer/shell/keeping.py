"""Pictures for the user to keep: what a view shows, without the panel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.old_view import Adapted
from splatview_viewer.core.screen import Rect, settled_pixels

if TYPE_CHECKING:
    import moderngl
    import numpy as np

    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.settings import Color
    from splatview_viewer.shell.seat import Seat


def keep_picture(seat: Seat, transparent: bool = False) -> None:
    """Hand the user what the active pane's view shows, as large as the screen: of images and plots with what is written
    over them, of scenes without what only helps to look at them. Transparent: with nothing behind, and nothing over."""
    screen, found = seat.screen, seat.panes.active.working()
    if found is None or found[1].empty or screen.state.closed:
        return
    slot, view = found

    def draw() -> None:
        view.draw(screen.framebuffer, Rect(0, 0, *screen.state.size))
        seat.panel.draw_over(screen.framebuffer, view.over, screen.state.scale)

    with seat.catalogue.guard(slot):
        view.host.exact = "scene" if transparent else "picture"
        try:
            pixels = transparent_picture(view, screen.ctx, screen.state.size) if transparent else None
            if pixels is None:
                pixels = settled_pixels(screen.framebuffer, draw)[..., :3]
        finally:
            view.host.exact = ""
        entry = slot.entry
        name = Path(entry.name).stem if entry.is_file else f"{entry.name}-{entry.version}"
        try:
            screen.user.keep(pixels, name)
        except ViewerError as e:
            seat.catalogue.notice(str(e))
    seat.mark()


def transparent_picture(view: View, ctx: moderngl.Context, size: tuple[int, int]) -> np.ndarray | None:
    """Return a view's picture over no background: (H, W, 4) uint8, top row first, colours not multiplied by alpha. None
    for what covers all of its background."""
    from splatview_viewer.kinds.gaussians.film import see_through

    kept: Any = view.view.state if isinstance(view, Adapted) else getattr(view, "settings", None)
    if not hasattr(kept, "background"):
        return None
    before, alpha = kept.background, {"alpha": "background"} if hasattr(kept, "alpha") else {}

    def draw(framebuffer: moderngl.Framebuffer, background: Color) -> None:
        if isinstance(view, Adapted):
            view.view.state = replace(kept, background=background, **alpha)
        else:
            kept.background = background
        view.draw(framebuffer, Rect(0, 0, *size))

    try:
        return see_through(ctx, size, draw)
    finally:
        if isinstance(view, Adapted):
            view.view.state = kept
        else:
            kept.background = before
