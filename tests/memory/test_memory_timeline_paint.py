"""Painted columns against the mean of the colours of what lies in each pixel, and spikes that must not vanish."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.repetitions import exhaustive
from support.timeline_cases import any_paint, column_by_hand, live_by_hand, random_trace, trace_of, use_reference
from support.wait import PATIENCE

from splatview.viewer_app.memory.timeline import Addresses, Axis, Bands, Canvas, Paint

EXACT = 1.01
"""Colours are rounded to whole numbers."""
SUMMARY = 13.0
"""Where 16 bands lie in a fifth of a pixel they may be divided between two pixels as if they were mixed."""


@pytest.fixture(params=["kernels", "reference"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The compiled kernels, and their reference."""
    if request.param == "reference":
        use_reference(monkeypatch)
    return request.param


TRACES = [(0, 400, 20, 60), (1, 1000, 250, 300), (2, 3000, 10, 900), (3, 0, 20, 60)]
SEEDS = [exhaustive(trace) if trace[0] in (1, 2) else trace for trace in TRACES]


def seed_of(trace: tuple[int, ...]) -> str:
    return f"seed {trace[0]}"


@pytest.fixture(params=TRACES, ids=seed_of)
def trace(request: pytest.FixtureRequest):
    return random_trace(*request.param)


def views(trace, bands: Bands, height: float, count: int = 10):
    """Canvases of any size with the moments of their columns, and the bytes that they show."""
    rng = np.random.default_rng(5)
    for n in range(count):
        canvas = Canvas(int(rng.integers(1, 30)), int(rng.integers(1, 90)))
        axis = Axis(trace, ("events", "time")[n % 2])
        x0, x1 = axis.extent
        length = (x1 - x0) * rng.uniform(0.002, 1.3)
        begin = x0 + rng.uniform(-0.1, 1) * (x1 - x0 - length)
        moments = bands.peaks(axis.edges(begin, begin + length, canvas.width))
        if n % 5 == 4:
            rng.shuffle(moments)
        per = (height + 1) * rng.uniform(0.01, 1.3) / canvas.height
        yield canvas, moments, rng.uniform(-0.2, 0.9) * (height + 1), per, int(rng.integers(0, canvas.width + 1))


def off(canvas: Canvas, x: int, rgb, ids) -> float:
    """How far a column is from what it should be, after its ids are compared."""
    assert canvas.ids[x].tolist() == ids.tolist()
    assert (canvas.rgba[x, :, 3] == 255).all()
    return float(np.abs(canvas.rgba[x, :, :3] - rgb).max())


@pytest.mark.parametrize("trace", SEEDS, ids=seed_of, indirect=True)
@pytest.mark.parametrize(("third", "lit"), [(False, False), (True, True), exhaustive(False, True),
                                            exhaustive(True, False)],
                         ids=["all-plain", "members-lit", "all-lit", "members-plain"])
def test_bands_have_the_mean_colour_of_what_lies_in_a_pixel(way, trace, third: bool, lit: bool) -> None:
    members = np.arange(len(trace.allocations)) % 3 == 0 if third else None
    bands = Bands(trace, members)
    paint = any_paint(trace, 7, lit)
    errors = []
    for n, (canvas, moments, low, per, cut) in enumerate(views(trace, bands, float(bands.live.max()))):
        offset = np.random.default_rng(n).integers(0, 3, canvas.width) * 1000 if n % 4 == 3 else None
        for part in (slice(cut, None), slice(0, cut)):
            bands.paint(canvas, part, moments, low, per, paint, offset)
        for x, moment in enumerate(moments.tolist()):
            ids, base = bands.at(moment) if moment >= 0 else (np.empty(0, int), np.empty(0, int))
            under = 0 if offset is None else int(offset[x])
            rects = zip(ids.tolist(), (base + under).tolist(), trace.allocations.size[ids].tolist(), strict=True)
            errors.append(off(canvas, x, *column_by_hand(rects, paint, canvas.height, low, per)))
    assert max(errors) <= SUMMARY
    assert np.mean(np.array(errors) <= EXACT) > 0.9


@pytest.mark.parametrize("trace", SEEDS, ids=seed_of, indirect=True)
@pytest.mark.parametrize("lit", [False, True], ids=["plain", "lit"])
def test_addresses_have_the_mean_colour_of_what_lies_in_a_pixel(way, trace, lit: bool) -> None:
    space = Addresses(trace)
    bands, paint, spans, rows = Bands(trace), any_paint(trace, 8, lit), trace.spans, trace.allocations
    for canvas, moments, low, per, cut in views(trace, bands, float(space.height)):
        for part in (slice(cut, None), slice(0, cut)):
            space.paint(canvas, part, moments, low, per, paint)
        for x, moment in enumerate(moments.tolist()):
            rects = [(i, space.y(i), int(rows.size[i])) for i in live_by_hand(trace, moment) if moment >= 0]
            ground = [(space.place(int(spans.addr[s])), int(spans.size[s])) for s in range(len(spans))
                      if spans.start[s] < moment <= spans.end[s]]
            assert off(canvas, x, *column_by_hand(rects, paint, canvas.height, low, per, ground)) <= EXACT


def test_addresses_lead_there_and_back(way, trace) -> None:
    space, rows = Addresses(trace), trace.allocations
    first, last, bottom = space.ranges
    assert (first[1:] > last[:-1]).all() and (bottom[1:] > (bottom + last - first)[:-1]).all()
    assert space.height == (bottom + last - first)[-1]
    for i in range(0, len(rows), 7):
        y = space.place(int(rows.addr[i]))
        assert y is not None and y == space.y(i) and space.address(y) == rows.addr[i]
    assert space.place(int(first[0]) - 1) is None and space.place(int(last[-1])) is None
    assert space.address(-1) is None and space.address(space.height) is None
    rng = np.random.default_rng(0)
    for moment in rng.integers(0, trace.moments, 30).tolist():
        live = live_by_hand(trace, moment)
        for y in rng.uniform(-10, space.height, 30):
            over = [i for i in live if space.y(i) <= y < space.y(i) + rows.size[i]]
            assert space.pick(moment, y) == (over[0] if over else -1)


def test_a_trace_without_spans_has_an_address_space(way) -> None:
    trace = trace_of(4, [-1, 0, 1], [4, 4, 2], [100, 50, 30], addr=[1 << 46, (1 << 46) + 100, 1 << 40])
    space = Addresses(trace)
    first, last, _ = space.ranges
    assert first.tolist() == [1 << 40, 1 << 46] and (last - first).tolist() == [30, 150]
    assert space.pick(2, 10) == 2 and space.pick(3, 10) == -1
    assert Addresses(trace_of(3, [], [], [])).height == 0


def test_overlaps_in_a_wrong_trace_are_painted_and_picked_without_harm() -> None:
    rng = np.random.default_rng(1)
    start = np.sort(rng.integers(-1, 500, 300))
    trace = trace_of(500, start, rng.integers(0, 501, 300), rng.integers(0, 5000, 300), addr=rng.integers(0, 9000, 300))
    space, canvas = Addresses(trace), Canvas(200, 50)
    moments = np.sort(rng.integers(0, 501, 200)).astype(np.int32)
    space.paint(canvas, slice(None), moments, 0.0, space.height / 50, any_paint(trace))
    rows = trace.allocations
    for x, moment in enumerate(moments):
        for i in set(canvas.ids[x].tolist()) - {-1}:
            assert rows.start[i] < moment <= rows.end[i]


def test_threads_paint_what_one_paints() -> None:
    trace = random_trace(1, 6000, 10, 900)
    bands, space, paint = Bands(trace), Addresses(trace), any_paint(trace)
    moments = bands.peaks(Axis(trace, "events").edges(0, 6001, 500))
    for view, height in ((bands, bands.live.max()), (space, space.height)):
        one, many = Canvas(500, 300), Canvas(500, 300)
        for x in range(0, 500, 50):
            view.paint(one, slice(x, x + 50), moments, 0.0, height / 300, paint)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda x: view.paint(many, slice(x, x + 50), moments, 0.0, height / 300, paint),  # noqa: B023
                          range(0, 500, 50)))
        assert (one.rgba == many.rgba).all() and (one.ids == many.ids).all()


def test_views_that_make_no_sense_are_refused() -> None:
    trace = random_trace(0)
    bands, canvas, paint = Bands(trace), Canvas(10, 10), any_paint(trace)
    moments = np.zeros(10, np.int32)
    for per in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="it must be more than 0"):
            bands.paint(canvas, slice(None), moments, 0.0, per, paint)
    with pytest.raises(ValueError, match="moment 401 of column 3: they are 0 to 400, or -1"):
        bands.paint(canvas, slice(None), np.where(np.arange(10) == 3, 401, 0), 0.0, 1.0, paint)
    with pytest.raises(ValueError, match="9 moments for 10 columns"):
        bands.paint(canvas, slice(None), moments[:9], 0.0, 1.0, paint)
    with pytest.raises(ValueError, match="2 offsets for 10 columns"):
        bands.paint(canvas, slice(None), moments, 0.0, 1.0, paint, np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="not in steps of 2"):
        bands.paint(canvas, slice(0, 10, 2), moments, 0.0, 1.0, paint)
    with pytest.raises(ValueError, match="low is nan"):
        bands.paint(canvas, slice(None), moments, float("nan"), 1.0, paint)
    with pytest.raises(ValueError, match="a canvas cannot have 0 x 5 pixels"):
        Canvas(0, 5)
    with pytest.raises(ValueError, match="class 7 has no colour: the palette ends at 2"):
        Paint(np.array([7], np.uint16), np.zeros((3, 3), np.uint8))


@pytest.mark.parametrize("events", [1_000_000, exhaustive(10_000_000)])
def test_a_spike_of_one_event_is_seen_in_every_zoom(events: int) -> None:
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
    assert bands.peak(0, events) == moment and bands.pick(moment, 5e8) == spike
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
        assert (canvas.rgba[around, 20:80, :3] == (250, 40, 40)).all((1, 2)).any()


@pytest.mark.exhaustive
def test_importing_the_timeline_does_not_import_numba() -> None:
    code = """import sys
import splatview.viewer_app.memory.timeline as t
assert "numba" not in sys.modules
t.warm_up()
assert "numba" in sys.modules"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=PATIENCE)
