"""The curves of a stream of kind scalars, checked and copied."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_ipc.kinds.scalars import SCALAR_COLUMNS
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Origin = str | tuple[float, float]
_PLACE = {name: i for i, name in enumerate(SCALAR_COLUMNS)}
_MOST_STEP = 2.0**53
_MOST_TIME = 1e12
_MOST_NAME = 100
_MOST_RUNS = 32
"""Number of new beginnings of steps within the range."""
_RATE_SPAN = 1.0
"""Seconds over which steps are counted, at least."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One series, the oldest first.

    Arrays are (N,) float64, N > 0, and never change.
    """

    name: str
    rows: np.ndarray
    """(N, 7), SCALAR_COLUMNS; column by column in memory."""

    def __getitem__(self, name: str) -> np.ndarray:
        """One of SCALAR_COLUMNS."""
        return self.rows[:, _PLACE[name]]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def short(self) -> str:
        """Its name within its plot."""
        return self.name.partition("/")[2] or self.name

    def across(self, origin: Origin) -> np.ndarray:
        """(N,) where its rows are on a horizontal axis: "step", "time" since the epoch,
        or (begin, seconds a unit).
        """
        if isinstance(origin, str):
            return self[origin]
        return (self["time"] - origin[0]) / origin[1]

    @cached_property
    def samples(self) -> int:
        """Number of samples in the rows."""
        return int(self["count"].sum())

    @property
    def last(self) -> float:
        """The newest value."""
        return float(self["value"][-1])

    @cached_property
    def finite(self) -> np.ndarray:
        """(N,) bool: which rows have a value."""
        return np.isfinite(self["value"])

    @cached_property
    def runs(self) -> list[slice]:
        """Parts within which steps grow: one, unless they began anew."""
        cuts = np.flatnonzero(np.diff(self["step"]) < 0) + 1
        edges = [0, *cuts.tolist(), len(self)][-_MOST_RUNS - 1 :]
        return [slice(edges[i], edges[i + 1]) for i in range(len(edges) - 1)]

    @classmethod
    def of(cls, name: str, rows: np.ndarray) -> Curve:
        """A curve of rows that anybody may have made: copied, and brought into order.

        Raises ViewerError.
        """
        rows = np.array(rows, np.float64, order="F")
        step = rows[:, 0]
        time = rows[:, 1]
        for what, values, most in (
            ("step", step, _MOST_STEP),
            ("time", time, _MOST_TIME),
        ):
            if not np.isfinite(values).all() or abs(values).max() > most:
                raise ViewerError(f"scalars: {name!r} has a {what} that is none")
        np.maximum.accumulate(time, out=time)  # a clock that was set back
        np.nan_to_num(rows[:, 5:], copy=False, nan=1.0, posinf=1.0, neginf=1.0)
        rows[:, 5] = np.clip(rows[:, 5], 1, 2.0**53)
        rows.setflags(write=False)
        return cls(name, rows)


@dataclass(frozen=True, eq=False)
class Curves:
    """All series of a stream."""

    all: Sequence[Curve] = ()
    """In the order in which they were first logged."""
    trouble: str = ""
    said: float | None = None
    """The newest step, as its metadata say."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Other metadata."""

    def __getitem__(self, name: str) -> Curve:
        return next(curve for curve in self.all if curve.name == name)

    @cached_property
    def clock(self) -> Curve:
        """The series that knows best which step was when: the one of most samples."""
        return max(self.all, key=lambda curve: curve.samples)

    @cached_property
    def begin(self) -> float:
        """Seconds since the epoch."""
        return min(float(curve["time"][0]) for curve in self.all)

    @cached_property
    def end(self) -> float:
        return max(float(curve["time"][-1]) for curve in self.all)

    @cached_property
    def step(self) -> float:
        """The newest step."""
        if self.said is not None:
            return self.said
        return float(
            max(self.all, key=lambda curve: float(curve["time"][-1]))["step"][-1]
        )

    @cached_property
    def rate(self) -> Curve | None:
        """Steps per second over the course of the training, a row for each second or
        longer; None before that.
        """
        step = self.clock["step"]
        time = self.clock["time"]
        marks = np.flatnonzero(
            np.diff(np.floor((time - time[0]) / _RATE_SPAN), prepend=-1.0)
        )
        gone = np.diff(step[marks])
        took = np.diff(time[marks])
        good = (gone >= 0) & (took > 0)
        if not good.any():
            return None
        value = gone[good] / took[good]
        at = marks[1:][good]
        one = np.ones(len(at))
        return Curve(
            "steps/s",
            np.stack([step[at], time[at], value, value, value, one, 0 * one], axis=1),
        )

    @cached_property
    def groups(self) -> dict[str, list[Curve]]:
        """Group curves into plots: names that begin alike, up to a "/".

        By the plot's title.
        """
        out: dict[str, list[Curve]] = {}
        for curve in self.all:
            out.setdefault(curve.name.partition("/")[0], []).append(curve)
        return {
            (curves[0].name if len(curves) == 1 else title): curves
            for title, curves in out.items()
        }


def read_frame(tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> Curves:
    """Copy a frame of kind scalars, whose form its reader has checked.

    Raises ViewerError for numbers that are none.
    """
    rows = tensors["rows"].array
    ends = np.array(tensors["ends"].array, np.int64)
    names = (
        bytes(np.array(tensors["names"].array))
        .decode(errors="replace")
        .split("\0")[:-1]
    )
    starts = np.append(0, ends[:-1])
    if (
        len(names) != len(ends)
        or ends[-1] != len(rows)
        or starts[0] != 0
        or (ends <= starts).any()
    ):
        raise ViewerError(
            f"scalars: {len(names)} names for {len(ends)} series that end at "
            f"{ends[:5].tolist()} "
            f"of {len(rows)} rows"
        )
    names = [
        "".join(c if c.isprintable() else "?" for c in name[:_MOST_NAME]) or "?"
        for name in names
    ]
    if len(set(names)) < len(names):
        raise ViewerError("scalars: two series of one name")
    others = {
        key: value for key, value in meta.items() if key not in ("trouble", "step")
    }
    step = meta.get("step")
    if isinstance(step, (int, float)) and abs(step) <= _MOST_STEP:
        said = float(step)
    else:
        said = None
    return Curves(
        [
            Curve.of(name, rows[a:b])
            for name, a, b in zip(names, starts, ends, strict=True)
        ],
        meta.get("trouble", ""),
        said,
        others,
    )
