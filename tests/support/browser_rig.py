"""Browser screens over a real server and real WebSockets, for tests."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Self

import moderngl
import numpy as np
import PIL.Image

from splatview_viewer.core.events import Event
from splatview_viewer.core.screen import Caption, read_pixels
from splatview_viewer.screens.egl import create_context
from splatview_viewer.web.browser import BrowserScreen
from splatview_viewer.web.encoders import Encoder, choose_encoder
from splatview_viewer.web.messages import Box, Hello
from splatview_viewer.web.server import WebServer
from support.wait import clock, polls, wait_until
from support.web_clients import Image, Page, Update

CAPTION = Caption()
RED = (0.8, 0.1, 0.2)
GREEN = (0.1, 0.7, 0.3)
BLUE = (0.2, 0.3, 0.9)


class Rig:
    """A context, a server and the pages that are connected to it."""

    def __init__(self) -> None:
        self.ctx: moderngl.Context = create_context()
        self.woken = 0
        self._encoder: Encoder | None = None
        self.pages: dict[BrowserScreen, Page] = {}
        self.server = WebServer(port=0, wake=self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for screen, page in self.pages.items():
            screen.close()
            page.end()
        self.server.close()
        if self._encoder is not None:
            self._encoder.close()
        assert self.ctx.error == "GL_NO_ERROR"
        self.ctx.release()

    def open(
        self,
        width: int = 96,
        height: int = 64,
        *,
        acks: bool = True,
        reading: bool = True,
        encoder: Encoder | None = None,
    ) -> BrowserScreen:
        """Open a page that says hello, and return its screen."""
        hello = Hello(id="page", width=width, height=height)
        self._encoder = self._encoder or choose_encoder(self.ctx)
        with ExitStack() as opened:
            page = opened.enter_context(
                Page(self.server.port, acks=acks, reading=reading)
            )
            page.connect(token=self.server.token).send(hello)
            (arrived,) = wait_until(self.server.arrivals, "the page arrives")
            if reading:
                page.receive()
            screen = BrowserScreen(self.ctx, arrived, encoder or self._encoder)
            opened.pop_all()
        self.pages[screen] = page
        return screen


def draw(
    screen: BrowserScreen, color: tuple[float, float, float], mark: int = 0
) -> np.ndarray:
    """Draw and present a picture once the screen takes one; return it, (H, W, 3).

    `mark` tells pictures of one colour apart.
    """
    until_ready(screen)
    screen.framebuffer.clear(*color, 1.0)
    width, height = screen.state.size
    corner = (0, height - height // 4, width // 3, height // 4)
    screen.framebuffer.clear(1.0, 1.0, 1.0, 1.0, viewport=corner)
    square = (mark % (width - 8), 8, 8, 8)
    screen.framebuffer.clear(0.0, 0.0, 0.0, 1.0, viewport=square)
    drawn = read_pixels(screen.framebuffer)[..., :3]
    screen.present(CAPTION)
    return drawn


def poll(
    screen: BrowserScreen,
    condition: Callable[[], Any],
    events: list[Event] | None = None,
) -> Any:
    """Poll as the viewer's loop does until a condition is true, and return it."""
    for _ in polls(f"{condition}", pauses=False):
        result = condition()
        if result:
            return result
        got = screen.poll(0.01)
        if events is not None:
            events.extend(got)
    raise AssertionError


def until_ready(screen: BrowserScreen) -> list[Event]:
    """Poll until the screen takes another picture; return the events meanwhile."""
    events: list[Event] = []
    poll(screen, lambda: screen.takes_pictures, events)
    return events


def heard(screen: BrowserScreen, kind: type) -> list[Event]:
    """Poll until an event of a kind comes; return all events up to it."""
    events: list[Event] = []

    def has_come() -> bool:
        return any(isinstance(event, kind) for event in events)

    poll(screen, has_come, events)
    return events


def spend(screen: BrowserScreen, seconds: float) -> None:
    """Poll for this many seconds."""
    end = clock() + seconds
    poll(screen, lambda: clock() > end)


def decoded(picture: Image) -> np.ndarray:
    """Decode a picture to (H, W, 3) uint8."""
    image = PIL.Image.open(io.BytesIO(picture.data))
    assert image.format is not None
    assert image.format.lower() == picture.format
    return np.asarray(image.convert("RGB"))


def parts_of(update: Update) -> Iterator[tuple[Box, np.ndarray]]:
    """Yield each part of an update: its place, and (H, W, 4) uint8."""
    start = 0
    for box, size in zip(update.boxes, update.sizes, strict=True):
        file = io.BytesIO(update.data[start : start + size])
        start += size
        yield box, np.asarray(PIL.Image.open(file).convert("RGBA"))


def restful(screen: BrowserScreen, page: Page) -> Image:
    """Return the picture without loss that comes when nothing more is drawn."""
    while True:
        picture = poll(screen, page.next_picture)
        if picture.lossless:
            return picture


def settle(screen: BrowserScreen, page: Page) -> int:
    """Draw in BLUE and wait for the picture without loss; return its number."""
    draw(screen, BLUE)
    return restful(screen, page).number
