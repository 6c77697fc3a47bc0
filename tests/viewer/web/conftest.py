"""Fixtures of the tests of pages in browsers."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest
from support.browser_rig import Rig
from support.web_visitors import Visitor

from splatview_viewer.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.web_clients import Page

    from splatview_viewer.web.browser import BrowserScreen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files lie."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[WebServer]:
    made = WebServer(port=0, token="secret", wake=lambda: None)
    yield made
    made.close()
    assert not list(folder.glob("splatview-files-*"))


@pytest.fixture
def join(server: WebServer) -> Iterator[Callable[..., Visitor]]:
    """`join(reading=False)`: one more page."""
    made: list[Visitor] = []

    def one_more(**options: bool) -> Visitor:
        made.append(Visitor(server, **options))
        return made[-1]

    yield one_more
    for visitor in made:
        visitor.page.end()


@pytest.fixture
def visitor(join: Callable[..., Visitor]) -> Visitor:
    """A page."""
    return join()


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


@pytest.fixture
def screen(rig: Rig) -> BrowserScreen:
    return rig.open(160, 120)


@pytest.fixture
def page(rig: Rig, screen: BrowserScreen) -> Page:
    return rig.pages[screen]
