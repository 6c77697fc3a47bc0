"""Curves smoothed, and reduced to columns of pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.scalars.curves import Curve, Origin

_CACHED_CURVES = 400
"""A little more than what six runs have at most, with their 64 curves each."""


# -- smoothing -------------------------------------------------------------------------


@lru_cache(_CACHED_CURVES)
def smoothed(curve: Curve, weight: float) -> np.ndarray:
    """Return (N,) float64, not to be written: each row's average with all before it.

    A sample weighs `weight` times as much as the next, 0 (no smoothing) up to less than
    1; divided by the sum of the weights (debiased), it begins at the first value. Rows
    of several samples count as that many. What is not finite is left out: NaN before
    the first that is.
    """
    values = curve["value"]
    if weight <= 0:
        return values
    is_finite = curve.is_finite
    decay = np.where(is_finite, np.power(weight, curve["count"]), 1.0)
    fresh = np.where(is_finite, values, 0.0) * (1.0 - decay)
    sums = _decaying_sums(decay, fresh)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / (1.0 - decay.cumprod())
    return np.where(is_finite.cumsum() > 0, means, np.nan)


def _decaying_sums(decay: np.ndarray, fresh: np.ndarray) -> np.ndarray:
    """Return y (N,), where y[i] = decay[i] * y[i - 1] + fresh[i]."""
    sums = []
    total = 0.0
    for factor, value in zip(decay.tolist(), fresh.tolist(), strict=True):
        total = factor * total + value
        sums.append(total)
    return np.array(sums)


# -- columns of pixels -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PixelColumns:
    """Points to draw a part of a curve with, some three for each column of pixels.

    Arrays are (M,) float64.
    """

    x: np.ndarray
    value: np.ndarray
    """The mean."""
    smooth: np.ndarray
    low: np.ndarray
    high: np.ndarray
    broken: np.ndarray
    """(B,): where something was not finite."""


@dataclass(frozen=True)
class HorizontalAxis:
    """The horizontal axis of a plot."""

    start: float
    end: float
    width: int
    """Width in pixels."""


@lru_cache(_CACHED_CURVES)
def pixel_columns(
    curve: Curve, axis: HorizontalAxis, weight: float, origin: Origin
) -> Sequence[PixelColumns]:
    """Reduce a curve to columns of pixels, apart for each part whose rows go right.

    Args:
        curve: all of it.
        axis: what is left out lies beyond it.
        weight: the smoothing, as for `smoothed`.
        origin: the unit of the axis, as for `Curve.axis_values`.
    """
    x = curve.axis_values(origin)
    smooth = smoothed(curve, weight)
    runs = curve.runs
    if (np.diff(x) >= 0).all():
        runs = [slice(0, len(x))]
    columns = []
    for run in runs:
        # One row more on either side: lines go on over the edges.
        low = max(int(np.searchsorted(x[run], axis.start)) - 1, 0)
        high = int(np.searchsorted(x[run], axis.end, "right")) + 1
        high = min(high, run.stop - run.start)
        if low < high:
            row_range = slice(run.start + low, run.start + high)
            columns.append(_columns_of(curve, row_range, x, smooth, axis))
    return columns


def _columns_of(
    curve: Curve,
    row_range: slice,
    x: np.ndarray,
    smooth: np.ndarray,
    axis: HorizontalAxis,
) -> PixelColumns:
    """Return the rows of a part as they are, or means and extremes where they are many."""
    xs = x[row_range]
    rows = curve.rows[row_range]
    is_finite = curve.is_finite[row_range]
    width = max(axis.width, 1)
    broken = xs[rows[:, 6] > 0]
    if len(xs) <= 2 * width:
        return PixelColumns(
            x=xs[is_finite],
            value=rows[is_finite, 2],
            smooth=smooth[row_range][is_finite],
            low=rows[is_finite, 3],
            high=rows[is_finite, 4],
            broken=broken,
        )
    edges = np.linspace(axis.start, axis.end, width + 1)
    cuts = np.unique(np.concatenate([[0], np.searchsorted(xs, edges), [len(xs)]]))
    starts = cuts[:-1]
    ends = np.append(starts[1:], len(xs)) - 1
    finite_counts = np.add.reduceat(is_finite.astype(np.float64), starts)
    has_value = finite_counts > 0

    def mean(values: np.ndarray) -> np.ndarray:
        sums = np.add.reduceat(np.where(is_finite, values, 0.0), starts)
        return sums[has_value] / finite_counts[has_value]

    if len(broken) > width:
        nearest = np.searchsorted(broken, edges).clip(0, len(broken) - 1)
        broken = broken[np.unique(nearest)]
    return PixelColumns(
        x=0.5 * (xs[starts] + xs[ends])[has_value],
        value=mean(rows[:, 2]),
        smooth=mean(smooth[row_range]),
        low=np.fmin.reduceat(rows[:, 3], starts)[has_value],
        high=np.fmax.reduceat(rows[:, 4], starts)[has_value],
        broken=broken,
    )


def vertical_limits(
    column_groups: Sequence[PixelColumns], axis: HorizontalAxis, is_log: bool
) -> tuple[float, float]:
    """Return the range of a vertical axis that shows these parts of curves.

    It holds the smoothed curves, and all but the extremes of the values behind them.

    Args:
        column_groups: what is drawn.
        axis: only what lies within it counts.
        is_log: the vertical axis is logarithmic, only for values over 0.
    """
    candidates = []
    for columns in column_groups:
        is_visible = (columns.x >= axis.start) & (columns.x <= axis.end)
        if not is_visible.any():
            continue
        raw = columns.value[is_visible]
        bulk = raw[raw > 0] if is_log else raw
        if len(bulk):
            bulk = np.percentile(bulk, (2, 98))
        values = np.concatenate([columns.smooth[is_visible], raw[-1:], bulk])
        is_legal = np.isfinite(values)
        if is_log:
            is_legal &= values > 0
        candidates.append(values[is_legal])
    if candidates:
        values = np.concatenate(candidates)
    else:
        values = np.empty(0)
    if not len(values):
        if is_log:
            return (0.1, 10.0)
        return (0.0, 1.0)
    low = float(values.min())
    high = float(values.max())
    if is_log:
        margin = max((math.log(high) - math.log(low)) * 0.06, 0.05)
        return low * math.exp(-margin), high * math.exp(margin)
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin
