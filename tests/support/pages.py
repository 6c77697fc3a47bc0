"""What the tests of the page share: a viewer in the test's hands, and what is drawn in the browser."""

from __future__ import annotations

import base64
import io
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from PIL import Image

from splatview_viewer.web import messages as m
from splatview_viewer.web.server import WebServer
from support.wait import PATIENCE
from support.web_clients import Pictures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import CDPSession, Page

    from splatview_viewer.core.events import Event
    from splatview_viewer.web.connection import Connection

    Open = Callable[..., Page]


T = TypeVar("T")


class Client:
    """One page as the server sees it: what it said, and the pictures that it gets."""

    def __init__(self, connection: Connection, news: threading.Event):
        self.connection = connection
        self.hello = connection.hello
        self.pictures = Pictures(connection)
        self._news = news
        self._said: list[Event | m.Visible] = []
        self.number = 0

    def said(self, *kinds: type[T]) -> list[T]:
        """All that it said so far, of these kinds."""
        self._said += [message for message, _ in self.connection.inbox.take(0)]
        return [message for message in self._said if isinstance(message, kinds)]

    def forget(self) -> None:
        self.said()
        self._said.clear()

    def wait(self, kind: type[T], count: int = 1) -> T:
        """The message of this kind that makes it `count` of them."""
        return self.wait_for(lambda: (self.said(kind)[count - 1:] or [None])[0], f"{count} of {kind.__name__}")

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + PATIENCE
        while not (result := condition()):
            assert self._news.wait(max(end - time.monotonic(), 0)), (
                f"not within {PATIENCE} s: {what}; it said {self._said[-20:]}")
            self._news.clear()
        return result

    def gone(self) -> None:
        self.wait_for(lambda: self.connection.closed, "the page leaves")

    def shows(self, pixels: np.ndarray, *, quality: int = 0, full: tuple[int, int] | None = None,
              at: float = 0.0) -> int:
        """Send (H, W, 3) uint8 and wait until it is on the page; `quality` 0 is lossless. Returns its number."""
        number = self.send(pixels, quality=quality, full=full, at=at)
        self.wait_for(lambda: number in self.pictures.acks, f"picture {number} shown")
        return number

    def send(self, pixels: np.ndarray, *, quality: int = 0, full: tuple[int, int] | None = None,
             at: float = 0.0) -> int:
        self.number += 1
        data = png(pixels) if quality == 0 else _encoded(pixels, "JPEG", quality=quality, subsampling=0)
        self.pictures.put(m.Picture(self.number, "jpeg" if quality else "png",
                                    full or (pixels.shape[1], pixels.shape[0]), at, quality or 100, quality == 0), data)
        return self.number


class Viewer:
    """The web server of a viewer that does nothing by itself."""

    def __init__(self, port: int = 0, token: str | None = None):
        self._news = threading.Event()
        self._arrived: list[Connection] = []
        self.server = WebServer(port=port, token=token, wake=self._news.set)
        self.port = self.server.port
        self.bare = f"http://127.0.0.1:{self.port}/"
        """The address without a token, as the page shows it."""
        self.url = f"{self.bare}?token={self.server.token}"

    def client(self) -> Client:
        """The next page that says hello."""
        end = time.monotonic() + PATIENCE
        self._arrived += self.server.arrivals()
        while not self._arrived:
            assert self._news.wait(max(end - time.monotonic(), 0)), f"no page came within {PATIENCE} s"
            self._news.clear()
            self._arrived += self.server.arrivals()
        return Client(self._arrived.pop(0), self._news)

    def close(self) -> None:
        self.server.close()


CANVAS = """() => {
  const canvas = document.querySelector('canvas');
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let text = '';
  for (let i = 0; i < data.length; i += 8192) text += String.fromCharCode(...data.subarray(i, i + 8192));
  return [canvas.width, canvas.height, btoa(text)];
}"""


def drawn(width: int, height: int, seed: int = 0) -> np.ndarray:
    """(H, W, 3) uint8 with a colour of its own in each pixel's neighbourhood: a shift by one pixel shows."""
    y, x = np.mgrid[:height, :width]
    blocks = np.random.default_rng(seed).integers(0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    pixels = blocks[y // 8, x // 8]
    pixels[..., 0] ^= ((x ^ y) & 1).astype(np.uint8) * 8
    return pixels


def on_canvas(page: Page) -> np.ndarray:
    """(H, W, 3) uint8: what the canvas holds."""
    width, height, data = page.evaluate(CANVAS)
    return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)[..., :3]


def mask(event: Any) -> int:
    """The modifiers of an event as a number: shift 1, ctrl 2, alt 4, super 8."""
    return sum(1 << bit for bit, name in enumerate(("shift", "ctrl", "alt", "super")) if name in event.mods)


def state(page: Page) -> dict[str, Any]:
    return page.evaluate("splatview.state()")


def until(page: Page, condition: str) -> Any:
    """Wait for a JavaScript expression to be true. Playwright's own way needs eval, which the page's policy forbids."""
    end = time.monotonic() + PATIENCE
    while not (result := page.evaluate(condition)):
        assert time.monotonic() < end, f"not within {PATIENCE} s: {condition}"
        page.wait_for_timeout(20)
    return result


def connected(viewer: Viewer, open_page: Open, *args: Any, **options: Any) -> tuple[Page, Client]:
    """A page with a first picture on it."""
    page = open_page(viewer.url, *args, **options)
    client = viewer.client()
    client.shows(drawn(client.hello.width, client.hello.height))
    until(page, "!document.body.classList.contains('empty')")
    return page, client


def png(pixels: np.ndarray) -> bytes:
    """(H, W, 3) uint8 as PNG."""
    return _encoded(pixels, "PNG", compress_level=1)


def _encoded(pixels: np.ndarray, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


class Hand:
    """Holds files over a page, as one that drags them from a folder's window."""

    def __init__(self, page: Page, *files: Path) -> None:
        self._session: CDPSession = page.context.new_cdp_session(page)
        self._files = [str(file) for file in files]

    def say(self, kind: str) -> None:
        data = {"items": [], "files": self._files, "dragOperationsMask": 1}
        self._session.send("Input.dispatchDragEvent", {"type": kind, "x": 200, "y": 300, "data": data})

    def drop(self) -> None:
        for kind in ("dragEnter", "dragOver", "drop"):
            self.say(kind)


class Elsewhere:
    """A server at another port of this machine, which can be another user's: one page, and the headers it was sent."""

    def __init__(self, html: str) -> None:
        self.page = ("<!doctype html><title>elsewhere</title>" + html).encode()
        self.headers: list[dict[str, str]] = []
        self.url = ""


@contextmanager
def elsewhere(html: str, name: str = "127.0.0.1") -> Iterator[Elsewhere]:
    """Serve a page that holds `html`, as one of the host `name`."""
    found = Elsewhere(html)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/"
            self.send_response(200 if known else 204)  # the browser asks for an icon, too
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            if known:
                found.headers.append({key.lower(): value for key, value in self.headers.items()})
                self.wfile.write(found.page)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found.url = f"http://{name}:{server.server_address[1]}/"
        yield found
        server.shutdown()
