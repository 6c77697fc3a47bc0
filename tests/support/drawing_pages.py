"""Pages in a browser that draw published scenes by themselves."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.compare.ties import lead_of
from support.house import House
from support.pages import screenshot

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocket

    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport


class DrawingPage:
    """A page with a scene that it draws, and its messages."""

    def __init__(self, house: House, tab: Page) -> None:
        self.house = house
        self.tab = tab
        self.received_kinds: list[str] = []
        """Kinds of the viewer's messages."""
        self.sent_kinds: list[str] = []
        """Kinds of the page's messages."""
        tab.on("websocket", self._listen)
        tab.reload()
        house.until(self._has_script)

    def _has_script(self) -> bool:
        return self.tab.evaluate("Boolean(window.splatview)")

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", partial(self._note, self.received_kinds))
        socket.on("framesent", partial(self._note, self.sent_kinds))

    def _note(self, kinds: list[str], frame: str | bytes) -> None:
        if isinstance(frame, str):
            kinds.append(json.loads(frame)["t"])

    def forget(self) -> None:
        self.received_kinds.clear()
        self.sent_kinds.clear()

    def until_sent(self, kind: str, count: int = 1) -> None:
        """Wait until so many messages of a kind were sent."""

        def is_sent() -> bool:
            # Only such a call lets the page's events in.
            self.tab.evaluate("0")
            return self.sent_kinds.count(kind) >= count

        self.house.until(is_sent)

    @property
    def user(self) -> User:
        return self.house.app.users[-1]

    @property
    def panes(self) -> list[dict[str, Any]]:
        """The states of the panes."""
        return self.tab.evaluate("splatview.state().drawing?.panes ?? []")

    @property
    def pane(self) -> dict[str, Any]:
        """The state of the first pane."""
        panes = self.panes
        return panes[0] if panes else {"shown": False, "moving": False}

    def is_shown(self) -> bool:
        """Return whether the page draws the first pane."""
        return self.pane["shown"]

    def is_moving(self) -> bool:
        return self.pane["moving"]

    def is_lossless(self) -> bool:
        """Return whether the viewer's picture is shown, and exactly."""
        return not self.is_shown() and self.tab.evaluate("splatview.state().lossless")

    def until_drawn(self) -> None:
        self.house.until(self.is_shown)

    def until_camera_is_known(self) -> None:
        """Wait until the viewer has the page's cameras, and the page shows all."""

        def is_placed() -> bool:
            panes = {pane["number"]: pane for pane in self.panes}
            viewports = self.user.layout.visible_viewports
            return all(
                _is_known(viewport, panes[viewport.number]) for viewport in viewports
            )

        self.house.until(is_placed)

    def picture(self) -> np.ndarray:
        """Return the pane as the user sees it, without the panel and the page's corner."""
        rect = self.user.layout.active.rect
        left = rect.x
        for cover in self.user.layout.covered():
            # The panel, which is drawn bit by bit.
            if cover.x <= left and cover.height >= rect.height:
                left = max(left, cover.x + cover.width)
        pixels = screenshot(self.tab)
        bottom = rect.y + rect.height - 40
        return pixels[rect.y : bottom, left : rect.x + rect.width].astype(float)


def _is_known(viewport: Viewport, page_pane: dict[str, Any]) -> bool:
    """Return whether the viewer has the camera that a page draws with, at rest."""
    shown_view = lead_of(viewport)
    if shown_view is None:
        return False
    view: Any = shown_view.view
    rotation = view.rig.camera().viewmat[:3, :3].ravel()
    is_same = np.allclose(rotation, page_pane["place"]["rotation"], atol=1e-5)
    return is_same and not page_pane["moving"]
