"""Fixtures of the tests of pages: simple clients, and a Chromium with a bare server."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.pages import Viewer, launched_chromium, pages_of
from support.web_clients import Visitor

from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab
    from support.browser_rig import Rig
    from support.web_clients import Page

    from splatview_viewer.web.browser import BrowserScreen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def ignore_wake() -> None:
    """Stand for the wake-up call of a loop that does not run."""


@pytest.fixture
def server(folder: Path) -> Iterator[WebServer]:
    with closing(WebServer(port=0, token="secret", wake=ignore_wake)) as new_server:
        yield new_server
    assert not list(folder.glob("splatview-files-*"))


@pytest.fixture
def join(server: WebServer) -> Iterator[Callable[..., Visitor]]:
    """`join(reading=False)`: one more page."""
    with ExitStack() as visitors:

        def join(**options: Any) -> Visitor:
            return visitors.enter_context(Visitor(server, **options))

        yield join


@pytest.fixture
def visitor(join: Callable[..., Visitor]) -> Visitor:
    """Return a page that has joined."""
    return join()


@pytest.fixture
def screen(rig: Rig) -> BrowserScreen:
    return rig.open(160, 120)


@pytest.fixture
def page(rig: Rig, screen: BrowserScreen) -> Page:
    return rig.pages[screen]


# -- Chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Yield a headless Chromium. SPLATVIEW_TEST_CHROMIUM names the program."""
    yield from launched_chromium()


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Viewer]]:
    """`start(port=0, token=None)`: a web server; it ends with the test."""
    with ExitStack() as running:

        def start(*args: Any, **options: Any) -> Viewer:
            return running.enter_context(closing(Viewer(*args, **options)))

        yield start


@pytest.fixture
def viewer(start: Callable[..., Viewer]) -> Viewer:
    return start()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Tab]]:
    """`open_page(url, ...)` of `pages_of`."""
    with pages_of(chromium) as open_page:
        yield open_page
