"""Fixtures of the tests of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.viewer import SIZE

from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.viewer import Viewer


@pytest.fixture
def viewer(request: pytest.FixtureRequest, open_viewer: Callable[..., Viewer]) -> Viewer:
    options: dict[str, Any] = getattr(request, "param", {})
    made = open_viewer(SIZE, **options)
    made.do()
    return made


@pytest.fixture
def picture_file(tmp_path: Path) -> Path:
    """620 by 494 pixels, no two rows or columns alike: fills the room that the panel leaves."""
    y, x = np.mgrid[0:494, 0:620]
    array = np.stack([x * 255 // 619, y * 255 // 493, (x + y) % 256], -1).astype(np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(array).save(path)
    return path


@pytest.fixture
def screen() -> Iterator[OffscreenScreen]:
    """64 by 48 pixels; a test that leaves an error of OpenGL behind fails."""
    made = OffscreenScreen(64, 48)
    yield made
    error = made.ctx.error
    made.close()
    assert error == "GL_NO_ERROR"
