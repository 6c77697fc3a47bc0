"""Numbers over time as frames.

They are the scalars of `splatview.log` and the samples of `splatview.publish_memory`.
"""

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
_FULL_LENGTH_SERIES = 4
"""So many series have as many rows each as one alone would."""
_LAST_VALUE_NAMES = ("time", "step", "allocated", "allocations", "retries", "ooms")
_LAST_VALUE_COLUMNS = [MEMORY_COLUMNS.index(name) for name in _LAST_VALUE_NAMES]
"""Columns of which a merged row holds the last value; of the others the highest."""
_LOW = MEMORY_COLUMNS.index("low")
_COUNT = len(MEMORY_COLUMNS)
"""The column after them: the number of samples in a row."""
_SLOT_COUNT = 1024
"""Numbers that may be on their way from a GPU."""


class SeriesTable:
    """The series of one run by name, in the order in which they were first logged.

    For any thread.
    """

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
        """Add samples to series, at most SCALAR_SERIES of them in all.

        Args:
            samples: (step, time, value) by name, the oldest first.
            step: the newest.
        """
        with self._lock:
            new_names = [name for name in samples if name not in self._series]
            if new_names:
                self._add_series(new_names)
            for name, rows in samples.items():
                self._series[name].extend(scalar_rows(np.array(rows, np.float64)))
            self.step = step

    def _add_series(self, names: list[str]) -> None:
        """Add empty series; all of them share the rows of a frame."""
        count = len(self._series) + len(names)
        next_power_of_two = 1 << (count - 1).bit_length()
        max_rows = SCALAR_ROWS // max(_FULL_LENGTH_SERIES, next_power_of_two)
        for series in self._series.values():
            series.set_max_rows(max_rows)
        self._series |= {name: scalar_series(max_rows) for name in names}

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
    """Samples of memory, the oldest first.

    Their columns are MEMORY_COLUMNS, and the number of samples that a row stands for.
    """

    def __init__(self) -> None:
        super().__init__(MEMORY_ROWS, _COUNT + 1, _COUNT, _merge)

    def add(self, row: list[float]) -> None:
        """Add a sample, MEMORY_COLUMNS."""
        self.extend(np.array([[*row, 1]], np.float64))

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Return the tensors of a frame."""
        return (torch.from_numpy(self.rows[:, :_COUNT]),)


def _merge(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return one row of memory for each group of rows.

    Args:
        starts: the index of each group's first row.
    """
    merged = np.maximum.reduceat(rows, starts, axis=0)
    ends = np.append(starts[1:], len(rows))
    merged[:, _LAST_VALUE_COLUMNS] = rows[ends - 1][:, _LAST_VALUE_COLUMNS]
    merged[:, _LOW] = np.minimum.reduceat(rows[:, _LOW], starts)
    merged[:, _COUNT] = np.add.reduceat(rows[:, _COUNT], starts)
    return merged


# ---- scalars in GPU memory, brought to the host without waiting for the GPU


class Later(NamedTuple):
    """A number on its way to the host."""

    host: torch.Tensor
    event: torch.cuda.Event

    @property
    def arrived(self) -> bool:
        """True once `host` holds the number."""
        return self.event.query()


def pinned_slots() -> deque[torch.Tensor]:
    """Return memory for numbers on their way.

    To be allocated once: the allocation may wait for a GPU.
    """
    slots = torch.empty(_SLOT_COUNT, dtype=torch.float64, pin_memory=True)
    return deque(slots.unbind(0))


def queued(
    scalars: Mapping[str, Any], free_slots: deque[torch.Tensor]
) -> dict[str, float | Later]:
    """Queue a copy of each CUDA tensor of one element on torch's current stream.

    Floats stay as they are. Values are left out for which a CUDA graph is being captured,
    in whose replays the copy would run again, and for which there is no free slot.
    """
    values: dict[str, float | Later] = {}
    events: dict[torch.device, torch.cuda.Event] = {}
    for name, value in scalars.items():
        if type(value) is float:
            values[name] = value
            continue
        with torch.cuda.device(value.device):
            if torch.cuda.is_current_stream_capturing() or not free_slots:
                continue
            host = free_slots.popleft()
            host.copy_(value.detach().reshape(()), non_blocking=True)
        event = events.setdefault(value.device, torch.cuda.Event())
        values[name] = Later(host, event)
    for device, event in events.items():
        event.record(torch.cuda.current_stream(device))
    return values
