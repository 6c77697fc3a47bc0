"""Makes one HTML page of a device's timeline, which needs no other file and no network.

The page holds the largest allocations as numbers, and stacks their bands by itself. What
is too small is one band; the page says how much that is.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splatview_viewer.core.quantities import count_text, size_text
from splatview_viewer.snapshot.analysis.colors import color_allocations
from splatview_viewer.snapshot.analysis.frames import (
    MACHINERY,
    USER,
    frame_kinds,
    frame_text,
)
from splatview_viewer.snapshot.export.escaping import escaped, legal, script_json
from splatview_viewer.snapshot.model import (
    bytes_at_moments,
    device_text,
    measure_peak,
    reserved_bytes,
)
from splatview_viewer.snapshot.timeline.bands import DARK, LIGHT, TimelineAxis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.snapshot.model import MemorySnapshot, Trace
    from splatview_viewer.snapshot.timeline.bands import Grounds

MAX_BANDS = 20_000
"""Allocations that have a band of their own."""
MAX_SAMPLES = 8_000
"""Moments at which the curves of all bytes, and the times, are kept."""
_MAX_FRAMES = 24
"""Frames of a stack that the page names."""
_PAGE = Path(__file__).with_name("timeline.html")
_DATA = "/*data*/"
_TITLE = "<!--title-->"


def timeline_html(snapshot: MemorySnapshot, trace: Trace) -> str:
    """Return the page of a device's timeline."""
    page = _PAGE.read_text(encoding="utf-8")
    data = script_json(_page_data(snapshot, trace))
    page = page.replace(_TITLE, escaped(snapshot.name))
    return page.replace(_DATA, data)


def _page_data(snapshot: MemorySnapshot, trace: Trace) -> dict[str, Any]:
    """Return what the page draws, as JSON takes it."""
    allocations = trace.allocations
    ids = _largest(allocations.size)
    samples = _SampledCurves.of(trace, ids)
    stacks, stack_of_band = np.unique(allocations.stack[ids], return_inverse=True)
    frames, frame_lists = _stack_frames(snapshot, stacks.tolist())
    colors = color_allocations(snapshot, trace, "stack")
    peak = measure_peak(trace)
    return {
        "name": legal(snapshot.name),
        "device": device_text(trace.device),
        "events": len(trace.events),
        "peak": peak.peak_moment,
        "peakBytes": peak.peak_bytes,
        "leftOut": _left_out_text(allocations.size, ids),
        "ids": _packed(ids, "<i4"),
        "start": _packed(allocations.start[ids], "<i4"),
        "end": _packed(allocations.end[ids], "<i4"),
        "size": _packed(allocations.size[ids], "<f8"),
        "color": _packed(colors.classes[ids], "<u2"),
        "palette": colors.palette.tolist(),
        "stack": _packed(stack_of_band, "<i4"),
        "stacks": frame_lists,
        "frames": frames,
        "moments": _packed(samples.moments, "<i4"),
        "times": _packed(samples.times_us, "<f8"),
        "small": _packed(samples.small, "<f8"),
        "reserved": _packed(samples.reserved, "<f8"),
        "grounds": {"dark": _grounds(DARK), "light": _grounds(LIGHT)},
    }


def _largest(sizes: np.ndarray) -> np.ndarray:
    """Return the ids of the largest allocations, ascending."""
    if len(sizes) <= MAX_BANDS:
        return np.arange(len(sizes))
    return np.sort(np.argpartition(-sizes, MAX_BANDS)[:MAX_BANDS])


def _left_out_text(sizes: np.ndarray, ids: np.ndarray) -> str:
    """Return which allocations have no band of their own; "" where all have one."""
    count = len(sizes) - len(ids)
    if not count:
        return ""
    is_left_out = np.ones(len(sizes), bool)
    is_left_out[ids] = False
    largest = size_text(int(sizes[is_left_out].max()))
    return f"{count_text(count, 'allocation')} of {largest} and less are one band"


class _SampledCurves(NamedTuple):
    """Curves at some moments, each of which stands for those up to the next one."""

    moments: np.ndarray
    times_us: np.ndarray
    """Microseconds since the first event; empty without times."""
    small: np.ndarray
    """Most live bytes of the allocations that have no band."""
    reserved: np.ndarray
    """Most reserved bytes."""

    @classmethod
    def of(cls, trace: Trace, ids: np.ndarray) -> _SampledCurves:
        """Sample the curves of a trace; ids: the allocations that have bands."""
        count = trace.moment_count
        event_indices = np.unique(
            np.linspace(0, count - 1, min(count, MAX_SAMPLES)).round()
        )
        event_indices = event_indices.astype(np.int64)
        allocations = trace.allocations
        sizes = allocations.size.copy()
        sizes[ids] = 0
        small = bytes_at_moments(count, allocations.start, allocations.end, sizes)
        axis = TimelineAxis(trace, "time")
        times_us = np.empty(0)
        if axis.has_times:
            times_us = axis.since_first_us(event_indices)
        return cls(
            event_indices,
            times_us,
            np.maximum.reduceat(small, event_indices),
            np.maximum.reduceat(reserved_bytes(trace), event_indices),
        )


def _stack_frames(
    snapshot: MemorySnapshot, stacks: Sequence[int]
) -> tuple[list[list[Any]], list[list[int]]]:
    """Return the frames that stacks name, and for each stack their indices.

    A frame is its words, and 1 for the user's own code.
    """
    kinds = frame_kinds(snapshot)
    index_of_frame: dict[int, int] = {}
    frames: list[list[Any]] = []
    frame_lists = []
    for stack in stacks:
        all_frames = snapshot.stacks.frames_of(stack).tolist()
        telling = [frame for frame in all_frames if kinds[frame] != MACHINERY]
        indices = []
        for frame in (telling or all_frames)[:_MAX_FRAMES]:
            if frame not in index_of_frame:
                index_of_frame[frame] = len(frames)
                words = legal(frame_text(snapshot, frame))
                frames.append([words, int(kinds[frame] == USER)])
            indices.append(index_of_frame[frame])
        frame_lists.append(indices)
    return frames, frame_lists


def _packed(values: np.ndarray, dtype: str) -> str:
    """Return numbers as base64 of their bytes, little endian."""
    return base64.b64encode(values.astype(dtype).tobytes()).decode("ascii")


def _grounds(grounds: Grounds) -> dict[str, list[int]]:
    """Return the colours of what holds no allocation."""
    return {
        "nothing": list(grounds.nothing),
        "reserved": list(grounds.reserved),
        "edge": list(grounds.edge),
    }
