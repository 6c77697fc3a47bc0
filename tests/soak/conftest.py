"""Tests that repeat for long, kill, stop, flood and load: `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

SOAK_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder."""
    for item in items:
        if SOAK_FOLDER in item.path.parents:
            item.add_marker(pytest.mark.soak)
