"""Fixtures of the GPU tests: trainers with two allocators, viewers that follow them, pages without a browser."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.viewer_cases import Trainer

if TYPE_CHECKING:
    from collections.abc import Iterator



@pytest.fixture(scope="module")
def trainers() -> Iterator[dict[str, Trainer]]:
    """A trainer with torch's ordinary memory, and one with expandable segments."""
    with ExitStack() as started:
        made = {}
        for allocator in ("plain", "expandable"):
            folder = Path("/tmp") / f"sv-gpu-{os.getpid()}-{allocator}"  # short: sockets are made in it
            folder.mkdir(mode=0o700)
            started.callback(shutil.rmtree, folder, ignore_errors=True)
            made[allocator] = Trainer(folder, f"expandable_segments:{allocator == 'expandable'}")
            started.callback(made[allocator].close)
        yield made
