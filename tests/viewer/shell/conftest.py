"""Fixtures of the tests of panels and viewports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def picture_file(tmp_path: Path) -> Path:
    """620 by 494 pixels, no two rows or columns alike: fills the room that the panel leaves."""
    y, x = np.mgrid[0:494, 0:620]
    array = np.stack([x * 255 // 619, y * 255 // 493, (x + y) % 256], -1).astype(np.uint8)
    path = tmp_path / "picture.png"
    Image.fromarray(array).save(path)
    return path
