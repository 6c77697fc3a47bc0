"""Fixtures of the GPU tests: programs with two allocators, viewers that follow them, pages without a browser."""

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
    with Rig() as made:
        yield made


@pytest.fixture(scope="module", params=ALLOCATORS)
def allocator(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def subscriber(runtime_dir: Path) -> Iterator[Subscriber]:
    """A viewer of all runs, polled by the test; as one that draws with CUDA it has a context of its own."""
    torch.zeros(1, device="cuda")
    with Subscriber() as made:
        yield made
