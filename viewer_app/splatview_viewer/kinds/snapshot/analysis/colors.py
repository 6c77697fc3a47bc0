"""Colours of allocations: quiet ones for a dark ground, told apart where they lie beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.frames import CATEGORIES, categories
from splatview_viewer.kinds.snapshot.analysis.tables import group, size_class, size_class_text
from splatview_viewer.kinds.snapshot.model import kept, live_ids, peak_moment, pool_text, stream_text
from splatview_viewer.ui.format import age_text, count_text, size_text

if TYPE_CHECKING:
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
    match by:
        case "stream":
            return _by_number(trace.allocations.stream, trace, [stream_text(s) for s in snapshot.streams])
        case "pool":
            return _by_number(trace.allocations.pool, trace, [pool_text(p) for p in snapshot.pools])
    return {"stack": _by_stack, "size": _by_size, "category": _by_category, "age": _by_age}[by](snapshot, trace)


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


def _ramp(count: int, classes: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Colours from few to much, deep blue to light yellow: uint8 (count, 3).

    They are spread over the classes that hold any bytes worth seeing, so that those differ.
    """
    held = np.bincount(classes, size, count)[:count]
    seen = np.flatnonzero(held > 1e-3 * held.sum())
    low, high = (int(seen[0]), int(seen[-1])) if len(seen) else (0, count - 1)
    t = np.clip((np.arange(count) - low) / max(high - low, 1), 0, 1)
    return _srgb(0.38 + 0.44 * t, 0.09 + 0.03 * np.sin(np.pi * t), (270 - 190 * t) % 360)


@kept
def _live_at_peak(snapshot: Snapshot, trace: Trace) -> np.ndarray:
    """int32: ids."""
    return live_ids(trace, peak_moment(trace))


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
    classes = np.append(color, _STACK_COLORS).astype(np.uint16)[a.stack]
    legend, named = [], set()
    for row in group(snapshot, trace, _live_at_peak(snapshot, trace), "stack").first(12):
        number = int(color[row.key]) if row.key >= 0 else _STACK_COLORS
        if number not in named:
            named.add(number)
            legend.append((_frames.stack_text(snapshot, row.key, caller=False), number))
    return Colors(classes, palette, legend)


def _by_size(snapshot: Snapshot, trace: Trace) -> Colors:
    first, last = 9, 33  # up to 512 B; 8 GiB and more
    classes = np.clip(size_class(trace.allocations.size), first, last) - first
    held = np.bincount(classes, trace.allocations.size, last - first + 1)
    seen = np.flatnonzero(held > 1e-3 * held.sum())[::-1].tolist()
    legend = [(f"{size_text(1 << last)} and more" if k == last - first else size_class_text(k + first), k)
              for k in seen[:11]]
    if seen and np.flatnonzero(held)[0] < seen[-1]:
        legend.append(("smaller", int(np.flatnonzero(held)[0])))
    return Colors(classes.astype(np.uint16), _ramp(last - first + 1, classes, trace.allocations.size), legend)


_CATEGORY_HUES = {"parameters": (0.60, 0.10, 250), "gradients": (0.62, 0.11, 55), "optimizer state": (0.55, 0.11, 305),
                  "activations": (0.64, 0.10, 150), "backward temporaries": (0.70, 0.09, 90),
                  "other temporaries": (0.55, 0.05, 200), "inputs": (0.68, 0.09, 200),
                  "library workspaces": (0.58, 0.09, 350), "communication": (0.60, 0.12, 25),
                  "before the trace": (0.47, 0.03, 250), "other": (0.52, 0.008, 260)}


def _by_category(snapshot: Snapshot, trace: Trace) -> Colors:
    of_allocation, names = categories(snapshot, trace)
    palette = _srgb(*np.array([_CATEGORY_HUES[name] for name in CATEGORIES]).T)
    peak = _live_at_peak(snapshot, trace)
    held = np.bincount(of_allocation[peak], trace.allocations.size[peak].astype(np.float64), len(names))
    there = np.bincount(of_allocation, minlength=len(names))
    order = sorted(np.flatnonzero(there).tolist(), key=lambda k: -held[k])
    return Colors(of_allocation.astype(np.uint16), palette, [(names[k], k) for k in order])


def _by_age(snapshot: Snapshot, trace: Trace) -> Colors:
    """Eight classes a decade of microseconds, or of events where the snapshot has no times."""
    a, m = trace.allocations, len(trace.events)
    times = trace.events.time_us
    timed = m > 0 and int(times[-1]) > int(times[0]) > 0
    stamp = np.append(times if timed else np.arange(m), times[-1] if timed else m)
    lived = stamp[np.minimum(a.end, m)] - stamp[np.maximum(a.start, 0)]
    classes = np.clip(np.log10(np.maximum(lived, 1)) * 4, 0, 38).astype(np.uint16)
    classes[(a.start < 0) & (a.end >= m)] = 39
    palette = np.concatenate([_ramp(39, classes, a.size), np.array([_GREY], np.uint8)])
    here = np.bincount(classes, minlength=40)
    legend = [] if not here[39] else [("throughout the trace", 39)]
    for power in range(9, -1, -1):
        if here[power * 4: min(power * 4 + 4, 39)].any():
            low = 10 ** power
            legend.append((f"from {age_text(low)}" if timed else f"from {count_text(low, 'event')}", power * 4 + 2))
    return Colors(classes, palette, legend)


def _by_number(number: np.ndarray, trace: Trace, names: list[str]) -> Colors:
    palette = np.concatenate([_distinct(max(1, len(names))), np.array([_GREY], np.uint8)])
    classes = np.where(number < 0, len(palette) - 1, number).astype(np.uint16)
    held = np.bincount(classes, trace.allocations.size.astype(np.float64), len(palette))
    order = [int(k) for k in np.argsort(-held, kind="stable") if held[k] > 0][:16]
    return Colors(classes, palette, [(names[k] if k < len(names) else "not known", k) for k in order])
