"""Tests that repeat for long, kill, stop, flood and load: `make soak`. They print what they measured (`pytest -s`)."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, and spread them over the workers by file, though they start programs."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.soak)
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
