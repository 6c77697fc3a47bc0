"""Fixtures of several tests of sharing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.pair import Pair


@pytest.fixture
def pair(runtime_dir: Path) -> Iterator[Pair]:
    """A run and its viewer, in this process."""
    pair = Pair()
    yield pair
    pair.close()
