"""Fixtures of the GPU tests: programs with two allocators, viewers that follow them, pages without a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support.browser_rig import Rig
from support.programs import Programs
from support.sharing import OWNER, PIECES, Peer
from support.trainers import ALLOCATORS

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Browser screens over a real server."""
    with Rig() as made:
        yield made


@pytest.fixture(scope="module", params=ALLOCATORS)
def allocator(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def owner(allocator: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Peer]]:
    """`owner(code, *args)`: a program that owns GPU memory and runs this piece."""
    torch.zeros(1, device="cuda")
    with Programs(tmp_path_factory.mktemp("owner")) as started:
        conf = ALLOCATORS[allocator]
        peer = Peer(started, tmp_path_factory.mktemp("peer"), PIECES, begin=OWNER, PYTORCH_CUDA_ALLOC_CONF=conf)
        assert peer.socket  # connected

        def run(code: str, *args: str) -> Peer:
            peer.do(code, *args)
            return peer

        yield run
        peer.close()


@pytest.fixture
def subscriber(runtime_dir: Path) -> Iterator[Subscriber]:
    """A viewer of all runs, polled by the test; as one that draws with CUDA it has a context of its own."""
    torch.zeros(1, device="cuda")
    with Subscriber() as made:
        yield made
