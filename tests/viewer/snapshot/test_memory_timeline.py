"""Timelines of memory snapshots against slow Python: bands, axis, lanes, addresses, painted columns and canvases."""

from __future__ import annotations

import numpy as np
import pytest
from support.snapshot_cases import any_paint, column_by_hand, live_by_hand, random_trace, trace_of

from splatview_viewer.kinds.snapshot.timeline.bands import Addresses, Axis, Bands, Canvas, Paint

pytestmark = pytest.mark.usefixtures("timeline_kernels")

TRACES = {"usual": (0, 400, 20, 60), "no event": (2, 0, 20, 60), "one event": (4, 1, 0, 10), "long": (1, 1500, 50, 200)}
EXACT = 1.01
"""Colours are rounded to whole numbers."""


@pytest.fixture(params=TRACES)
def trace(request: pytest.FixtureRequest):
    return random_trace(*TRACES[request.param])


def stacked(trace, moment: int) -> tuple[np.ndarray, np.ndarray]:
    """What is live, and the byte at which each begins."""
    ids = np.array(live_by_hand(trace, moment), np.int64)
    sizes = trace.allocations.size[ids]
    return ids, np.cumsum(sizes) - sizes


def moments_of(trace, count: int = 60) -> list[int]:
    rng = np.random.default_rng(0)
    last = len(trace.events)
    return sorted({0, last, *rng.integers(0, last + 1, count).tolist()})


def test_every_byte_is_picked_from_the_band_that_it_lies_in(trace) -> None:
    rng, size = np.random.default_rng(1), trace.allocations.size
    bands = Bands(trace)
    assert bands.live.shape == (trace.moments,)
    for moment in moments_of(trace, 20):
        ids, base = stacked(trace, moment)
        top = int(bands.live[moment])
        assert top == size[ids].sum()
        assert bands.pick(moment, -1) == bands.pick(moment, top) == bands.pick(moment, -0.5) == -1
        for byte in rng.uniform(0, top, 20) if top else ():
            over = np.flatnonzero((base <= byte) & (byte < base + size[ids]))
            assert bands.pick(moment, byte) == ids[over[0]]


def test_peaks_are_the_greatest_of_each_column_and_the_first_of_equals(trace) -> None:
    bands = Bands(trace)
    live = bands.live
    rng = np.random.default_rng(2)
    for width in (1, 7, 100, 1000):
        edges = np.sort(rng.integers(-3, trace.moments + 3, width + 1))
        edges[0] = max(edges[0], 0)
        most = bands.peaks.most(edges)
        for x, moment in enumerate(bands.peaks(edges).tolist()):
            first, last = max(int(edges[x]), 0), min(int(edges[x + 1]), trace.moments)
            if first < last:
                assert moment == first + int(np.argmax(live[first:last]))
                assert most[x] == live[first:last].max()
            else:
                assert moment == (edges[x] - 1 if 0 < edges[x] <= trace.moments else -1)
                assert most[x] == live[moment]


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
                assert Bands(trace).peaks(edges)[i] == -1
    for moment in moments_of(trace, 20):
        assert axis.x_of(axis.moment(axis.x_of(moment))) == axis.x_of(moment)


def test_times_of_moments() -> None:
    trace = trace_of(4, [0], [4], [1], time_us=[1000, 0, 3000, 2500])  # one is missing, one runs backwards
    axis = Axis(trace, "time")
    assert [axis.time_us(k) for k in range(5)] == [1000, 1000, 1000, 3000, 3000]
    assert axis.extent == (-20.0, 2020.0)
    assert [axis.moment(x) for x in (-99, -1, 0, 1999.5, 2000, 1e9)] == [0, 0, 2, 2, 4, 4]
    assert Axis(trace_of(3, [], [], []), "time").timed is False


def views(trace, bands: Bands, height: float, count: int = 6):
    """Canvases of any size with the moments of their columns, and the bytes that they show."""
    rng = np.random.default_rng(5)
    for n in range(count):
        canvas = Canvas(int(rng.integers(1, 30)), int(rng.integers(1, 90)))
        axis = Axis(trace, ("events", "time")[n % 2])
        x0, x1 = axis.extent
        length = (x1 - x0) * rng.uniform(0.002, 1.3)
        begin = x0 + rng.uniform(-0.1, 1) * (x1 - x0 - length)
        moments = bands.peaks(axis.edges(begin, begin + length, canvas.width))
        per = (height + 1) * rng.uniform(0.01, 1.3) / canvas.height
        yield canvas, moments, rng.uniform(-0.2, 0.9) * (height + 1), per, int(rng.integers(0, canvas.width + 1))


def rgba(canvas: Canvas) -> np.ndarray:
    return canvas.pixels.view(np.uint8).reshape(*canvas.pixels.shape, 4)


def off(canvas: Canvas, x: int, rgb, ids) -> float:
    """How far a column is from what it should be, after its ids are compared."""
    assert canvas.ids[x].tolist() == ids.tolist()
    assert (rgba(canvas)[x, :, 3] == 255).all()
    return float(np.abs(rgba(canvas)[x, :, :3] - rgb).max())


@pytest.mark.parametrize("lit", [False, True])
def test_bands_have_the_mean_colour_of_what_lies_in_a_pixel(trace, lit: bool) -> None:
    bands = Bands(trace)
    paint = any_paint(trace, 7, lit)
    for canvas, moments, low, per, cut in views(trace, bands, float(bands.live.max())):
        for part in (slice(cut, None), slice(0, cut)):
            bands.paint(canvas, part, moments, low, per, paint)
        for x, moment in enumerate(moments.tolist()):
            ids, base = stacked(trace, moment) if moment >= 0 else (np.empty(0, int), np.empty(0, int))
            rects = zip(ids.tolist(), base.tolist(), trace.allocations.size[ids].tolist(), strict=True)
            assert off(canvas, x, *column_by_hand(rects, paint, canvas.height, low, per)) <= EXACT


def test_addresses_have_the_mean_colour_of_what_lies_in_a_pixel(trace) -> None:
    space = Addresses(trace)
    bands, paint, spans, rows = Bands(trace), any_paint(trace, 8, True), trace.spans, trace.allocations
    for canvas, moments, low, per, cut in views(trace, bands, float(space.height)):
        for part in (slice(cut, None), slice(0, cut)):
            space.paint(canvas, part, moments, low, per, paint)
        for x, moment in enumerate(moments.tolist()):
            rects = [(i, int(space.places[i]), int(rows.size[i])) for i in live_by_hand(trace, moment) if moment >= 0]
            ground = [(int(space.span_places[s]), int(spans.size[s])) for s in range(len(spans))
                      if spans.start[s] < moment <= spans.end[s]]
            assert off(canvas, x, *column_by_hand(rects, paint, canvas.height, low, per, ground)) <= EXACT


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
    assert bands.live.argmax() == moment and bands.pick(moment, 5e8) == spike
    canvas = Canvas(1000, 100)
    for zoom in range(0, int(np.log2(events)), 2):
        length = (events + 1) / 2**zoom
        begin = min(max(moment - length * rng.uniform(0.05, 0.95), 0), events + 1 - length)
        edges = axis.edges(begin, begin + length, canvas.width)
        bands.paint(canvas, slice(None), bands.peaks(edges), 0.0, 1.1e9 / canvas.height, paint)
        here = int((moment - begin) / length * canvas.width)
        column = min(max(here, 0), canvas.width - 1)
        around = slice(max(column - 1, 0), column + 2)
        assert (canvas.ids[around, 20:80] == spike).all(1).any()
        assert (rgba(canvas)[around, 20:80, :3] == (250, 40, 40)).all((1, 2)).any()
