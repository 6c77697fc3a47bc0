"""Fixtures of the GPU tests: programs with two allocators, viewers that follow them, pages without a browser."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.browser_rig import Rig
from support.programs import Programs
from support.sharing import OWNER, PIECES, Peer
from support.trainers import ALLOCATORS
from support.viewer import Viewer
from support.viewer_cases import Trainer

from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.app.loop import AppOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview_viewer.core.screen import Screen


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


@pytest.fixture
def open_viewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Viewer]]:
    """`open_viewer(trainer, screen, bridge, renderer, **options)`: an App that follows this trainer alone."""
    opened: list[Viewer] = []

    def start(trainer: Trainer, screen: Screen, bridge: str = "", renderer: str = "", **options: Any) -> Viewer:
        monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(trainer.runtime))
        for name, value in (("SPLATVIEW_INTEROP", bridge), ("SPLATVIEW_RENDERER", renderer)):
            if value:
                monkeypatch.setenv(name, value)
            else:
                monkeypatch.delenv(name, raising=False)
        opened.append(Viewer(screen, AppOptions(**{"max_fps": 500.0, "panel": False, "gpu_budget": 1.0, **options})))
        return opened[-1]

    yield start
    errors = []
    for viewer in opened:
        errors.append(viewer.screen.ctx.error)
        viewer.close()
    assert errors == ["GL_NO_ERROR"] * len(errors)


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Browser screens over a real server."""
    with Rig() as made:
        yield made


@pytest.fixture(scope="module", params=ALLOCATORS)
def allocator(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def owner(allocator: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
          ) -> Iterator[Callable[..., Peer]]:
    """`owner(code, *args)`: a program that owns GPU memory and runs this piece; BEGIN of the module comes first."""
    torch.zeros(1, device="cuda")
    with Programs(tmp_path_factory.mktemp("owner")) as started:
        peer = Peer(started, tmp_path_factory.mktemp("peer"), PIECES, begin=getattr(request.module, "BEGIN", OWNER),
                    PYTORCH_CUDA_ALLOC_CONF=ALLOCATORS[allocator])
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
