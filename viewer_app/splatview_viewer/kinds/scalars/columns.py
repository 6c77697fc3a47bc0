"""A curve in columns of pixels: of many rows in one column the extremes, so that nothing that stands out is lost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.scalars.curves import Curve


@dataclass(frozen=True, eq=False)
class Columns:
    """Drawn points of a part of a curve: at most some three points for each column of pixels. (M,) float64 each."""

    x: np.ndarray
    value: np.ndarray
    """The mean."""
    smooth: np.ndarray
    low: np.ndarray
    high: np.ndarray
    broken: np.ndarray
    """(B,): where something was not finite."""

    @cached_property
    def band(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """x, low, high of the area between the extremes, which is as thin as the curve where nothing was for a while;
        None where they are the curve."""
        if not (self.high > self.low).any():
            return None
        apart = np.diff(self.x)
        gaps = np.flatnonzero(apart > 6 * np.median(apart)) if len(apart) > 8 else np.empty(0, np.intp)
        at = np.repeat(gaps + 1, 2)
        ends = np.stack([gaps, gaps + 1], axis=1).ravel()
        return (np.insert(self.x, at, self.x[ends]), np.insert(self.low, at, self.value[ends]),
                np.insert(self.high, at, self.value[ends]))


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of a plot."""

    begin: float
    end: float
    width: int
    """Pixels."""
    log: bool = False
    """True if it is logarithmic: values not over 0 are not seen then."""


def columns(curve: Curve, x: np.ndarray, smooth: np.ndarray, axis: Axis) -> Sequence[Columns]:
    """Columns of a curve in a plot: a `Columns` for each part that is seen within which x grows.

    x: (N,) where its rows lie: growing, or within each of the curve's `runs`. smooth: (N,) the curve smoothed.
    """
    out = []
    for run in [slice(0, len(x))] if (np.diff(x) >= 0).all() else curve.runs:
        found = _of_run(curve, run, x, smooth, axis)
        if found is not None:
            out.append(found)
    return out


def _of_run(curve: Curve, run: slice, x: np.ndarray, smooth: np.ndarray, axis: Axis) -> Columns | None:
    begin, end, width, log = axis.begin, axis.end, max(axis.width, 1), axis.log
    xs = x[run]
    if log:
        begin = max(begin, 1e-300)
        end = max(end, begin * (1 + 1e-9))
    least = int(np.searchsorted(xs, 0.0, "right")) if log else 0
    lo = max(int(np.searchsorted(xs, begin)) - 1, least)  # the lines go on over the edges
    hi = min(int(np.searchsorted(xs, end, "right")) + 1, len(xs))
    if lo >= hi:
        return None
    part = slice((run.start or 0) + lo, (run.start or 0) + hi)
    xs, rows = x[part], curve.rows[part]
    broken = xs[rows[:, 6] > 0]
    good = curve.finite[part]
    if hi - lo <= 2 * width:
        with np.errstate(all="ignore"):
            return Columns(xs[good], rows[good, 2], smooth[part][good], rows[good, 3], rows[good, 4], broken)
    edges = (np.geomspace if log else np.linspace)(begin, end, width + 1)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(xs, edges), [len(xs)]]))
    starts = cuts[:-1][np.diff(cuts) > 0]
    n = np.add.reduceat(good.astype(np.float64), starts)
    there = n > 0
    value = np.add.reduceat(np.where(good, rows[:, 2], 0.0), starts)[there] / n[there]
    smoothed = np.add.reduceat(np.where(good, smooth[part], 0.0), starts)[there] / n[there]
    ends = np.append(starts[1:], len(xs)) - 1
    middle = 0.5 * (xs[starts] + xs[ends])[there]
    low, high = np.fmin.reduceat(rows[:, 3], starts)[there], np.fmax.reduceat(rows[:, 4], starts)[there]
    if len(broken) > width:
        broken = broken[np.unique(np.searchsorted(broken, edges).clip(0, len(broken) - 1))]
    return Columns(middle, value, smoothed, low, high, broken)


def limits(parts: Sequence[Columns], axis: Axis, log: bool, outliers: bool) -> tuple[float, float]:
    """The vertical limits of a plot that shows these: of all that is seen; unless `outliers` are to be seen, of the
    smoothed curves and of most of what is behind them. log: whether the vertical axis is logarithmic, which has room
    only for what is over 0."""
    found = []
    for part in parts:
        seen = (part.x >= axis.begin) & (part.x <= axis.end)
        if not seen.any():
            continue
        pieces = [part.smooth[seen], part.value[seen][-1:]]
        if outliers:
            pieces += [part.low[seen], part.high[seen]]
        else:
            raw = part.value[seen]
            raw = raw[raw > 0] if log else raw
            pieces += [np.percentile(raw, (2, 98))] if len(raw) else []
        values = np.concatenate(pieces)
        found.append(values[np.isfinite(values) & ((values > 0) | (not log))])
    values = np.concatenate(found) if found else np.empty(0)
    if not len(values):
        return (0.1, 10.0) if log else (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    if log:
        room = max((math.log(high) - math.log(low)) * 0.06, 0.05)
        return low * math.exp(-room), high * math.exp(room)
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - room, high + room
