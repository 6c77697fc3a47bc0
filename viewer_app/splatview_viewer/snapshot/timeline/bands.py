"""Lays out the pictures of a trace: axis, stacked bands, address space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from splatview_viewer.core.quantities import count_text
from splatview_viewer.snapshot.model import (
    ACTIONS,
    MIDDLE_ADDRESS,
    bytes_at_moments,
    reserved_bytes,
    signed,
)
from splatview_viewer.snapshot.timeline.compiled import kernels

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import Trace


def frozen(values: Any, dtype: Any) -> np.ndarray:
    """Return values as an array that kernels may read.

    It is a plain array, contiguous and not writable; copied only if it must be.
    """
    array = np.ascontiguousarray(values, dtype).view(np.ndarray).view()
    array.flags.writeable = False
    return array


MIN_CHECKPOINT_GAP = 2048
"""Fewest allocations between two checkpoints."""


def live_index(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return an index of what is live when, for the kernel (`kernels.INDEX`).

    Row i is live at the moments start[i] < k <= end[i]. The index has checkpoints, lists
    of the rows that are live then: each after at least as many rows as the list before is
    long, so that all of them together are at most twice as long as there are rows.

    Args:
        start: events, int32 (A,), ascending from -1 on.
        end: events, int32 (A,).
    """
    checkpoint_moments = [0]
    checkpoint_firsts = [int(np.searchsorted(start, 0))]
    lists = [np.arange(checkpoint_firsts[0])]
    while True:
        next_row = checkpoint_firsts[-1] + max(len(lists[-1]), MIN_CHECKPOINT_GAP)
        if next_row >= len(start):
            break
        event_index = int(start[next_row]) + 1
        first = int(np.searchsorted(start, event_index))
        candidates = np.append(lists[-1], np.arange(checkpoint_firsts[-1], first))
        checkpoint_moments.append(event_index)
        checkpoint_firsts.append(first)
        lists.append(candidates[end[candidates] >= event_index])
    list_starts = np.cumsum([0, *map(len, lists)])
    return (
        frozen(start, np.int32),
        frozen(end, np.int32),
        frozen(checkpoint_moments, np.int32),
        frozen(checkpoint_firsts, np.int32),
        frozen(list_starts, np.int64),
        frozen(np.concatenate(lists), np.int32),
    )


class TimelineAxis:
    """The axis x of a timeline, in one of two units.

    "events": moment k is at k <= x < k + 1. "time": microseconds since the first event.
    """

    def __init__(self, trace: Trace, unit: Literal["events", "time"]) -> None:
        """Lay out the axis; a trace without times lasts 0 microseconds."""
        self.unit = unit
        self.last_moment = len(trace.events)
        """M, the last moment."""
        event_times = trace.events.time_us
        self.has_times = bool(self.last_moment) and int(event_times.max()) > 0
        """The trace says when things happened."""
        self.origin_us = 0
        """Microseconds since the epoch of x = 0 of the axis of time."""
        if self.has_times:
            self.origin_us = int(event_times[np.argmax(event_times > 0)])
        # The beginning of each moment, in microseconds since the first event.
        begins = np.empty(self.last_moment + 1, np.int64)
        np.maximum.accumulate(event_times, out=begins[1:])
        begins[1:] -= self.origin_us
        np.maximum(begins[1:], 0, out=begins[1:])
        length = int(begins[-1]) if self.last_moment else 0
        pad = max(length // 100, 1)
        begins[0] = -pad
        self._begins = begins
        self.extent: tuple[float, float] = (0.0, self.last_moment + 1.0)
        """The lowest and the highest x at which there is something to show."""
        if unit == "time":
            self.extent = (-pad, length + pad)

    def edges(self, x0: float, x1: float, width: int) -> np.ndarray:
        """Return the moments at which columns of pixels begin, int64 (width + 1,).

        Column i has the moments edges[i] <= k < edges[i + 1], those that begin in it.
        Edges before the axis are 0, those after it M + 2, so that `peaks` knows what lies
        outside.
        """
        x = np.ceil(np.linspace(x0, x1, width + 1).clip(-(2.0**62), 2.0**62))
        if self.unit == "events":
            return x.clip(0, self.last_moment + 2).astype(np.int64)
        edges = np.searchsorted(self._begins, x.astype(np.int64), "left")
        edges[x > self.extent[1]] = self.last_moment + 2
        return edges.astype(np.int64)

    def moment(self, x: float) -> int:
        """Return the moment at x; the first or the last moment outside of the axis."""
        if self.unit == "events":
            event_index = np.floor(x)
        else:
            event_index = np.searchsorted(self._begins, x, "right") - 1
        return int(min(max(event_index, 0), self.last_moment))

    def x_of(self, event_index: int) -> float:
        """Return the x at which a moment begins; from M + 1 on the end of the axis."""
        if event_index > self.last_moment:
            return float(self.extent[1])
        if self.unit == "events":
            return float(event_index)
        return float(self._begins[max(event_index, 0)])

    def time_us(self, event_index: int) -> int:
        """Return the beginning of a moment in microseconds since the epoch.

        Moment 0 begins with the trace. 0: the time is not known.
        """
        if not self.has_times:
            return 0
        event_index = min(max(event_index, 0), self.last_moment)
        return self.origin_us + max(int(self._begins[event_index]), 0)

    def since_first_us(self, event_indices: np.ndarray) -> np.ndarray:
        """Return the beginnings of moments in microseconds since the first event.

        event_indices: 0 to M.
        """
        return np.maximum(self._begins[event_indices], 0)


def peaks(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the index of the greatest value in each column of pixels, int32 (W,).

    Column x has the values of edges[x] <= k < edges[x + 1]; of equals the first counts. A
    column without values of its own gets edges[x] - 1, whose value holds there; -1 beyond
    the values.

    Args:
        edges: int64 (W + 1,), ascending.
    """
    count = len(values)
    first = np.maximum(edges[:-1], 0)
    end = np.minimum(edges[1:], count)
    has_previous = (edges[:-1] >= 1) & (edges[:-1] <= count)
    indices = np.where(has_previous, edges[:-1] - 1, -1).astype(np.int32)
    for x in np.flatnonzero(first < end).tolist():
        indices[x] = first[x] + values[first[x] : end[x]].argmax()
    return indices


Color = tuple[int, int, int]
"""Red, green, blue, 0 to 255."""


@dataclass(frozen=True)
class Grounds:
    """The colours of what holds no allocation."""

    nothing: Color
    """The ground where there is no memory."""
    reserved: Color
    """Bytes that are reserved and not live."""
    free: Color
    """In the address space: reserved memory that holds nothing."""
    edge: Color
    """The line where reserved bytes end."""
    dim: Color
    """The colour towards which those of dimmed allocations are mixed."""


DARK = Grounds((19, 21, 25), (27, 30, 35), (35, 38, 45), (76, 85, 102), (42, 44, 50))
LIGHT = Grounds(
    (255, 255, 255), (240, 243, 247), (228, 232, 238), (150, 160, 175), (226, 229, 234)
)
_DIMMING = 0.8
"""Share of _DIM in dimmed colours."""


Inks = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Colours of allocations, for the kernel: classes uint16 (A,); uint8 (A,), which are not
dimmed, or empty, if all are not; float64 (2 K, 3) colours, the dimmed ones last."""


def inks_of(
    classes: np.ndarray,
    palette: np.ndarray,
    lit_mask: np.ndarray | None = None,
    grounds: Grounds = DARK,
) -> Inks:
    """Return the colours of allocations, for the kernel.

    Args:
        classes: uint16 (A,), rows of the palette.
        palette: uint8 (K, 3).
        lit_mask: allocations that are not dimmed, bool (A,); None for all.
        grounds: what dimmed allocations fade into.
    """
    bright = palette.astype(np.float64)
    dimmed = bright + (np.array(grounds.dim) - bright) * _DIMMING
    shades = np.concatenate([bright, dimmed]).round().clip(0, 255)
    return (
        frozen(classes, np.uint16),
        frozen([] if lit_mask is None else lit_mask, np.uint8),
        frozen(shades, np.float64),
    )


Layer = tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]
"""An index of what is live (`live_index`), the byte at which each rectangle begins (empty:
they are stacked), and sizes."""
_EMPTY = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class TimelineLayers:
    """Rectangles of allocations and of reserved memory. Any thread may paint them."""

    blocks: Layer
    """Allocations."""
    spans: Layer
    """Reserved memory."""
    reserved: np.ndarray
    """Reserved bytes at each moment, int64 (M + 1,), instead of `spans`; or empty."""
    has_gaps: bool = False
    """Reserved memory lies between allocations, as in the address space."""

    def paint(
        self,
        canvas: tuple[np.ndarray, np.ndarray],
        columns: tuple[int, int],
        column_moments: np.ndarray,
        low: float,
        per_pixel: float,
        inks: Inks,
        grounds: Grounds = DARK,
    ) -> None:
        """Paint columns of a picture.

        Releases the GIL, so that threads can paint different columns at once. A pixel
        shows the mean of the colours of all that lies in it, by their bytes. What is 3
        pixels high and more has a darker line at its lower edge.

        Args:
            canvas: pixels uint32 (H, W), red, green, blue and alpha, and ids int32
                (H, W), the allocation under the centre of each pixel, -1: none.
            columns: the first column, and the one after the last.
            column_moments: the moment of each column, int32 (W,); -1: nothing but background.
            low: the lowest byte; row y shows the bytes from low + y * per_pixel on.
            per_pixel: bytes of a row.
            inks: colours of the allocations.
            grounds: colours of what holds none.
        """
        if self.has_gaps:
            reserved = grounds.free
        else:
            reserved = grounds.reserved
        tones = (grounds.nothing, reserved, grounds.edge)
        kernels().paint(
            self.blocks,
            self.spans,
            self.reserved,
            (*inks, frozen(tones, np.float64)),
            (frozen(column_moments, np.int32), float(low), float(per_pixel)),
            columns,
            canvas,
        )


Measure = Literal["requested", "rounded", "active"]
"""The height and the length of a band: bytes that the program asked for, until it asked
to free them; the block that the allocator took for them, as long; bytes that were asked
for, until their free was completed."""


def why_not_measured(trace: Trace, measure: Measure) -> str:
    """Return why a trace does not tell a measure of its bands; "" where it does."""
    allocations = trace.allocations
    if measure == "rounded":
        unknown_count = int((allocations.rounded == 0).sum())
        if unknown_count:
            return (
                "a trace records the bytes that were asked for; the blocks around them "
                "are known at the end alone, and "
                f"{count_text(unknown_count, 'allocation')} ended before"
            )
    if measure == "active":
        actions = trace.events.action
        has_requests = (actions == ACTIONS.index("free_requested")).any()
        has_completions = (actions == ACTIONS.index("free_completed")).any()
        if has_requests and not has_completions:
            return "the trace does not record when frees were completed"
    return ""


class Bands:
    """The bands of a trace: allocations stacked on each other."""

    def __init__(self, trace: Trace, measure: Measure = "requested") -> None:
        """Lay out the bands. measure: one that the trace tells (`why_not_measured`)."""
        allocations = trace.allocations
        size = allocations.rounded if measure == "rounded" else allocations.size
        end = allocations.freed if measure == "active" else allocations.end
        live = bytes_at_moments(trace.moment_count, allocations.start, end, size)
        self.live = frozen(live, np.int64)
        """Live bytes at each moment, int64 (M + 1,)."""
        self.reserved = frozen(reserved_bytes(trace), np.int64)
        """Bytes that the allocator had from the driver at each moment, int64 (M + 1,)."""
        self.most_live = int(self.live.max())
        """Most live bytes."""
        self.most_reserved = int(self.reserved.max())
        """Most bytes that the allocator had from the driver."""
        self.height = max(self.most_live, self.most_reserved)
        """Bytes from the bottom to the top."""
        no_events = np.empty(0, np.int32)
        self.layers = TimelineLayers(
            blocks=(
                live_index(allocations.start, end),
                _EMPTY,
                frozen(size, np.int64),
            ),
            spans=(live_index(no_events, no_events), _EMPTY, _EMPTY),
            reserved=self.reserved,
        )


MAX_GAPS_SHARE = 0.15
"""Height of all gaps together, at most, as a share of the ranges between them."""
GAP_SHARE = 1 / 250
"""Height of one gap, where there are few, as a share of all ranges."""


class Addresses:
    """The addresses that were reserved at any time, one range above the other.

    Between two ranges is a small gap. y is bytes from the lowest address, without the
    addresses that no range has, but with the gaps.
    """

    def __init__(self, trace: Trace) -> None:
        allocations = trace.allocations
        spans = trace.spans
        addr = signed(allocations.addr)
        size = frozen(allocations.size, np.int64)
        span_addr = signed(spans.addr)
        self._stack_ranges(span_addr, span_addr + spans.size)
        # Allocations in no reserved range: the trace does not say all.
        is_outside = self._y_of(addr, size) < 0
        if is_outside.any():
            outside = addr[is_outside]
            outside_end = outside + np.maximum(size[is_outside], 1)
            self._stack_ranges(
                np.concatenate([self._first, outside]),
                np.concatenate([self._end, outside_end]),
            )
        self.layers = TimelineLayers(
            blocks=(
                live_index(allocations.start, allocations.end),
                self._y_of(addr, size),
                size,
            ),
            spans=(
                live_index(spans.start, spans.end),
                self._y_of(span_addr, spans.size),
                frozen(spans.size, np.int64),
            ),
            reserved=_EMPTY,
            has_gaps=True,
        )

    def _stack_ranges(self, first: np.ndarray, end: np.ndarray) -> None:
        """Put ranges, which may overlap or touch, one above the other."""
        if len(first):
            order = np.argsort(first, kind="stable")
            first = first[order]
            end = np.maximum.accumulate(end[order])
            is_new = np.append(True, first[1:] > end[:-1])
            is_last = np.append(is_new[1:], True)
            first = first[is_new]
            end = end[is_last]
        length = end - first
        total = int(length.sum())
        gap = int(total * min(GAP_SHARE, MAX_GAPS_SHARE / max(len(first) - 1, 1)))
        bottom = np.cumsum(length + gap) - (length + gap)
        self._first = first
        self._end = end
        self._bottom = bottom
        self.height = 0
        """Bytes from the bottom to the top."""
        if len(first):
            self.height = int(bottom[-1] + length[-1])

    def _y_of(self, addr: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Return y of each (signed) address, int64; -1 for memory in no single range."""
        if not len(self._first):
            return frozen(np.full(len(addr), -1), np.int64)
        rows = np.maximum(np.searchsorted(self._first, addr, "right") - 1, 0)
        is_inside = (self._first[rows] <= addr) & (addr + size <= self._end[rows])
        y = addr - self._first[rows] + self._bottom[rows]
        return frozen(np.where(is_inside, y, -1), np.int64)

    def address(self, y: float) -> int | None:
        """Return the address at y; None in a gap, below and above."""
        byte = int(np.floor(y))
        row = int(np.searchsorted(self._bottom, byte, "right")) - 1
        if row < 0:
            return None
        addr = byte + int(self._first[row]) - int(self._bottom[row])
        if addr >= self._end[row]:
            return None
        return MIDDLE_ADDRESS + addr
