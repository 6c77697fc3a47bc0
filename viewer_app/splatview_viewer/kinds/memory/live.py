"""Samples of a running trainer's memory, checked and copied, reduced to what a plot
needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_ipc.control.memory_snapshots import find
from splatview_ipc.kinds.memory import MEMORY_COLUMNS
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.format import round_up

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_PLACE = {name: i for i, name in enumerate(MEMORY_COLUMNS)}
_MOST = 2.0**60
"""Bytes beyond which a number is no memory."""


class MemoryColumns(NamedTuple):
    """The columns of pixels that have samples: their middles, and the extremes in each
    in bytes, (M,) float64.
    """

    x: np.ndarray
    low: np.ndarray
    peak: np.ndarray
    active: np.ndarray
    reserved: np.ndarray
    host: np.ndarray


class MemoryHistory:
    """Memory of a process over time: rows of samples, the oldest first.

    A row is about the time from the row before to its own. Times are seconds since the
    epoch, sizes bytes.
    """

    def __init__(self, samples: np.ndarray) -> None:
        """samples: (N, len(MEMORY_COLUMNS)) float64, N > 0, which is copied.

        Raises ViewerError for what cannot be.
        """
        rows = np.array(samples, np.float64, order="F")
        time = rows[:, 0]
        if not np.isfinite(time).all() or abs(time).max() > 1e12:
            raise ViewerError("memory: samples without a time")
        np.nan_to_num(rows, copy=False, nan=0.0, posinf=_MOST, neginf=0.0)
        np.maximum.accumulate(time, out=time)  # a clock that was set back
        rows[:, 2:] = rows[:, 2:].clip(0, _MOST)
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
        return self._rows[:, _PLACE[name]]

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
        """The newest value of one of MEMORY_COLUMNS."""
        return float(self._rows[-1, _PLACE[name]])

    def row_at(self, time: float) -> int | None:
        """The row that tells about a time; None before the first and after the last."""
        if not self.first_time <= time <= self.last_time:
            return None
        return int(np.searchsorted(self.time, time))

    def fragmentation(self, row: int = -1) -> float:
        """The share of what is reserved that is not allocated: cached, or lost between
        what is. 0 to 1.
        """
        reserved, allocated = (
            float(self._rows[row, _PLACE[name]]) for name in ("reserved", "allocated")
        )
        return max(reserved - allocated, 0.0) / reserved if reserved > 0 else 0.0

    def split_share(self, row: int = -1) -> float:
        """The share of what is reserved that lies unused between blocks in use: it
        cannot be given back. 0 to 1.
        """
        reserved, split = (
            float(self._rows[row, _PLACE[name]])
            for name in ("reserved", "inactive_split")
        )
        return min(split / reserved, 1.0) if reserved > 0 else 0.0

    def peak(
        self, begin: float = -math.inf, end: float = math.inf, name: str = "peak"
    ) -> tuple[float, float]:
        """When most was allocated between two times (the first, of equals), and how
        much.
        """
        lo, hi = (int(np.searchsorted(self.time, t)) for t in (begin, end))
        lo = min(lo, len(self) - 1)
        hi = min(hi, len(self) - 1)
        values = self[name][lo : hi + 1]
        row = lo + int(values.argmax())
        return float(self.time[row]), float(self[name][row])

    def increase_times(self, name: str, begin: float, end: float) -> list[float]:
        """When a count ("ooms", "retries") went up between two times."""
        return [
            t
            for t in self.time[1:][np.diff(self[name]) > 0].tolist()
            if begin <= t <= end
        ]

    def columns(self, begin: float, end: float, width: int) -> MemoryColumns:
        """Reduce to `width` columns the time from `begin` to `end`: of several rows in
        a column the extremes, so that no peak is lost.
        """
        edges = np.linspace(begin, end, width + 1)
        edges = edges[
            max(int(np.searchsorted(edges, self.first_time)) - 1, 0) : int(
                np.searchsorted(edges, self.last_time)
            )
            + 1
        ]
        n = len(self)
        lo = np.minimum(np.searchsorted(self.time, edges[:-1]), n - 1)
        hi = np.minimum(np.searchsorted(self.time, edges[1:]), n - 1) + 1
        spans = np.stack([lo, hi], axis=1).ravel()

        def extreme(name: str, ufunc: np.ufunc) -> np.ndarray:
            if len(spans):
                return ufunc.reduceat(np.append(self[name], 0.0), spans)[::2].copy()
            return np.empty(0)

        return MemoryColumns(
            0.5 * (edges[1:] + edges[:-1]),
            extreme("low", np.minimum),
            *(
                extreme(name, np.maximum)
                for name in ("peak", "active", "reserved", "host")
            ),
        )

    def steps(self, begin: float, end: float, most: int) -> list[tuple[float, int]]:
        """At most about `most` round numbers of steps between two times, and when each
        began. Empty where steps are not counted, or begin anew.
        """
        lo, hi = (int(np.searchsorted(self.time, t)) for t in (begin, end))
        step = self["step"][max(lo - 1, 0) : hi + 1]
        time = self.time[max(lo - 1, 0) : hi + 1]
        if (
            len(step) < 2
            or step[-1] <= max(step[0], 0)
            or (np.diff(step) < 0).any()
            or most < 1
        ):
            return []
        a, b = (float(np.interp(t, time, step)) for t in (begin, end))
        apart = max(round_up(max(b - a, 1e-9) / most), 1.0)
        numbers = np.arange(
            max(math.ceil(a / apart), 0) * apart, b + 0.5 * apart, apart
        )[: 2 * most + 2]
        numbers = numbers[(numbers >= step[0]) & (numbers <= step[-1])]
        grown, kept = np.unique(
            step, return_index=True
        )  # of a step that lasts, when it was first seen
        times = np.interp(numbers, grown, time[kept])
        return [
            (float(t), int(number))
            for t, number in zip(times, numbers, strict=True)
            if begin <= t <= end
        ]


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
        return find(self.snapshot)


def read_frame(
    tensors: Mapping[str, Any], meta: Mapping[str, Any]
) -> tuple[MemoryHistory, MemoryFacts]:
    """Copy a frame of kind memory, whose form its reader has checked.

    Raises ViewerError for samples without a time.
    """
    own = {
        name: meta[name]
        for name in ("device", "gpu", "total", "snapshot", "snapshots", "trouble")
        if name in meta
    }
    hz = meta.get("hz", 0.0)
    others = {
        name: value for name, value in meta.items() if name not in own and name != "hz"
    }
    own["total"] = max(own.get("total", 0), 0)
    return MemoryHistory(tensors["samples"].array), MemoryFacts(
        **own, hz=float(hz) if isinstance(hz, (int, float)) else 0.0, metadata=others
    )
