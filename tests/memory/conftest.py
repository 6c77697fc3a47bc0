"""Fixtures of the tests of memory snapshots: the recording of a real training, screens, panes, a cache of their own."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.memory_data import two_devices
from support.snapshot_cases import Rig

from splatview_viewer.kinds.snapshot.loading import columns, from_pickled, worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from splatview_viewer.kinds.snapshot.model import Snapshot


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Snapshots are read in this process instead of a program of their own. The jobs that were done."""
    jobs: list[Any] = []
    nothing: Any = SimpleNamespace(told=lambda *said: None, at=lambda size: None)

    class Reader:
        def __init__(self, job: dict[str, Any]) -> None:
            jobs.append(job)
            snapshot = worker.read_job(job, nothing, nothing)
            columns.write(snapshot, job["out"], lambda fraction: None)

        def wait(self, progress: Any, between: Any) -> None:
            while between():
                pass

        def end(self) -> None:
            pass

    monkeypatch.setattr("splatview_viewer.kinds.snapshot.loading.load.Reader", Reader)
    return jobs


@pytest.fixture(scope="session")
def pickled(data_dir: Path) -> dict[str, Any]:
    """The snapshot of a real training, as PyTorch pickled it."""
    return pickle.loads((data_dir / "training_memory_snapshot.pickle").read_bytes())


@pytest.fixture(scope="session")
def real(pickled: dict[str, Any]) -> Snapshot:
    """The snapshot of a real training: 22,332 events of one step."""
    return from_pickled(pickled, "training_memory_snapshot.pickle")


@pytest.fixture(scope="session")
def full() -> Snapshot:
    """Two devices; on the first an allocation failed for fragmentation."""
    return two_devices()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()
