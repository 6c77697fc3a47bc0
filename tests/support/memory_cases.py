"""What the tests of publishing memory share: a cache folder, an allocator, and who reads the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import splatview
from splatview import memory, recording
from splatview.ipc import Subscriber
from splatview.ipc.kinds import MEMORY_COLUMNS, check_frame
from support.memory_on_cpu import Allocator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLACE = {name: i for i, name in enumerate(MEMORY_COLUMNS)}


@pytest.fixture(name="cache", autouse=True)
def cache_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder for each test; where snapshots come to lie."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(recording, "_observing", False)
    yield tmp_path / "cache" / "splatview" / "snapshots" / "taken"
    splatview.close()


@pytest.fixture(name="allocator")
def allocator_fixture(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    def put(where: Any, name: str, value: Any) -> None:
        monkeypatch.setattr(where, name, value, raising=False)

    return Allocator().install(put)


def meter(name: str = "memory") -> Any:
    return memory._meters[name]


def rows(name: str = "memory") -> np.ndarray:
    return meter(name)._samples.rows


def newest(column: str, name: str = "memory") -> float:
    """The newest value; NaN before there is one."""
    samples = rows(name)
    return float(samples[-1, PLACE[column]]) if len(samples) else float("nan")


class Reader:
    """A viewer that reads the stream."""

    def __init__(self) -> None:
        self.subscriber = Subscriber()
        self.stream: Any = None
        self.meta: dict[str, Any] = {}
        self.samples = np.empty((0, len(MEMORY_COLUMNS)))

    def look(self) -> Reader:
        self.subscriber.poll()
        for stream in self.subscriber.streams:
            if stream.kind == "memory":
                self.stream = stream
                stream.open()
                frame = stream.read()
                if frame is not None:
                    with frame:
                        check_frame(frame.kind, {k: (t.dtype, t.shape) for k, t in frame.tensors.items()}, frame.meta)
                        samples: Any = frame.tensors["samples"]
                        self.meta, self.samples = frame.meta, samples.array.copy()
        return self


@pytest.fixture(name="reader")
def reader_fixture() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.subscriber.close()
