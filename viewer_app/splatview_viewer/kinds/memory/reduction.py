"""A history of memory, reduced to what a plot of it needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.core.quantities import round_up

if TYPE_CHECKING:
    from splatview_viewer.kinds.memory.live import MemoryHistory


class MemoryColumns(NamedTuple):
    """Columns of pixels that have samples: their middles, and the extremes in each.

    Arrays are (M,) float64; sizes are bytes.
    """

    x: np.ndarray
    low: np.ndarray
    peak: np.ndarray
    active: np.ndarray
    reserved: np.ndarray
    host: np.ndarray


def increase_times(
    history: MemoryHistory, name: str, start: float, end: float
) -> list[float]:
    """Return when a count ("ooms", "retries") went up between two times."""
    times = history.time[1:][np.diff(history[name]) > 0]
    return [time for time in times.tolist() if start <= time <= end]


def pixel_columns(
    history: MemoryHistory, start: float, end: float, width: int
) -> MemoryColumns:
    """Reduce the time from `start` to `end` to at most `width` columns of pixels.

    Of several rows in a column the extremes are kept, so that no peak is lost.
    """
    edges = np.linspace(start, end, width + 1)
    first_edge = max(int(np.searchsorted(edges, history.first_time)) - 1, 0)
    last_edge = int(np.searchsorted(edges, history.last_time))
    edges = edges[first_edge : last_edge + 1]
    last_row = len(history) - 1
    first = np.minimum(np.searchsorted(history.time, edges[:-1]), last_row)
    end_rows = np.minimum(np.searchsorted(history.time, edges[1:]), last_row) + 1
    spans = np.stack([first, end_rows], axis=1).ravel()

    def extremes(name: str, ufunc: np.ufunc) -> np.ndarray:
        if not len(spans):
            return np.empty(0)
        # `reduceat` reduces from each index to the next: every other one is wanted.
        # The value after the last makes the end of the last row a legal index.
        return ufunc.reduceat(np.append(history[name], 0.0), spans)[::2].copy()

    return MemoryColumns(
        x=0.5 * (edges[1:] + edges[:-1]),
        low=extremes("low", np.minimum),
        peak=extremes("peak", np.maximum),
        active=extremes("active", np.maximum),
        reserved=extremes("reserved", np.maximum),
        host=extremes("host", np.maximum),
    )


def step_times(
    history: MemoryHistory, start: float, end: float, count: int
) -> list[tuple[float, int]]:
    """Return round numbers of steps between two times, and when each began.

    Args:
        history: the samples.
        start: seconds since the epoch.
        end: the same.
        count: about the number of steps that are wanted at most.

    Returns:
        (time, step) each; none where steps are not counted, or begin again.
    """
    first = max(int(np.searchsorted(history.time, start)) - 1, 0)
    last = int(np.searchsorted(history.time, end))
    step = history["step"][first : last + 1]
    time = history.time[first : last + 1]
    if count < 1 or len(step) < 2:
        return []
    is_counted = step[-1] > max(step[0], 0) and (np.diff(step) >= 0).all()
    if not is_counted:
        return []
    begin_step = float(np.interp(start, time, step))
    end_step = float(np.interp(end, time, step))
    spacing = max(round_up(max(end_step - begin_step, 1e-9) / count), 1.0)
    first_number = max(math.ceil(begin_step / spacing), 0) * spacing
    steps = np.arange(first_number, end_step + 0.5 * spacing, spacing)
    steps = steps[: 2 * count + 2]
    steps = steps[(steps >= step[0]) & (steps <= step[-1])]
    # Of a step that lasts for several rows, the first one is when it began.
    different_steps, first_rows = np.unique(step, return_index=True)
    times = np.interp(steps, different_steps, time[first_rows])
    pairs = zip(times.tolist(), steps.tolist(), strict=True)
    return [
        (step_time, int(step_number))
        for step_time, step_number in pairs
        if start <= step_time <= end
    ]
