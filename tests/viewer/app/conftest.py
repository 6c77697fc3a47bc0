"""Fixtures of the tests of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from support.comparison_cases import House, houses
from support.viewer import SIZE, Viewer

from splatview_viewer.app.loop import AppOptions
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(name="viewer")
def viewer_fixture(request: pytest.FixtureRequest) -> Iterator[Viewer]:
    options = getattr(request, "param", AppOptions(max_fps=500))
    app = Viewer(OffscreenScreen(*SIZE), options)
    app.do()
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


@pytest.fixture(name="picture_file")
def picture_file_fixture(tmp_path: Path) -> Path:
    """620 by 494 pixels, no two rows or columns alike: fills the room that the panel leaves."""
    y, x = np.mgrid[0:494, 0:620]
    array = np.stack([x * 255 // 619, y * 255 // 493, (x + y) % 256], -1).astype(np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(array).save(path)
    return path


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
