"""Provide a real snapshot, a constructed one and a cache folder to tests of snapshots."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from support.memory_data import two_devices

from splatview_viewer.formats.sandbox import File
from splatview_viewer.snapshot import loading
from splatview_viewer.snapshot.loading import from_pickled, ranks
from splatview_viewer.snapshot.model import MemorySnapshot


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a cache folder for this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def read_in_process(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Read snapshots in this process instead of the sandbox.

    Returns:
        The paths that were read.
    """
    paths_read: list[Any] = []

    def run(
        function: Any, paths: list[Path], *args: Any, progress: Any, **options: Any
    ) -> Any:
        paths_read.extend(paths)
        return function([File(path, str(path)) for path in paths], progress)

    monkeypatch.setattr(loading, "run", run)
    monkeypatch.setattr(ranks, "run", run)
    return paths_read


@pytest.fixture(scope="session")
def pickled(data_dir: Path) -> dict[str, Any]:
    """Return the snapshot of a real training, as PyTorch pickled it."""
    return pickle.loads((data_dir / "training_memory_snapshot.pickle").read_bytes())


@pytest.fixture(scope="session")
def real(pickled: dict[str, Any]) -> MemorySnapshot:
    """Load the snapshot of a real training: 22,332 events of one step."""
    return from_pickled(pickled, "training_memory_snapshot.pickle")


@pytest.fixture(scope="session")
def full() -> MemorySnapshot:
    """Make a snapshot of two devices; fragmentation made the first run out of memory."""
    return two_devices()
