"""Fixtures of the tests of what is drawn round the pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from support.viewer import viewer_fixture  # noqa: F401
from support.widgets import Widgets

from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def widgets(monkeypatch: pytest.MonkeyPatch) -> Widgets:
    """To be made before the viewer draws."""
    return Widgets(monkeypatch)


@pytest.fixture(name="picture_file")
def picture_file_fixture(tmp_path: Path) -> Path:
    """620 by 494 pixels, no two rows or columns alike: fills the room that the panel leaves."""
    y, x = np.mgrid[0:494, 0:620]
    path = tmp_path / "picture.png"
    Image.fromarray(np.stack([x * 255 // 619, y * 255 // 493, (x + y) % 256], -1).astype(np.uint8)).save(path)
    return path


@pytest.fixture(name="screen")
def screen_fixture() -> Iterator[OffscreenScreen]:
    screen = OffscreenScreen(64, 48)
    yield screen
    screen.close()
