"""Fixtures of several tests of sharing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.pair import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def pair(runtime_dir: Path) -> Iterator[Pair]:
    """A run and its viewer, in this process."""
    made = Pair()
    yield made
    made.close()
