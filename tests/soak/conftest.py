"""Tests that repeat for long, kill, stop, flood and load: `make soak`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.pages import launched_chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

SOAK_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if SOAK_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.soak)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Yield a headless Chromium. SPLATVIEW_TEST_CHROMIUM names the program."""
    yield from launched_chromium()
