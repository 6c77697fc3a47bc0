"""A viewer in the test's hands, and what is drawn in the browser."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
import threading
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from splatview_viewer.web import messages as m
from splatview_viewer.web.server import WebServer
from support.wait import PATIENCE_S, polls, wait_until
from support.web_clients import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, CDPSession, ConsoleMessage, Page

    Open = Callable[..., Page]


class Viewer(WebServer):
    """The web server of a viewer that does nothing by itself."""

    def __init__(self, port: int = 0, token: str | None = None, **options: Any) -> None:
        super().__init__(port=port, token=token, wake=_do_nothing, **options)
        self.bare = f"http://127.0.0.1:{self.port}/"
        """The address without a token, as the page shows it."""
        self.url = f"{self.bare}?token={self.token}"

    def client(self) -> Client:
        """Wait for the next page that says hello, and return it."""
        (connection,) = wait_until(self.arrivals, "a page comes")
        return Client(connection)


def _do_nothing() -> None:
    pass


def shows(client: Client, pixels: np.ndarray, **options: Any) -> int:
    """Send a picture as `send` does, and wait until it is on the page."""
    picture_number = send(client, pixels, **options)
    wait_until(lambda: picture_number in client.acks, f"picture {picture_number} shown")
    return picture_number


def send(
    client: Client,
    pixels: np.ndarray,
    *,
    quality: int = 0,
    full: tuple[int, int] | None = None,
) -> int:
    """Send (H, W, 3) uint8 to a page and return the picture's number.

    Quality 0 is lossless; `full` is the size that the page shows it at.
    """
    client.last_number += 1
    file = io.BytesIO()
    form = "jpeg" if quality else "png"
    Image.fromarray(pixels).save(
        file, form, quality=quality, subsampling=0, compress_level=1
    )
    size = full or (pixels.shape[1], pixels.shape[0])
    if size != client.layout.size:
        client.arrange(size)
    client.put(
        m.Picture(
            number=client.last_number,
            format=form,
            layout=client.layout.number,
            box=(0, 0, size[0], size[1]),
            bytes=len(file.getvalue()),
            quality=quality or 100,
            lossless=quality == 0,
        ),
        file.getvalue(),
    )
    return client.last_number


def drawn(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Make (H, W, 3) uint8 that shows a shift by one pixel.

    Each pixel's neighbourhood has a colour of its own.
    """
    y, x = np.mgrid[:height, :width]
    blocks = np.random.default_rng(seed).integers(
        0, 256, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8
    )
    pixels = blocks[y // 8, x // 8]
    pixels[..., 0] ^= ((x ^ y) & 1).astype(np.uint8) * 8
    return pixels


def on_canvas(page: Page) -> np.ndarray:
    """Read the content of the scene's canvas, (H, W, 3) uint8."""
    return _content(page, "scene")[..., :3]


def png(pixels: np.ndarray) -> bytes:
    """Return (H, W, 4) uint8 as a file of PNG."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def on_interface(page: Page) -> np.ndarray:
    """Read the content of the interface's canvas, (H, W, 4) uint8."""
    return _content(page, "canvas")


def _content(page: Page, name: str) -> np.ndarray:
    url = page.evaluate(f"document.getElementById('{name}').toDataURL()")
    data = base64.b64decode(url.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))


def screenshot(page: Page) -> np.ndarray:
    """Return the page as it is shown, (H, W, 3) uint8."""
    with Image.open(io.BytesIO(page.screenshot(animations="disabled"))) as picture:
        return np.asarray(picture.convert("RGB"))


def mask(event: Any) -> int:
    """Return an event's modifiers as a number: shift 1, ctrl 2, alt 4, super 8."""
    bits = {"shift": 1, "ctrl": 2, "alt": 4, "super": 8}
    return sum(bit for name, bit in bits.items() if name in event.mods)


def state(page: Page) -> dict[str, Any]:
    return page.evaluate("splatview.state()")


def wait_for_script(page: Page, condition: str) -> Any:
    """Wait until a JavaScript expression is true, and return it.

    Playwright's own way needs eval, which the page's policy forbids.
    """
    for _ in polls(condition, pauses=False):
        result = page.evaluate(condition)
        if result:
            return result
        page.wait_for_timeout(20)
    raise AssertionError


def connected(
    viewer: Viewer, open_page: Open, *args: Any, **options: Any
) -> tuple[Page, Client]:
    """Open a page and send it a first picture."""
    page = open_page(viewer.url, *args, **options)
    client = viewer.client()
    shows(client, drawn(client.hello.width, client.hello.height))
    wait_for_script(page, "!document.body.classList.contains('empty')")
    return page, client


def touch(cdp: CDPSession, kind: str, *points: tuple[float, float]) -> None:
    """Have fingers come, move or go: those that are down afterwards are at `points`."""
    cdp.send(
        "Input.dispatchTouchEvent",
        {
            "type": f"touch{kind}",
            "touchPoints": [
                {"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)
            ],
        },
    )


def drag(
    page: Page, *files: Path, kinds: tuple[str, ...] = ("dragEnter", "dragOver", "drop")
) -> None:
    """Drag files from a folder's window over a page, and drop them there."""
    session = page.context.new_cdp_session(page)
    data = {
        "items": [],
        "files": [str(file) for file in files],
        "dragOperationsMask": 1,
    }
    for kind in kinds:
        session.send(
            "Input.dispatchDragEvent", {"type": kind, "x": 200, "y": 300, "data": data}
        )


@contextmanager
def elsewhere(html: str) -> Iterator[str]:
    """Serve a page of another site that holds `html`; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>elsewhere</title>" + html.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/"
        server.shutdown()


_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "google-chrome",
    "google-chrome-stable",
    "chromium-browser",
)
CHROMIUM = os.environ.get("SPLATVIEW_TEST_CHROMIUM") or next(
    filter(None, map(shutil.which, _NAMES)), "chromium"
)
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def launched_chromium() -> Iterator[Browser]:
    """Yield a headless Chromium. SPLATVIEW_TEST_CHROMIUM names the program."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    if not Path(CHROMIUM).is_file():
        pytest.skip(
            f"no {CHROMIUM}: apt-get install chromium, or name another in "
            "SPLATVIEW_TEST_CHROMIUM"
        )
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=_FLAGS, timeout=PATIENCE_S * 1000
        )
        yield browser
        browser.close()


@contextmanager
def pages_of(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Yield `open_page(url, size=(800, 600), ratio=1, **context)`: a tab of a new profile.

    `routes` answer requests in the server's place. An error that its script does not
    catch or that it logs fails the test, but for those logged that match `expected`.
    """
    faults: list[str] = []

    def note_error(error: Exception) -> None:
        faults.append(str(error))

    with ExitStack() as opened:

        def open_page(
            url: str,
            size: tuple[int, int] = (800, 600),
            ratio: float = 1,
            *,
            expected: str = "$^",
            routes: dict[str, Any] | None = None,
            **options: Any,
        ) -> Page:
            context = opened.enter_context(
                chromium.new_context(
                    viewport={"width": size[0], "height": size[1]},
                    device_scale_factor=ratio,
                    **options,
                )
            )
            context.set_default_timeout(PATIENCE_S * 1000)
            page = context.new_page()
            for pattern, handler in (routes or {}).items():
                page.route(pattern, handler)

            def note_message(message: ConsoleMessage) -> None:
                is_error = message.type == "error"
                if is_error and not re.search(expected, message.text):
                    faults.append(message.text)

            page.on("console", note_message)
            page.on("pageerror", note_error)
            page.goto(url)
            return page

        yield open_page
    assert not faults, f"the page's console says {faults}"
