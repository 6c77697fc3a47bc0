"""Samples of a running trainer's memory, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.control.memory_snapshots import find_snapshot
from splatview_ipc.kinds.memory import MEMORY_COLUMNS
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_COLUMN_INDEX = {name: i for i, name in enumerate(MEMORY_COLUMNS)}
_MAX_BYTES = 2.0**60
"""Bytes beyond which a number is no memory."""
_FACT_NAMES = ("device", "gpu", "total", "snapshot", "snapshots", "trouble")
"""Names of metadata that `MemoryFacts` takes as they are."""


class MemoryHistory:
    """Memory of a process over time: rows of samples, the oldest first.

    A row is about the time from the row before to its own. Times are seconds since the
    epoch, sizes bytes.
    """

    def __init__(self, samples: np.ndarray) -> None:
        """Copy the samples.

        Args:
            samples: (N, len(MEMORY_COLUMNS)) float64, N > 0.

        Raises:
            ViewerError: a time is not finite, or impossible.
        """
        rows = np.array(samples, np.float64, order="F")
        time = rows[:, 0]
        if not np.isfinite(time).all() or abs(time).max() > 1e12:
            raise ViewerError("memory: samples without a time")
        np.nan_to_num(rows, copy=False, nan=0.0, posinf=_MAX_BYTES, neginf=0.0)
        # A clock may have been set back.
        np.maximum.accumulate(time, out=time)
        rows[:, 2:] = rows[:, 2:].clip(0, _MAX_BYTES)
        rows.setflags(write=False)
        self._rows = rows

    @classmethod
    def empty(cls) -> MemoryHistory:
        """Return a history before the first samples."""
        return cls(np.zeros((1, len(MEMORY_COLUMNS))))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> np.ndarray:
        """(N,) float64: one of MEMORY_COLUMNS."""
        return self._rows[:, _COLUMN_INDEX[name]]

    @property
    def time(self) -> np.ndarray:
        return self._rows[:, 0]

    @property
    def first_time(self) -> float:
        return float(self.time[0])

    @property
    def last_time(self) -> float:
        return float(self.time[-1])

    @property
    def duration(self) -> float:
        """Seconds from the first sample to the last, at least one."""
        return max(self.last_time - self.first_time, 1.0)

    @property
    def on_gpu(self) -> bool:
        """True if a GPU's memory was sampled; otherwise only the host's is known."""
        return bool(self["reserved"].any() or self["peak"].any())

    def newest(self, name: str) -> float:
        """Return the newest value of one of MEMORY_COLUMNS."""
        return self._value(name, -1)

    def row_at(self, time: float) -> int | None:
        """Return the row about a time; None before the first and after the last."""
        if not self.first_time <= time <= self.last_time:
            return None
        return int(np.searchsorted(self.time, time))

    def fragmentation(self, row: int = -1) -> float:
        """Return the share of the reserved bytes that is not allocated, 0 to 1.

        It is cached, or lost between blocks in use.
        """
        reserved = self._value("reserved", row)
        if reserved <= 0:
            return 0.0
        return max(reserved - self._value("allocated", row), 0.0) / reserved

    def split_share(self, row: int = -1) -> float:
        """Return the share of the reserved bytes unused between blocks in use, 0 to 1.

        It cannot be released.
        """
        reserved = self._value("reserved", row)
        if reserved <= 0:
            return 0.0
        return min(self._value("inactive_split", row) / reserved, 1.0)

    def peak(
        self, start: float = -math.inf, end: float = math.inf, name: str = "peak"
    ) -> tuple[float, float]:
        """Return when a column was highest between two times, and its value then.

        Of equal values it is the first.
        """
        last_row = len(self) - 1
        first = min(int(np.searchsorted(self.time, start)), last_row)
        last = min(int(np.searchsorted(self.time, end)), last_row)
        values = self[name]
        row = first + int(values[first : last + 1].argmax())
        return float(self.time[row]), float(values[row])

    def _value(self, name: str, row: int) -> float:
        return float(self._rows[row, _COLUMN_INDEX[name]])


@dataclass(frozen=True)
class MemoryFacts:
    """Metadata of a frame."""

    device: str = "cpu"
    gpu: str = ""
    total: int = 0
    """Bytes of the GPU; 0: not known."""
    snapshot: str = ""
    """Name of the newest full snapshot."""
    snapshots: int = 0
    """Number of snapshots."""
    trouble: str = ""
    hz: float = 0.0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Other metadata."""

    @property
    def snapshot_path(self) -> Path | None:
        """The newest full snapshot, if it is on this machine and can be trusted."""
        return find_snapshot(self.snapshot)


def read_frame(
    tensors: Mapping[str, Any], meta: Mapping[str, Any]
) -> tuple[MemoryHistory, MemoryFacts]:
    """Copy a frame of kind memory, whose form its reader has checked.

    Raises:
        ViewerError: samples without a time.
    """
    fact_values = {name: meta[name] for name in _FACT_NAMES if name in meta}
    fact_values["total"] = max(fact_values.get("total", 0), 0)
    hz = meta.get("hz", 0.0)
    if not isinstance(hz, (int, float)):
        hz = 0.0
    metadata = {
        key: meta[key] for key in meta if key not in _FACT_NAMES and key != "hz"
    }
    memory_facts = MemoryFacts(**fact_values, hz=float(hz), metadata=metadata)
    return MemoryHistory(tensors["samples"].array), memory_facts
