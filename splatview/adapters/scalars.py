"""What `splatview.log` was given: the course of each scalar, and how that becomes frames."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import torch

from splatview.adapters import NamedTensors
from splatview_ipc.kinds.scalars import SCALAR_COLUMNS, SCALAR_ROWS, SCALAR_SERIES
from splatview_ipc.kinds.series import Series

if TYPE_CHECKING:
    from collections.abc import Mapping

FEW = 4
"""So many series have as many rows each as one alone would."""

LAYOUT = NamedTensors("scalars", ("rows", "ends", "names"), shape=(SCALAR_ROWS, len(SCALAR_COLUMNS)), dtype="float64")


class Table:
    """The series of one run, by name, in the order in which they were first logged. Any thread."""

    def __init__(self) -> None:
        self.step: float = 0.0
        """The newest step."""
        self._series: dict[str, Series] = {}
        self._lock = threading.Lock()
        self._names = b""

    def __bool__(self) -> bool:
        return bool(self._series)

    def add(self, samples: Mapping[str, list[tuple[float, float, float]]], step: float) -> None:
        """Add samples (step, time, value), the oldest first, at most SCALAR_SERIES names in all; `step`: the newest."""
        with self._lock:
            new = [name for name in samples if name not in self._series]
            if new:
                count = len(self._series) + len(new)
                most = SCALAR_ROWS // max(FEW, 1 << (count - 1).bit_length())
                for series in self._series.values():
                    series.limit(most)
                self._series |= {name: Series(most) for name in new}
                self._names = b"".join(name.encode() + b"\0" for name in self._series)
            for name, rows in samples.items():
                self._series[name].extend(np.array(rows, np.float64))
            self.step = step

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """What a frame holds: rows, ends, names, as `splatview_ipc.kinds` says. Copies, which never change."""
        with self._lock:
            rows = [series.rows for series in self._series.values()]
            ends = np.cumsum([len(r) for r in rows]).astype(np.int32)
            names = np.frombuffer(self._names, np.uint8).copy()
            return torch.from_numpy(np.concatenate(rows)), torch.from_numpy(ends), torch.from_numpy(names)


assert SCALAR_SERIES <= SCALAR_ROWS // 8
