"""Pictures of what is shown, for its user to keep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.screen import Rect, settled_pixels
from splatview_viewer.scene_view.film import see_through

if TYPE_CHECKING:
    import moderngl
    import numpy as np

    from splatview_viewer.core.settings import Color, Entry
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.shell.user import User


def keep_picture(
    user: User, entry: Entry, view: ShownView, *, is_transparent: bool
) -> None:
    """Give a user what a view shows, as large as the screen."""
    pixels = None
    if is_transparent:
        with view.view.host.drawing_exactly("scene"):
            screen = user.screen
            pixels = transparent_picture(view, screen.ctx, screen.state.size)
    if pixels is None:
        pixels = _opaque_picture(user, view, is_bare=is_transparent)
    name = f"{entry.name}-{entry.version}"
    if entry.is_file:
        name = Path(entry.name).stem
    try:
        path = user.screen.desktop.keep(pixels, name)
    except ViewerError as e:
        user.catalogue.notice(str(e))
        return
    if path is not None:
        user.say(f"Saved {path}")


def awaits_picture(user: User, view: ShownView) -> bool:
    """Return whether a picture to be kept is on its way from the program that draws it."""
    rect = Rect(0, 0, *user.screen.state.size)
    with view.view.host.drawing_exactly("picture"):
        return view.view.awaits_picture(rect) and not view.view.fault_text


def _opaque_picture(user: User, view: ShownView, *, is_bare: bool) -> np.ndarray:
    """Return what a view shows, (H, W, 3) uint8, top row first.

    is_bare: without what only helps to look at it.
    """
    screen = user.screen

    def draw() -> None:
        view.draw(screen.framebuffer, Rect(0, 0, *screen.state.size))
        user.interface.surface.draw_over(
            screen.framebuffer, view.draw_ui, screen.state.scale
        )

    with view.view.host.drawing_exactly("scene" if is_bare else "picture"):
        return settled_pixels(screen.framebuffer, draw)[..., :3]


def transparent_picture(
    view: ShownView, ctx: moderngl.Context, size: tuple[int, int]
) -> np.ndarray | None:
    """Return a view's picture over no background; None for what covers all of it.

    It is (H, W, 4) uint8, top row first, colours not multiplied by alpha.
    """
    state = view.view.state
    if not hasattr(state, "background"):
        return None
    fields = {}
    if hasattr(state, "alpha"):
        fields["alpha"] = "background"

    def draw(framebuffer: moderngl.Framebuffer, background: Color) -> None:
        view.view.state = replace(state, background=background, **fields)
        view.draw(framebuffer, Rect(0, 0, *size))

    try:
        return see_through(ctx, size, draw)
    finally:
        view.view.state = state
