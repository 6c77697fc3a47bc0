"""Timelines of memory snapshots agree with slow Python: axis, bands and addresses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.memory_data import Recorder, block, event, segment, snapshot

from splatview_viewer.snapshot.loading import from_pickled
from splatview_viewer.snapshot.model import Trace
from splatview_viewer.snapshot.timeline.bands import (
    DARK,
    Addresses,
    Bands,
    TimelineAxis,
    inks_of,
    peaks,
    why_not_measured,
)

pytestmark = pytest.mark.usefixtures("timeline_kernels")

TRACES = {
    "usual": (0, 400, 20),
    "no event": (2, 0, 20),
    "one event": (4, 1, 0),
    "long": (1, 3000, 50),
}
SLOT_BYTES = 1 << 20


@pytest.fixture(params=TRACES)
def trace(request: pytest.FixtureRequest) -> Trace:
    """Allocate many sizes in slots of three segments.

    Some allocations are from before the trace, some are of no bytes.
    """
    seed, events, early_count = TRACES[request.param]
    rng = np.random.default_rng(seed)
    r = Recorder()
    segments = [1 << 40, 1 << 41]
    # The middle of 64 bits lies in this segment.
    r.segments[2**63 - 30 * SLOT_BYTES] = (60 * SLOT_BYTES, 0)
    for slot in range(early_count):
        r.live[2**63 - 30 * SLOT_BYTES + slot * SLOT_BYTES] = (
            int(rng.integers(1, 9000)),
            (),
            0,
        )
    while len(r.events) < events:
        if segments and len(r.events) > 100 * len(r.segments):
            r.segment(segments.pop(0), 60 * SLOT_BYTES)
        addr = int(rng.choice(list(r.segments))) + int(rng.integers(60)) * SLOT_BYTES
        if addr in r.live:
            r.free(addr)
        elif rng.random() > 0.02:
            r.alloc(addr, int(2 ** rng.uniform(0, 20)))
        else:
            r.alloc(addr, 0)
    return r.snapshot().traces[0]


@pytest.mark.parametrize("unit", ["events", "time"])
@pytest.mark.parametrize("trace", ["usual", "no event", "one event"], indirect=True)
def test_axis_columns_start_where_moments_do(trace: Trace, unit: Any) -> None:
    axis = TimelineAxis(trace, unit)
    x0, x1 = axis.extent
    assert axis.moment(x0) == 0
    assert axis.moment(x1) == len(trace.events)
    rng = np.random.default_rng(3)
    for width in (1, 10, 177):
        a, b = np.sort(rng.uniform(x0 - 5, x1 + 5, 2))
        edges = axis.edges(a, b, width)
        x = np.linspace(a, b, width + 1)
        for i in range(width):
            inside = [
                k for k in range(trace.moment_count) if x[i] <= axis.x_of(k) < x[i + 1]
            ]
            first = min(edges[i], trace.moment_count)
            end = min(edges[i + 1], trace.moment_count)
            assert end - first == len(inside)
            if inside and edges[i] != inside[0]:
                assert axis.x_of(edges[i]) == axis.x_of(inside[0])
    for moment_index in range(0, trace.moment_count, 20):
        x_value = axis.x_of(moment_index)
        assert axis.x_of(axis.moment(x_value)) == x_value


def test_moments_have_steady_times() -> None:
    # The second time is missing, the last one runs backwards.
    times = (1000, 0, 3000, 2500)
    events = [event("snapshot", 0, 0, time_us=t) for t in times]
    (trace,) = from_pickled(snapshot(events)).traces
    axis = TimelineAxis(trace, "time")
    assert [axis.time_us(k) for k in range(5)] == [1000, 1000, 1000, 3000, 3000]
    assert axis.extent == (-20.0, 2020.0)
    indices = [axis.moment(x) for x in (-99, -1, 0, 1999.5, 2000, 1e9)]
    assert indices == [0, 0, 2, 2, 4, 4]


def column(
    rects: Any, inks: Any, bottoms: np.ndarray, per: float, ground: Any, grounds: Any
) -> Any:
    """Paint one column of bytes in slow Python: each pixel has the mean of its colours.

    Args:
        rects: (allocation, bottom, size) of each.
        inks: Classes, highlighted allocations and shades.
        bottoms: First byte of each pixel.
        per: Bytes per pixel.
        ground: (bottom, size) of reserved memory.
        grounds: Colours of empty and of reserved memory.

    Returns:
        (H, 3) float colours and (H,) ids.
    """

    def covered(bottom: int, size: int) -> np.ndarray:
        top = np.minimum(bottom + size, bottoms + per)
        return np.clip(top - np.maximum(bottom, bottoms), 0, None)[:, None]

    classes, highlighted, shades = inks
    ids = np.full(len(bottoms), -1)
    sums = np.zeros((len(bottoms), 3))
    full = np.zeros((len(bottoms), 1))
    dark = np.zeros(len(bottoms), bool)
    for i, bottom, size in rects:
        shade = int(classes[i])
        if len(highlighted) and not highlighted[i]:
            shade += len(shades) // 2
        sums += covered(bottom, size) * shades[shade]
        full += covered(bottom, size)
        ids[(bottoms + per / 2 >= bottom) & (bottoms + per / 2 < bottom + size)] = i
        dark |= (size >= 3 * per) & (bottoms <= bottom) & (bottom < bottoms + per)
    reserved = 0 * full
    for bottom, size in ground:
        reserved = reserved + covered(bottom, size)
    free = np.clip(reserved - full, 0, None)
    empty = np.clip(per - full - free, 0, None)
    rgb = (sums + free * grounds[1] + empty * grounds[0]) / per
    return rgb * np.where(dark, 0.62, 1)[:, None], ids


def _indices_at(columns: Any, moment_index: int) -> np.ndarray:
    """Return which allocations or spans are live at a moment; -1 is none."""
    if moment_index < 0:
        return np.empty(0, int)
    has_started = columns.start < moment_index
    return np.flatnonzero(has_started & (moment_index <= columns.end))


@pytest.mark.parametrize("is_highlighting", [False, True])
@pytest.mark.parametrize("space", [Bands, Addresses])
def test_pixels_have_the_mean_color_of_their_bytes(
    trace: Trace, space: Any, is_highlighting: bool
) -> None:
    painter = space(trace)
    size = trace.allocations.size
    spans = trace.spans
    rng = np.random.default_rng(7)
    layers = painter.layers
    live = Bands(trace).live
    # No line marks the end of reserved memory.
    reserved = DARK.free if layers.has_gaps else DARK.reserved
    grounds = replace(DARK, edge=reserved)
    classes = rng.integers(0, 7, len(size))
    colors = rng.integers(40, 255, (7, 3))
    highlighted = None
    if is_highlighting:
        highlighted = rng.random(len(size)) < 0.5
    inks = inks_of(classes, colors, highlighted)
    for unit in ("events", "time", "events", "time"):
        width = int(rng.integers(1, 30))
        rows = int(rng.integers(1, 90))
        axis = TimelineAxis(trace, unit)
        x0, x1 = axis.extent
        length = (x1 - x0) * rng.uniform(0.002, 1.3)
        start = x0 + rng.uniform(-0.1, 1) * (x1 - x0 - length)
        column_moments = peaks(live, axis.edges(start, start + length, width))
        per = (painter.height + 1) * rng.uniform(0.01, 1.3) / rows
        low = rng.uniform(-0.2, 0.9) * (painter.height + 1)
        canvas = np.zeros((rows, width), np.uint32), np.zeros((rows, width), np.int32)
        cut = int(rng.integers(0, width + 1))
        for column_range in ((cut, width), (0, cut)):
            layers.paint(canvas, column_range, column_moments, low, per, inks, grounds)
        for x, moment_index in enumerate(column_moments.tolist()):
            ids = _indices_at(trace.allocations, moment_index)
            span_ids = _indices_at(spans, moment_index)
            if space is Addresses:
                bottoms = layers.blocks[1][ids]
                span_bottoms = layers.spans[1][span_ids].tolist()
                span_sizes = spans.size[span_ids].tolist()
                ground = list(zip(span_bottoms, span_sizes, strict=True))
            else:
                bottoms = np.cumsum(size[ids]) - size[ids]
                ground = []
                if moment_index >= 0:
                    ground = [(0, int(painter.reserved[moment_index]))]
            rects = zip(ids.tolist(), bottoms.tolist(), size[ids].tolist(), strict=True)
            pixel_bottoms = low + np.arange(rows) * per
            expected, expected_ids = column(
                rects,
                inks,
                pixel_bottoms,
                per,
                ground,
                np.array([grounds.nothing, reserved]),
            )
            pixels = canvas[0][:, x].copy().view(np.uint8).reshape(rows, 4)
            assert canvas[1][:, x].tolist() == expected_ids.tolist()
            assert np.abs(pixels[:, :3] - expected).max() <= 1.01
            assert (pixels[:, 3] == 255).all()


def test_spike_of_one_event_is_painted_at_every_zoom() -> None:
    r = Recorder()
    spike_moment = 0
    for i in range(5000):
        r.alloc((i + 1) << 32, 600 + i % 3000)
        if i == 2000:
            # This allocation is live at one moment only.
            r.alloc(1 << 20, 10**9)
            spike_moment = len(r.events)
            r.free(1 << 20)
        if i >= 50:
            r.free((i - 49) << 32)
    (trace,) = r.snapshot().traces
    spike = int(trace.allocations.size.argmax())
    rng = np.random.default_rng(0)
    bands = Bands(trace)
    axis = TimelineAxis(trace, "events")
    classes = np.arange(len(trace.allocations)) == spike
    inks = inks_of(classes, np.array([[90, 90, 90], [250, 40, 40]]))
    pixels = np.empty((100, 1000), np.uint32)
    ids = np.empty((100, 1000), np.int32)
    for zoom in range(0, 14, 2):
        length = trace.moment_count / 2**zoom
        start = max(spike_moment - length * rng.uniform(0.05, 0.95), 0)
        start = min(start, trace.moment_count - length)
        column_moments = peaks(bands.live, axis.edges(start, start + length, 1000))
        bands.layers.paint((pixels, ids), (0, 1000), column_moments, 0.0, 1.1e7, inks)
        column = min(max(int((spike_moment - start) / length * 1000), 0), 999)
        nearby = slice(max(column - 1, 0), column + 2)
        assert (ids[20:80, nearby] == spike).all(0).any()
        assert (pixels[20:80, nearby] == 0xFF2828FA).all(0).any()


def test_bands_show_requested_rounded_or_active_bytes() -> None:
    events = [
        event("alloc", 0x1000, 700),
        event("free_requested", 0x1000, 700),
        event("alloc", 0x2000, 300),
        event("free_completed", 0x1000, 700),
    ]
    last_segment = segment(0x2000, [block(0x2000, 512, requested=300)])
    trace = from_pickled(snapshot(events, [last_segment])).traces[0]
    assert Bands(trace).live.tolist() == [0, 700, 0, 300, 300]
    assert Bands(trace, "active").live.tolist() == [0, 700, 700, 1000, 300]
    assert why_not_measured(trace, "requested") == ""
    assert why_not_measured(trace, "active") == ""
    # The block of the first one is gone.
    assert "1 allocation ended before" in why_not_measured(trace, "rounded")
    trace = from_pickled(snapshot(events[2:3], [last_segment])).traces[0]
    assert why_not_measured(trace, "rounded") == ""
    assert Bands(trace, "rounded").live.tolist() == [0, 512]
    trace = from_pickled(snapshot(events[:3])).traces[0]
    assert "when frees were completed" in why_not_measured(trace, "active")
