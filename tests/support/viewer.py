"""The viewer's loop driven by events as a user would, on a screen in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from splatview_viewer.app.loop import App
from splatview_viewer.core.events import (
    Key,
    Mods,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.zones import STRIP_HEIGHT, Wishes, place
from support import widgets
from support.wait import clock, polls

V = TypeVar("V")
SIZE = 940, 680
"""Width and height of the screen, in pixels: wide enough for a panel beside the picture."""


def picture_of(size: tuple[int, int], wishes: Wishes | None = None) -> Rect:
    """Return the part of a screen that one pane's picture has at scale 1."""
    panes = place(size, 1.0, wishes or Wishes()).panes
    strip = round(STRIP_HEIGHT)
    return Rect(panes.x, panes.y + strip, panes.width, panes.height - strip)


PICTURE = picture_of(SIZE)
"""The part of the screen that the zones of the interface leave to the picture."""


class Viewer(App):
    """The application, stepped by the test."""

    screen: OffscreenScreen

    def step(self) -> None:
        """Take one turn, with the events that were pushed."""
        self.tick(clock(), self.screen.poll(0))

    def do(self, *events: Any) -> None:
        """Handle events, and draw until nothing is left to draw or to be done."""
        if events:
            self.screen.push(*events)
        calm = 0
        for _ in polls("the viewer rests", pauses=False):
            self.step()
            calm = 0 if self.user.dirty else calm + 1
            if calm == 2:
                return

    def until(self, condition: Callable[[], Any]) -> None:
        """Take turns until `condition` holds, then draw what is left."""
        for _ in polls(f"{condition}, {self.state.entries}"):
            if condition():
                break
            self.step()
        self.do()

    def until_listed(self, *names: str) -> None:
        """Take turns until entries of these names are listed, or any entry."""

        def is_listed() -> bool:
            listed_names = {entry.name for entry in self.state.entries}
            return bool(listed_names) and listed_names.issuperset(names)

        self.until(is_listed)

    def until_refused(self) -> None:
        """Take turns until the active viewport says why it shows no file."""

        def is_refused() -> bool:
            return self.user.layout.active.refusal is not None

        self.until(is_refused)

    def until_run_ended(self) -> None:
        """Take turns until the run of the first entry has ended."""

        def has_ended() -> bool:
            return not self.state.entries[0].alive

        self.until(has_ended)

    def find(self, name: str) -> tuple[int, int]:
        """Draw and return the middle of a widget; `name` as in `widgets.drawn`."""
        widgets.drawn.clear()
        self.user.mark()
        self.do()
        return widgets.middle(name)

    def click(self, name: str, **options: Any) -> None:
        """Click a widget and leave the screen; `options` are those of the press."""
        x, y = self.find(name)
        press = PointerPress(x, y, **options)
        self.do(PointerMove(x, y), press, PointerRelease(x, y), PointerLeave())

    def close(self) -> None:
        """Close the viewer; AssertionError where it leaves an error of OpenGL."""
        if self._closed:
            return
        # Entering the context makes it current.
        with self.screen.ctx:
            error = self.screen.ctx.error
        super().close()
        assert error == "GL_NO_ERROR"

    def pixels(self) -> np.ndarray:
        return self.screen.pixels()[..., :3].astype(int)

    def picture(self) -> np.ndarray:
        r = self.user.layout.active.rect
        return self.pixels()[r.y : r.y + r.height, r.x : r.x + r.width]

    @property
    def image(self) -> ImageView:
        slot = self.user.shown
        assert slot is not None
        assert isinstance(slot.view, ShownView)
        assert isinstance(slot.view.view, ImageView)
        return slot.view.view

    def shows(self, kind: type[V]) -> V | None:
        """Return the view of the active viewport, if it is of this class and not empty."""
        view = self.user.view
        if not isinstance(view, ShownView) or view.empty:
            return None
        if not isinstance(view.view, kind):
            return None
        return view.view

    def until_shows(self, kind: type[V]) -> V:
        """Take turns until the active viewport shows a view of this class; return it."""

        def is_shown() -> bool:
            return self.shows(kind) is not None

        self.until(is_shown)
        view = self.shows(kind)
        assert view is not None
        return view

    def loaded(self) -> bool:
        """Return whether the chosen entry has something to show, or a fault."""
        if any(entry.progress is not None for entry in self.state.entries):
            return False
        slot = self.user.shown
        if slot is None or slot.view is None:
            return False
        return not slot.view.empty or bool(slot.entry.fault)


def press_key(viewer: Viewer, name: str, mods: Mods = frozenset()) -> None:
    """Press and release a key, and draw what it changes."""
    viewer.do(Key(name, mods=mods), Key(name, pressed=False))


def open_pictures(
    open_viewer: Callable[..., Viewer],
    size: tuple[int, int],
    folder: Path,
    *names: str,
) -> Viewer:
    """Open a viewer of black pictures that it writes, of which the first is shown."""
    files = []
    for name in names:
        path = folder / f"{name}.png"
        Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path)
        files.append(path)
    viewer = open_viewer(size, files=tuple(files))
    viewer.until(viewer.loaded)
    viewer.user.select(viewer.state.entries[0].key)
    viewer.until(viewer.loaded)
    return viewer
