"""A viewer that only browsers see, and its pages, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np

from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.core.screen import read_pixels
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.user import User
from splatview_viewer.web.browsers import Browsers
from support.browser_rig import decoded, parts_of
from support.wait import polls
from support.web_clients import Image, Page


class House:
    """The viewer, driven by the test, and its pages. A context manager."""

    def __init__(self, *files: Path, **options: Any) -> None:
        screen = OffscreenScreen(700, 400)
        self.browsers = Browsers(screen.ctx, screen.wake, port=0)
        options = {"watched": False, "max_fps": 200, **options}
        self.app = App(
            screen, AppOptions(files=files, **options), browsers=self.browsers
        )
        self.users: dict[Page, User] = {}
        self.keys: dict[Page, str] = {}
        """Key of each page, with which it may send files."""
        self._newest: dict[Page, Image] = {}
        self._interfaces: dict[Page, np.ndarray] = {}

    def page(
        self, width: int = 900, height: int = 520, scale: float = 1.0, *, id: str = ""
    ) -> Page:
        """Connect one more page, and wait until it has a user."""
        page = Page(self.browsers.server.port, acks=True)
        # The page is noted at once, to be closed with the others whatever happens.
        self.users[page] = None  # type: ignore[assignment]
        page.connect(token=self.browsers.server.token)
        count = len(self.app.users)
        name = id or f"page{len(self.users)}"
        self.keys[page] = page.greet(width, height, scale, id=name).key
        self.until(lambda: len(self.app.users) > count)
        self.users[page] = self.app.users[-1]
        return page

    def until(self, condition: Callable[[], Any]) -> None:
        """Take turns until `condition` holds."""
        for _ in polls("the viewer's state", pauses=False):
            if condition():
                return
            step(self.app)

    def until_user(self) -> User:
        """Take turns until there is a user, and return the first."""

        def has_user() -> bool:
            return bool(self.app.users)

        self.until(has_user)
        return self.app.users[0]

    def newest(self, page: Page) -> Image | None:
        """Return the last picture that has come."""
        while (picture := page.next_picture()) is not None:
            self._newest[page] = picture
        return self._newest.get(page)

    def final_picture(self, page: Page) -> np.ndarray:
        """Wait until a page has its last picture without loss, and the interface.

        Returns:
            What it shows then, (H, W, 3) int.
        """
        user = self.users[page]

        def has_final() -> bool:
            interface_pixels = self.interface(page)
            newest = self.newest(page)
            if (
                newest is None
                or interface_pixels is None
                or not newest.lossless
                or user.waiting
            ):
                return False
            drawn = read_pixels(user.screen.framebuffer)[..., :3]
            x, y, width, height = newest.box
            pane_pixels = drawn[y : y + height, x : x + width]
            return np.array_equal(decoded(newest), pane_pixels)

        self.until(has_final)
        picture = self._newest[page]
        interface = self.interface(page)
        assert interface is not None
        interface_pixels = interface.astype(int)
        picture_pixels = np.zeros_like(interface_pixels[..., :3])
        x, y, width, height = picture.box
        picture_pixels[y : y + height, x : x + width] = decoded(picture)
        alpha = interface_pixels[..., 3:]
        return (
            interface_pixels[..., :3] * alpha + picture_pixels * (255 - alpha) + 127
        ) // 255

    def interface(self, page: Page) -> np.ndarray | None:
        """Return a page's interface as far as it has come.

        (H, W, 4) uint8, not premultiplied; None before the first.
        """
        while (update := page.next_update()) is not None:
            width, height = page.layouts[update.layout].size
            pixels = self._interfaces.get(page)
            if pixels is None or pixels.shape[:2] != (height, width):
                pixels = np.zeros((height, width, 4), np.uint8)
                self._interfaces[page] = pixels
            for (left, top, wide, high), part_pixels in parts_of(update):
                pixels[top : top + high, left : left + wide] = part_pixels
        return self._interfaces.get(page)

    def close(self) -> None:
        for page in self.users:
            page.end()
        self.app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        error = self.app.screen.ctx.error
        self.close()
        assert error == "GL_NO_ERROR"
