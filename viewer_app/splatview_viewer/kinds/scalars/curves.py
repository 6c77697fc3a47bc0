"""Curves of a stream of kind scalars, checked and copied out of its frames."""

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
_COLUMN_INDEX = {name: i for i, name in enumerate(SCALAR_COLUMNS)}
_COUNT_COLUMN = _COLUMN_INDEX["count"]
_MAX_STEP = 2.0**53
_MAX_TIME = 1e12
_MAX_COUNT = 2.0**53
_MAX_NAME_LENGTH = 100
_MAX_RUNS = 32
"""New beginnings of steps within a curve that are drawn apart; the latest ones."""
_RATE_PERIOD_S = 1.0
"""The least time over which steps are counted for the rate."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One series, the oldest sample first.

    Arrays are (N,) float64, N > 0, and never change.
    """

    name: str
    rows: np.ndarray
    """(N, 7), SCALAR_COLUMNS; column by column in memory."""

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column, one of SCALAR_COLUMNS."""
        return self.rows[:, _COLUMN_INDEX[name]]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def short_name(self) -> str:
        """The curve's name without that of its plot."""
        return self.name.partition("/")[2] or self.name

    def axis_values(self, origin: Origin) -> np.ndarray:
        """Return where each row lies on a horizontal axis.

        Args:
            origin: the axis: "step", "time" (seconds since the epoch), or the time from
                a beginning, as (seconds since the epoch, seconds of one unit).

        Returns:
            (N,) float64.
        """
        if isinstance(origin, str):
            return self[origin]
        started_at, seconds_per_unit = origin
        return (self["time"] - started_at) / seconds_per_unit

    @cached_property
    def samples(self) -> int:
        """Number of samples in the rows."""
        return int(self["count"].sum())

    @property
    def newest_value(self) -> float:
        return float(self["value"][-1])

    @cached_property
    def is_finite(self) -> np.ndarray:
        """(N,) bool: which rows have a value."""
        return np.isfinite(self["value"])

    @cached_property
    def runs(self) -> list[slice]:
        """Parts within which steps grow: one, unless steps began again."""
        cuts = np.flatnonzero(np.diff(self["step"]) < 0) + 1
        edges = [0, *cuts.tolist(), len(self)]
        edges = edges[-_MAX_RUNS - 1 :]
        return [slice(edges[i], edges[i + 1]) for i in range(len(edges) - 1)]

    @classmethod
    def from_rows(cls, name: str, rows: np.ndarray) -> Curve:
        """Copy the rows of a frame, which any program may have written, into order.

        Times never fall (a clock may have been set back), counts are at least 1.

        Raises:
            ViewerError: a step or a time is no number, or out of range.
        """
        rows = np.array(rows, np.float64, order="F")
        _check_range(name, "step", rows[:, 0], _MAX_STEP)
        time = rows[:, 1]
        _check_range(name, "time", time, _MAX_TIME)
        np.maximum.accumulate(time, out=time)
        counts = rows[:, _COUNT_COLUMN:]
        np.nan_to_num(counts, copy=False, nan=1.0, posinf=1.0, neginf=1.0)
        rows[:, _COUNT_COLUMN] = np.clip(rows[:, _COUNT_COLUMN], 1, _MAX_COUNT)
        rows.setflags(write=False)
        return cls(name, rows)


def _check_range(name: str, column: str, values: np.ndarray, limit: float) -> None:
    """Raise ViewerError unless all values are finite and at most `limit` from 0."""
    if not np.isfinite(values).all() or abs(values).max() > limit:
        raise ViewerError(f"scalars: {name!r} has a {column} that is none")


@dataclass(frozen=True, eq=False)
class Curves:
    """All series of a stream."""

    all: Sequence[Curve] = ()
    """In the order in which they were first logged."""
    trouble: str = ""
    """What is wrong with the trainer's logging, as its metadata say."""
    stated_step: float | None = None
    """The newest step, as the metadata say."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the caller's own."""

    def __getitem__(self, name: str) -> Curve:
        return next(curve for curve in self.all if curve.name == name)

    @cached_property
    def clock(self) -> Curve:
        """The series that knows best which step was when: the one of most samples."""
        return max(self.all, key=lambda curve: curve.samples)

    @cached_property
    def started_at(self) -> float:
        """Time of the first row, in seconds since the epoch."""
        return min(float(curve["time"][0]) for curve in self.all)

    @cached_property
    def ended_at(self) -> float:
        """Time of the newest row, in seconds since the epoch."""
        return max(float(curve["time"][-1]) for curve in self.all)

    @cached_property
    def step(self) -> float:
        """The newest step."""
        if self.stated_step is not None:
            return self.stated_step
        newest = max(self.all, key=lambda curve: float(curve["time"][-1]))
        return float(newest["step"][-1])

    @cached_property
    def rate(self) -> Curve | None:
        """Steps per second over the training, a row for each second or longer.

        None while there is less than that.
        """
        step = self.clock["step"]
        time = self.clock["time"]
        period = np.floor((time - time[0]) / _RATE_PERIOD_S)
        marks = np.flatnonzero(np.diff(period, prepend=-1.0))
        steps_gained = np.diff(step[marks])
        seconds = np.diff(time[marks])
        is_valid = (steps_gained >= 0) & (seconds > 0)
        if not is_valid.any():
            return None
        value = steps_gained[is_valid] / seconds[is_valid]
        row = marks[1:][is_valid]
        count = np.ones(len(row))
        broken = np.zeros(len(row))
        columns = [step[row], time[row], value, value, value, count, broken]
        return Curve("steps/s", np.stack(columns, axis=1))

    @cached_property
    def groups(self) -> dict[str, list[Curve]]:
        """The curves of each plot, by its title.

        Names that begin alike, up to a "/", share a plot.
        """
        by_prefix: dict[str, list[Curve]] = {}
        for curve in self.all:
            prefix = curve.name.partition("/")[0]
            by_prefix.setdefault(prefix, []).append(curve)
        groups = {}
        for prefix, curves in by_prefix.items():
            if len(curves) == 1:
                title = curves[0].name
            else:
                title = prefix
            groups[title] = curves
        return groups


def read_frame(tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> Curves:
    """Copy a frame of kind scalars, whose form its reader has checked.

    Raises:
        ViewerError: numbers or names that are none.
    """
    rows = tensors["rows"].array
    ends = np.array(tensors["ends"].array, np.int64)
    names = _read_names(tensors["names"].array)
    starts = np.append(0, ends[:-1])
    _check_series(names, starts, ends, len(rows))
    names = [_printable(name) for name in names]
    if len(set(names)) < len(names):
        raise ViewerError("scalars: two series of one name")
    curves = [
        Curve.from_rows(name, rows[start:end])
        for name, start, end in zip(names, starts, ends, strict=True)
    ]
    metadata = {
        key: value for key, value in meta.items() if key not in ("trouble", "step")
    }
    return Curves(
        curves,
        trouble=meta.get("trouble", ""),
        stated_step=_read_step(meta.get("step")),
        metadata=metadata,
    )


def _read_names(names: np.ndarray) -> list[str]:
    """Decode names in UTF-8, each of which ends with a zero byte."""
    text = bytes(np.array(names)).decode(errors="replace")
    return text.split("\0")[:-1]


def _check_series(
    names: Sequence[str], starts: np.ndarray, ends: np.ndarray, row_count: int
) -> None:
    """Raise ViewerError unless every name has rows, and every row is of a name."""
    if (
        len(names) == len(ends)
        and ends[-1] == row_count
        and starts[0] == 0
        and (ends > starts).all()
    ):
        return
    raise ViewerError(
        f"scalars: {len(names)} names for {len(ends)} series that end at "
        f"{ends[:5].tolist()} of {row_count} rows"
    )


def _printable(name: str) -> str:
    """Return a name that can be written on one line, never empty."""
    characters = [c if c.isprintable() else "?" for c in name[:_MAX_NAME_LENGTH]]
    return "".join(characters) or "?"


def _read_step(step: Any) -> float | None:
    """Return a step from metadata; None where it is no number that a step can be."""
    if isinstance(step, (int, float)) and abs(step) <= _MAX_STEP:
        return float(step)
    return None
