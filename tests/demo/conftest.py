"""A few photographs of the still life at the size of a stamp."""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path

import pytest
from support.programs import ROOT


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make photographs by the script in tools/."""
    folder = tmp_path_factory.mktemp("photos")
    script = runpy.run_path(str(ROOT / "tools" / "make_demo_photos.py"))
    with contextlib.redirect_stdout(io.StringIO()):
        script["make"](folder, "48x36", points=400, views=3)
    return folder
