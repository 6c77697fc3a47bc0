"""`splatview.show` as a notebook has it: the returned HTML in a page of another origin, a viewer program behind it."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.wait import PATIENCE, turns

import splatview
from splatview_ipc.control.registry import viewers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

    from splatview.api.notebook import Page as Shown


@contextmanager
def notebook(html: str) -> Iterator[str]:
    """The address of a page that holds `html`, as a notebook's is: another port, another name."""
    page = ("<!doctype html><title>notebook</title><body style='margin: 0'>" + html).encode()

    class Notebook(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/"
            self.send_response(200 if known else 204)  # the browser asks for an icon, too
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            if known:
                self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Notebook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_address[1]}/"
        server.shutdown()


@pytest.fixture
def shown() -> Iterator[Callable[..., Shown]]:
    """`splatview.show`, whose viewers end with the test."""
    from splatview.api.session import session

    yield lambda **options: splatview.show(**{"port": 0, "timeout": PATIENCE, **options})
    while programs := session().programs:
        programs.pop().end()


def published() -> None:
    """Orange above, blue below."""
    image = torch.zeros(60, 80, 3, dtype=torch.uint8)
    image[:30] = torch.tensor([250, 140, 20], dtype=torch.uint8)
    image[30:] = torch.tensor([20, 60, 240], dtype=torch.uint8)
    splatview.publish(image, "halves")


def share(picture: np.ndarray, color: tuple[int, int, int]) -> float:
    return float((np.abs(picture.astype(int) - color).max(-1) < 40).mean())


@pytest.mark.soak
def test_the_viewer_shows_in_a_notebooks_frame(shown: Callable[..., Shown], open_page: Callable[..., Page],
                                              picture_of: Callable[..., np.ndarray]) -> None:
    before = threading.active_count()
    page = shown(height=400)
    assert [v.url for v in viewers()] == [page.url]
    assert threading.active_count() <= before, "no thread of this process is left"
    published()
    assert shown(width=300).pid == page.pid, "both show the same viewer"
    with notebook(page._repr_html_()) as address:
        tab = open_page(address, (800, 500))
        picture = picture_of(tab, "notebook")
        for _ in turns("the frame shows the image"):
            top, bottom = share(picture, (250, 140, 20)), share(picture, (20, 60, 240))
            if top > 0.1 and bottom > 0.1:
                break
            published()
            picture = picture_of(tab, "notebook")
        orange = np.argwhere(np.abs(picture.astype(int) - (250, 140, 20)).max(-1) < 40)
        blue = np.argwhere(np.abs(picture.astype(int) - (20, 60, 240)).max(-1) < 40)
        assert orange[:, 0].mean() < blue[:, 0].mean()
        assert max(orange[:, 0].max(), blue[:, 0].max()) < 400, "within the frame"


@pytest.mark.soak
def test_a_viewer_that_ended_is_started_anew(shown: Callable[..., Shown]) -> None:
    from splatview.api.session import session

    first = shown()
    while programs := session().programs:
        programs.pop().end()
    assert viewers() == []
    second = shown(run=os.getpid())
    assert second.pid != first.pid
    assert [(v.pid, v.run) for v in viewers()] == [(second.pid, str(os.getpid()))]
