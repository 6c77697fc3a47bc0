"""Colours of allocations: quiet ones for a dark ground, told apart where they lie beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.tables import classes, group
from splatview_viewer.kinds.snapshot.model import kept, live_ids, peak_moment
from splatview_viewer.ui.format import age_text, count_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

ColorBy = Literal["stack", "size", "category", "age", "stream", "pool"]
COLOR_BYS: tuple[ColorBy, ...] = get_args(ColorBy)
_GREY = (104, 108, 116)


class Colors(NamedTuple):
    """A class for each allocation, and a colour for each class."""

    classes: np.ndarray
    """uint16 (A,)"""
    palette: np.ndarray
    """uint8 (K, 3), sRGB"""
    legend: list[tuple[str, int]]
    """What the classes are called, the most important first; not every class needs a name."""


def colors(snapshot: Snapshot, trace: Trace, by: ColorBy) -> Colors:
    """Colour the allocations of a device by their stack, size, category, age (how long they lived), stream or pool.

    The same stack has the same colour at every time, and nearly always in every snapshot.
    """
    if by == "stack":
        return _by_stack(snapshot, trace)
    numbers, label = _ages(trace) if by == "age" else classes(snapshot, trace, by)
    count, size = int(numbers.max(initial=0)) + 1, trace.allocations.size
    held = np.bincount(np.where(numbers < 0, count, numbers), size, count + 1)
    shown = np.flatnonzero(held > 1e-3 * held.sum())
    if by in ("size", "age"):  # colours from few to much, deep blue to light yellow, spread over what is worth seeing
        t = np.clip((np.arange(count) - shown.min(initial=0)) / max(int(np.ptp(shown)) if len(shown) else 0, 1), 0, 1)
        palette = _srgb(0.38 + 0.44 * t, 0.09 + 0.03 * np.sin(np.pi * t), (270 - 190 * t) % 360)
        order = shown[::-1]
    else:
        palette = _srgb(*np.array(_CATEGORY_HUES[:count]).T) if by == "category" else _distinct(count)
        order = shown[np.argsort(-held[shown], kind="stable")]
    legend = [(label(k if k < count else -1), k) for k in order[:12].tolist()]
    palette = np.concatenate([palette, np.array([_GREY], np.uint8)])
    return Colors(np.where(numbers < 0, count, numbers).astype(np.uint16), palette, legend)


def _ages(trace: Trace) -> tuple[np.ndarray, Callable[[int], str]]:
    """The decade of microseconds that each allocation lived, or of events where there are no times; -1: throughout."""
    a, m = trace.allocations, len(trace.events)
    times = trace.events.time_us
    timed = m > 0 and int(times[-1]) > int(times[0]) > 0
    stamp = np.append(times if timed else np.arange(m), times[-1] if timed else m)
    lived = stamp[np.minimum(a.end, m)] - stamp[np.maximum(a.start, 0)]
    decades = np.log10(np.maximum(lived, 1)).astype(np.int32)
    decades[(a.start < 0) & (a.end >= m)] = -1

    def label(decade: int) -> str:
        if decade < 0:
            return "throughout the trace"
        return f"from {age_text(10 ** decade)}" if timed else f"from {count_text(10 ** decade, 'event')}"

    return decades, label


def _srgb(lightness: np.ndarray, chroma: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """OKLCh (hue in degrees) to sRGB: uint8 (K, 3)."""
    a, b = chroma * np.cos(np.radians(hue)), chroma * np.sin(np.radians(hue))
    lms = np.stack([lightness + 0.3963377774 * a + 0.2158037573 * b, lightness - 0.1055613458 * a - 0.0638541728 * b,
                    lightness - 0.0894841775 * a - 1.2914855480 * b]) ** 3
    linear = np.array([[4.0767416621, -3.3077115913, 0.2309699292], [-1.2684380046, 2.6097574011, -0.3413193965],
                       [-0.0041960863, -0.7034186147, 1.7076147010]]) @ lms
    linear = np.clip(linear, 0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return (encoded.T * 255 + 0.5).astype(np.uint8)


def _distinct(count: int) -> np.ndarray:
    """Colours that differ from those numbered near them: uint8 (count, 3)."""
    i = np.arange(count)
    return _srgb(np.array([0.66, 0.53, 0.60])[i % 3], np.array([0.095, 0.105, 0.08])[i % 3], (250 + i * 137.508) % 360)


_STACK_COLORS = 36


@kept
def _by_stack(snapshot: Snapshot, trace: Trace) -> Colors:
    a = trace.allocations
    color = (_frames.stack_keys(snapshot) % np.uint64(_STACK_COLORS)).astype(np.int64)
    # Other colours for stacks whose bands lie on bands of the same colour.
    beside = a.stack[a.size >= max(1, int(a.size.max(initial=0)) >> 12)]
    below, above = beside[:-1], beside[1:]
    pairs = (below != above) & (below >= 0) & (above >= 0)
    below, above = below[pairs], above[pairs]
    for turn in range(1, 5):
        same = color[below] == color[above]
        move = np.unique(np.maximum(below[same], above[same]))
        color[move] = (color[move] + 1 + (move * 7 + turn * 5) % (_STACK_COLORS - 1)) % _STACK_COLORS
    palette = np.concatenate([_distinct(_STACK_COLORS), np.array([_GREY], np.uint8)])
    legend, named = [], set()
    for row in group(snapshot, trace, live_ids(trace, peak_moment(trace)), "stack").first(12):
        number = int(color[row.key]) if row.key >= 0 else _STACK_COLORS
        if number not in named:
            named.add(number)
            legend.append((_frames.stack_text(snapshot, row.key, caller=False), number))
    return Colors(np.append(color, _STACK_COLORS).astype(np.uint16)[a.stack], palette, legend)


_CATEGORY_HUES = ((0.60, 0.10, 250), (0.62, 0.11, 55), (0.55, 0.11, 305), (0.64, 0.10, 150), (0.70, 0.09, 90),
                  (0.55, 0.05, 200), (0.68, 0.09, 200), (0.58, 0.09, 350), (0.60, 0.12, 25), (0.47, 0.03, 250),
                  (0.52, 0.008, 260))
"""Lightness, chroma and hue of CATEGORIES."""
