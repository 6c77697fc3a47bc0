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
from splatview_viewer.web.browser import Browsers
from support.browser_rig import decoded
from support.wait import turns
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
        for _ in turns("the viewer's state", rest=False):
            if condition():
                return
            step(self.app)

    def newest(self, page: Page) -> Image | None:
        """Return the last picture that has come."""
        while (picture := page.next_picture()) is not None:
            self._newest[page] = picture
        return self._newest.get(page)

    def final_picture(self, page: Page) -> np.ndarray:
        """Wait until a page has its last picture without loss; return it, (H, W, 3)
        int.
        """
        user = self.users[page]

        def has_final() -> bool:
            newest = self.newest(page)
            if newest is None or not newest.lossless or user.waiting:
                return False
            drawn = read_pixels(user.screen.framebuffer)[..., :3]
            x, y, width, height = newest.box
            part = drawn[y : y + height, x : x + width]
            return np.array_equal(decoded(newest), part)

        self.until(has_final)
        return decoded(self._newest[page]).astype(int)

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
