"""Fixtures of the GPU tests: viewers, allocators, and pages without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.browser_rig import Rig
from support.trainers import ALLOCATORS

from splatview_ipc.subscriber.subscriber import Subscriber


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Browser screens over a real server."""
    with Rig() as new_rig:
        yield new_rig


@pytest.fixture(scope="module", params=ALLOCATORS)
def allocator(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def subscriber(runtime_dir: Path) -> Iterator[Subscriber]:
    """Return a viewer of all runs, polled by the test.

    As one that draws with CUDA it has a context of its own.
    """
    torch.zeros(1, device="cuda")
    with Subscriber() as new_subscriber:
        yield new_subscriber
