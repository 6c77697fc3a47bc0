"""Fixtures of the tests of memory snapshots: the recording of a real training, screens, panes, a cache of their own."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from support.memory_data import two_devices

from splatview_viewer.formats.sandbox import File
from splatview_viewer.snapshot import loading
from splatview_viewer.snapshot.loading import from_pickled
from splatview_viewer.snapshot.model import MemorySnapshot


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Snapshots are read in this process instead of the sandbox. The files that were read."""
    read: list[Any] = []

    def run(
        function: Any, paths: list[Path], *args: Any, progress: Any, **options: Any
    ) -> Any:
        read.extend(paths)
        return function([File(path, str(path)) for path in paths], progress)

    monkeypatch.setattr(loading, "run", run)
    return read


@pytest.fixture(scope="session")
def pickled(data_dir: Path) -> dict[str, Any]:
    """The snapshot of a real training, as PyTorch pickled it."""
    return pickle.loads((data_dir / "training_memory_snapshot.pickle").read_bytes())


@pytest.fixture(scope="session")
def real(pickled: dict[str, Any]) -> MemorySnapshot:
    """The snapshot of a real training: 22,332 events of one step."""
    return from_pickled(pickled, "training_memory_snapshot.pickle")


@pytest.fixture(scope="session")
def full() -> MemorySnapshot:
    """Two devices; on the first an allocation failed for fragmentation."""
    return two_devices()
