"""The section of the panel about who draws a scene: the page, or this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from splatview_viewer.core.view import Section
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.core.screen import SceneDrawing
    from splatview_viewer.core.view import Tab
    from splatview_viewer.shell.viewport import Viewport

_NAMES = {"here": "Here", "there": "There"}
_TIP = (
    "Here: your browser gets the scene and draws it. There: the machine of the viewer "
    "draws, and your browser gets pictures."
)
_HERE_TEXT = "The camera moves without the viewer's machine and without the line."
_THERE_TEXT = "Each move of the camera is a picture from the viewer's machine."


def drawing_sections(viewport: Viewport, tab: Tab) -> list[Section]:
    """Return the section of a tab where a page shows a scene, and none elsewhere."""
    drawing = viewport.user.screen.state.drawing
    view = viewport.view
    if tab != "look" or drawing is None or view is None or not view.view.shows_scene:
        return []
    is_drawn_here = drawing.is_on and not viewport.reason_against_page
    state = "here" if is_drawn_here else "there"
    return [
        Section(
            "Drawing",
            partial(_draw, viewport, drawing),
            opened=True,
            tip="Who draws the scene: your browser, or the machine of the viewer",
            state=state,
        )
    ]


def _draw(viewport: Viewport, drawing: SceneDrawing) -> None:
    """Draw the switch, and below it why it has no effect, or which one."""
    chosen = "here" if drawing.is_on else "there"
    reason_against_here = "" if drawing.is_possible else drawing.reason
    drawer = ui.segments("Draw", _TIP, chosen, _NAMES, (reason_against_here, ""))
    if drawer == "here" and not drawing.is_on:
        viewport.user.screen.desktop.ask("draw_here")
    elif drawer == "there" and drawing.is_on:
        viewport.user.screen.desktop.ask("draw_there")
    ui.wrapped(_text_about(viewport, drawing), theme.DIM)


def _text_about(viewport: Viewport, drawing: SceneDrawing) -> str:
    """Return why the page does not draw, or what follows from who draws."""
    if drawing.is_on:
        return viewport.reason_against_page or _HERE_TEXT
    return drawing.reason or _THERE_TEXT
