"""Fixtures of the tests of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.comparison_cases import House, houses
from support.viewer import viewer_fixture  # noqa: F401

from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(name="house")
def house_fixture(tmp_path: Path) -> Iterator[Callable[..., House]]:
    """`house("a", "b")`: a viewer with files of these names."""
    with houses(tmp_path) as build:
        yield build


@pytest.fixture(name="screen")
def screen_fixture() -> Iterator[OffscreenScreen]:
    """64 by 48 pixels; a test that leaves an error of OpenGL behind fails."""
    screen = OffscreenScreen(64, 48)
    yield screen
    error = screen.ctx.error
    screen.close()
    assert error == "GL_NO_ERROR"
