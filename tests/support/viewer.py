"""The viewer's loop driven by events as a user would, on a screen in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from splatview_viewer.app.loop import App, step
from splatview_viewer.core.old_view import Adapted
from splatview_viewer.geometry.controls import Rect
from splatview_viewer.kinds.image.view import ImageView
from support.wait import turns

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from splatview_viewer.screens.offscreen import OffscreenScreen

V = TypeVar("V")
SIZE = 900, 520
"""Of the screen, in pixels."""
PICTURE = Rect(280, 0, 620, 494)
"""The part of the screen that panel and status line leave at scale 1."""


class Viewer(App):
    """The application, stepped by the test."""

    screen: OffscreenScreen

    def do(self, *events: Any) -> None:
        """Take in events, and draw until nothing is left to draw."""
        if events:
            self.screen.push(*events)
        step(self)
        for _ in turns("the viewer rests"):
            if not self.seat.dirty:
                return
            step(self)

    def until(self, condition: Callable[[], Any]) -> None:
        """Take turns until `condition` holds, then draw what is left."""
        for _ in turns(f"{condition}, {self.state.entries}"):
            if condition():
                break
            step(self)
        self.do()

    def pixels(self) -> np.ndarray:
        return self.screen.pixels()[..., :3].astype(int)

    def picture(self) -> np.ndarray:
        r = self.seat.layout()
        return self.pixels()[r.y:r.y + r.height, r.x:r.x + r.width]

    @property
    def image(self) -> ImageView:
        slot = self.seat.shown
        assert slot is not None and isinstance(slot.view, Adapted) and isinstance(slot.view.view, ImageView)
        return slot.view.view

    def shows(self, kind: type[V]) -> V | None:
        """Return the view of the active pane, if it is of this class and has something to show."""
        view = self.seat.view
        return view.view if isinstance(view, Adapted) and not view.empty and isinstance(view.view, kind) else None

    def loaded(self) -> bool:
        """Return whether the chosen entry has something to show, or a fault."""
        slot = self.seat.shown
        return all(e.progress is None for e in self.state.entries) and (
            slot is not None and slot.view is not None and (not slot.view.empty or bool(slot.entry.fault)))
