"""Numbers over time: the scalars of `splatview.log` and the samples of `splatview.publish_memory` as frames."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from splatview.adapters import NamedTensors
from splatview.adapters.values import texts
from splatview_ipc.kinds.memory import MEMORY_COLUMNS, MEMORY_ROWS
from splatview_ipc.kinds.scalars import SCALAR_COLUMNS, SCALAR_ROWS
from splatview_ipc.kinds.series import Series, scalar_rows, scalar_series

if TYPE_CHECKING:
    from collections.abc import Mapping

SCALARS = NamedTensors(
    "scalars",
    ("rows", "ends", "names"),
    shape=(SCALAR_ROWS, len(SCALAR_COLUMNS)),
    dtype="float64",
)
MEMORY = NamedTensors(
    "memory", ("samples",), shape=(MEMORY_ROWS, len(MEMORY_COLUMNS)), dtype="float64"
)
_FEW = 4
"""So many series have as many rows each as one alone would."""
_LATEST = [
    MEMORY_COLUMNS.index(name)
    for name in ("time", "step", "allocated", "allocations", "retries", "ooms")
]
_LOW = MEMORY_COLUMNS.index("low")
_COUNT = len(MEMORY_COLUMNS)
_SLOTS = 1024
"""Numbers that may be on their way."""


class SeriesTable:
    """The series of one run, by name, in the order in which they were first logged. Any thread."""

    def __init__(self) -> None:
        self.step: float = 0.0
        """The newest step."""
        self._series: dict[str, Series] = {}
        # Reentrant: a signal's handler may end the run amid its end.
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._series)

    def add(
        self, samples: Mapping[str, list[tuple[float, float, float]]], step: float
    ) -> None:
        """Add samples (step, time, value), the oldest first, at most SCALAR_SERIES names in all; `step`: the newest."""
        with self._lock:
            new = [name for name in samples if name not in self._series]
            if new:
                count = len(self._series) + len(new)
                most = SCALAR_ROWS // max(_FEW, 1 << (count - 1).bit_length())
                for series in self._series.values():
                    series.limit(most)
                self._series |= {name: scalar_series(most) for name in new}
            for name, rows in samples.items():
                self._series[name].extend(scalar_rows(np.array(rows, np.float64)))
            self.step = step

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return rows, ends and names of a frame. Copies, which never change."""
        with self._lock:
            rows = [series.rows for series in self._series.values()]
            ends = np.cumsum([len(r) for r in rows]).astype(np.int32)
            return (
                torch.from_numpy(np.concatenate(rows)),
                torch.from_numpy(ends),
                texts(tuple(self._series), "log"),
            )


class Samples(Series):
    """Samples of memory, the oldest first: MEMORY_COLUMNS, and of how many samples a row is."""

    def __init__(self) -> None:
        super().__init__(MEMORY_ROWS, _COUNT + 1, _COUNT, _merge)

    def add(self, row: list[float]) -> None:
        self.extend(np.array([[*row, 1]], np.float64))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors of a frame."""
        return (torch.from_numpy(self.rows[:, :_COUNT]),)


def _merge(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    out = np.maximum.reduceat(rows, starts, axis=0)
    out[:, _LATEST] = rows[np.append(starts[1:], len(rows)) - 1][:, _LATEST]
    out[:, _LOW] = np.minimum.reduceat(rows[:, _LOW], starts)
    out[:, _COUNT] = np.add.reduceat(rows[:, _COUNT], starts)
    return out


# ---- scalars in GPU memory, brought to the host without waiting for the GPU


class Later(NamedTuple):
    """A number on its way to the host."""

    host: torch.Tensor
    event: torch.cuda.Event

    @property
    def arrived(self) -> bool:
        return self.event.query()


def pinned_slots() -> deque[torch.Tensor]:
    """Return memory for numbers on their way. To be allocated once: the allocation may wait for a GPU."""
    return deque(torch.empty(_SLOTS, dtype=torch.float64, pin_memory=True).unbind(0))


def queued(
    scalars: Mapping[str, Any], free: deque[torch.Tensor]
) -> dict[str, float | Later]:
    """Queue a copy of each CUDA tensor of one element on torch's current stream into a `free` slot; floats stay.

    Left out are those for which a CUDA graph is being captured, in whose replays the copy would run again, or all slots
    are in use.
    """
    found: dict[str, float | Later] = {}
    events: dict[torch.device, torch.cuda.Event] = {}
    for name, value in scalars.items():
        if type(value) is float:
            found[name] = value
            continue
        with torch.cuda.device(value.device):
            if torch.cuda.is_current_stream_capturing() or not free:
                continue
            host = free.popleft()
            host.copy_(value.detach().reshape(()), non_blocking=True)
        found[name] = Later(host, events.setdefault(value.device, torch.cuda.Event()))
    for device, event in events.items():
        event.record(torch.cuda.current_stream(device))
    return found
