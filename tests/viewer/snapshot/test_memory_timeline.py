"""Timelines of memory snapshots against slow Python: bands, axis, lanes, addresses, painted columns and canvases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.snapshot_cases import any_paint, column_by_hand, live_by_hand, random_trace, trace_of

from splatview_viewer.kinds.snapshot.timeline.bands import Addresses, Axis, Bands, Layers, Paint, peaks

pytestmark = pytest.mark.usefixtures("timeline_kernels")

TRACES = {"usual": (0, 400, 20, 60), "no event": (2, 0, 20, 60), "one event": (4, 1, 0, 10), "long": (1, 1500, 50, 200)}
EXACT = 1.01
"""Colours are rounded to whole numbers."""


@pytest.fixture(params=TRACES)
def trace(request: pytest.FixtureRequest):
    return random_trace(*TRACES[request.param])


def moments_of(trace, count: int = 60) -> list[int]:
    rng = np.random.default_rng(0)
    last = len(trace.events)
    return sorted({0, last, *rng.integers(0, last + 1, count).tolist()})


def test_peaks_are_the_greatest_of_each_column_and_the_first_of_equals(trace) -> None:
    live, rng = Bands(trace).live, np.random.default_rng(2)
    for width in (1, 7, 100, 1000):
        edges = np.sort(rng.integers(-3, trace.moments + 3, width + 1))
        edges[0] = max(edges[0], 0)
        for x, moment in enumerate(peaks(live, edges).tolist()):
            first, last = max(int(edges[x]), 0), min(int(edges[x + 1]), trace.moments)
            if first < last:
                assert moment == first + int(np.argmax(live[first:last]))
            else:
                assert moment == (edges[x] - 1 if 0 < edges[x] <= trace.moments else -1)


@pytest.mark.parametrize("unit", ["events", "time"])
@pytest.mark.parametrize("trace", ["usual", "no event", "one event"], indirect=True)
def test_columns_of_the_axis_begin_where_moments_do(trace, unit) -> None:
    axis = Axis(trace, unit)
    x0, x1 = axis.extent
    assert axis.moment(x0) == 0 and axis.moment(x1) == len(trace.events)
    rng = np.random.default_rng(3)
    for width in (1, 10, 177):
        a, b = np.sort(rng.uniform(x0 - 5, x1 + 5, 2))
        edges = axis.edges(a, b, width)
        assert edges.shape == (width + 1,) and (np.diff(edges) >= 0).all()
        x = np.linspace(a, b, width + 1)
        for i in range(width):
            inside = [k for k in range(trace.moments) if x[i] <= axis.x_of(k) < x[i + 1]]
            assert min(edges[i + 1], trace.moments) - min(edges[i], trace.moments) == len(inside)
            assert not inside or edges[i] == inside[0] or axis.x_of(edges[i]) == axis.x_of(inside[0])
            if x[i + 1] < x0:
                assert peaks(Bands(trace).live, edges)[i] == -1
    for moment in moments_of(trace, 20):
        assert axis.x_of(axis.moment(axis.x_of(moment))) == axis.x_of(moment)


def test_times_of_moments() -> None:
    trace = trace_of(4, [0], [4], [1], time_us=[1000, 0, 3000, 2500])  # one is missing, one runs backwards
    axis = Axis(trace, "time")
    assert [axis.time_us(k) for k in range(5)] == [1000, 1000, 1000, 3000, 3000]
    assert axis.extent == (-20.0, 2020.0)
    assert [axis.moment(x) for x in (-99, -1, 0, 1999.5, 2000, 1e9)] == [0, 0, 2, 2, 4, 4]
    assert Axis(trace_of(3, [], [], []), "time").timed is False


def views(trace, layers: Layers, paint: Paint, height: float):
    """Painted columns of pictures of any part and size: the moment, height, low, bytes a pixel; pixels and ids. The
    line where reserved memory ends has its colour."""
    layers = replace(layers, grounds=(*layers.grounds[:2], layers.grounds[1]))
    rng, live = np.random.default_rng(5), Bands(trace).live
    for n in range(6):
        width, rows = int(rng.integers(1, 30)), int(rng.integers(1, 90))
        axis = Axis(trace, ("events", "time")[n % 2])
        x0, x1 = axis.extent
        length = (x1 - x0) * rng.uniform(0.002, 1.3)
        begin = x0 + rng.uniform(-0.1, 1) * (x1 - x0 - length)
        moments = peaks(live, axis.edges(begin, begin + length, width))
        per, low = (height + 1) * rng.uniform(0.01, 1.3) / rows, rng.uniform(-0.2, 0.9) * (height + 1)
        canvas = np.zeros((rows, width), np.uint32), np.zeros((rows, width), np.int32)
        cut = int(rng.integers(0, width + 1))
        for part in ((cut, width), (0, cut)):
            layers.paint(canvas, part, moments, low, per, paint)
        pixels = canvas[0].view(np.uint8).reshape(rows, width, 4)
        assert (pixels[..., 3] == 255).all()
        for x, moment in enumerate(moments.tolist()):
            yield moment, rows, low, per, pixels[:, x, :3], canvas[1][:, x]


@pytest.mark.parametrize("lit", [False, True])
@pytest.mark.parametrize("space", [Bands, Addresses])
def test_pixels_have_the_mean_colour_of_what_lies_in_them(trace, space, lit: bool) -> None:
    made, paint, size, spans = space(trace), any_paint(trace, 7, lit), trace.allocations.size, trace.spans
    for moment, rows, low, per, rgb, ids in views(trace, made.layers, paint, float(made.height)):
        live = np.array(live_by_hand(trace, moment) if moment >= 0 else [], int)
        begin, over = made.layers.blocks[1], np.flatnonzero((spans.start < moment) & (moment <= spans.end))
        if space is Bands:
            begin = np.cumsum(size[live]) - size[live]
            ground = [(0, int(made.reserved[moment]))] if moment >= 0 else []
        else:
            begin = begin[live]
            ground = [(int(made.layers.spans[1][s]), int(spans.size[s])) for s in over] if moment >= 0 else []
        rects = zip(live.tolist(), begin.tolist(), size[live].tolist(), strict=True)
        want, under = column_by_hand(rects, paint, rows, low, per, ground, made.layers.grounds)
        assert ids.tolist() == under.tolist()
        assert np.abs(rgb - want).max() <= EXACT


def test_a_spike_of_one_event_is_seen_in_every_zoom() -> None:
    events = 200_000
    rng = np.random.default_rng(0)
    start = np.arange(0, events, 2, dtype=np.int32)  # one is allocated, then the one 50 before it is freed
    end = np.minimum(start + 101, events).astype(np.int32)
    size = rng.integers(512, 4096, len(start))
    spike = int(rng.integers(len(start) // 4, len(start) // 2))
    size[spike], end[spike] = 10**9, start[spike] + 1  # live at one moment only
    trace = trace_of(events, start, end, size)
    bands, axis, moment = Bands(trace), Axis(trace, "events"), int(start[spike]) + 1
    classes = np.zeros(len(start), np.uint16)
    classes[spike] = 1
    paint = Paint(classes, np.array([[90, 90, 90], [250, 40, 40]], np.uint8))
    assert bands.live.argmax() == moment
    pixels, ids = canvas = np.empty((100, 1000), np.uint32), np.empty((100, 1000), np.int32)
    for zoom in range(0, int(np.log2(events)), 2):
        length = (events + 1) / 2**zoom
        begin = min(max(moment - length * rng.uniform(0.05, 0.95), 0), events + 1 - length)
        edges = axis.edges(begin, begin + length, 1000)
        bands.layers.paint(canvas, (0, 1000), peaks(bands.live, edges), 0.0, 1.1e7, paint)
        column = min(max(int((moment - begin) / length * 1000), 0), 999)
        around = slice(max(column - 1, 0), column + 2)
        assert (ids[20:80, around] == spike).all(0).any()
        assert (pixels[20:80, around] == 0xFF2828FA).all(0).any()
