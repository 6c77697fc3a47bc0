"""Bands, axis and lanes of a memory snapshot against slow Python."""

from __future__ import annotations

import numpy as np
import pytest
from support.repetitions import exhaustive
from support.timeline_cases import any_paint, live_by_hand, random_trace, trace_of, use_reference

from splatview.viewer_app.memory.loading import load_snapshot
from splatview.viewer_app.memory.model import BLOCK_STATES
from splatview.viewer_app.memory.timeline import (
    Addresses,
    Axis,
    Bands,
    CancelledError,
    Canvas,
    Envelope,
    active,
    allocated,
    lanes,
    reserved,
)

TRACES = [(0, 400, 20, 60), (1, 3000, 50, 300), (2, 0, 20, 60), (3, 5000, 0, 40), (4, 1, 0, 10)]


@pytest.fixture(params=["kernels", "reference"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The compiled kernels, and their reference."""
    if request.param == "reference":
        use_reference(monkeypatch)
    return request.param


def seed_of(trace: tuple[int, ...]) -> str:
    return f"seed {trace[0]}"


@pytest.fixture(params=TRACES, ids=seed_of)
def trace(request: pytest.FixtureRequest):
    return random_trace(*request.param)


def moments_of(trace, count: int = 60) -> list[int]:
    rng = np.random.default_rng(0)
    last = len(trace.events)
    return sorted({0, last, *rng.integers(0, last + 1, count).tolist()})


@pytest.mark.parametrize("third", [False, True], ids=["all", "members"])
def test_what_is_live_is_what_a_replay_says(way, trace, third: bool) -> None:
    members = np.arange(len(trace.allocations)) % 3 == 0 if third else None
    bands = Bands(trace, members)
    size = trace.allocations.size
    assert bands.live.shape == (trace.moments,)
    for moment in moments_of(trace):
        live = live_by_hand(trace, moment, members)
        ids, base = bands.at(moment)
        assert ids.tolist() == live
        assert base.tolist() == np.concatenate([[0], np.cumsum(size[live])])[:-1].tolist()
        assert bands.live[moment] == size[live].sum()


def test_every_byte_is_picked_from_the_band_that_it_lies_in(way, trace) -> None:
    bands = Bands(trace)
    rng = np.random.default_rng(1)
    for moment in moments_of(trace, 20):
        ids, base = bands.at(moment)
        top = int(bands.live[moment])
        assert bands.pick(moment, -1) == bands.pick(moment, top) == bands.pick(moment, -0.5) == -1
        for byte in rng.uniform(0, top, 20) if top else ():
            over = np.flatnonzero((base <= byte) & (byte < base + trace.allocations.size[ids]))
            assert bands.pick(moment, byte) == ids[over[0]]
        for i, bottom in zip(ids.tolist(), base.tolist(), strict=True):
            assert bands.base(i, moment) == bottom
        absent = sorted(set(range(len(trace.allocations))) - set(ids.tolist()))
        assert not absent or bands.base(absent[0], moment) is None


def test_peaks_are_the_greatest_of_each_column_and_the_first_of_equals(way, trace) -> None:
    bands = Bands(trace)
    live = bands.live
    rng = np.random.default_rng(2)
    for width in (1, 7, 100, 1000):
        edges = np.sort(rng.integers(-3, trace.moments + 3, width + 1))
        edges[0] = max(edges[0], 0)
        low, high = bands.envelope(edges)
        for x, moment in enumerate(bands.peaks(edges).tolist()):
            first, last = max(int(edges[x]), 0), min(int(edges[x + 1]), trace.moments)
            if first < last:
                assert moment == first + int(np.argmax(live[first:last]))
                assert (low[x], high[x]) == (live[first:last].min(), live[first:last].max())
            else:
                assert moment == (edges[x] - 1 if 0 < edges[x] <= trace.moments else -1)
                assert low[x] == high[x] == live[min(max(edges[x] - 1, 0), len(live) - 1)]
    assert bands.peak(0, len(trace.events)) == int(np.argmax(live))


def test_moments_outside_of_the_trace_are_refused() -> None:
    bands = Bands(random_trace(0))
    for wrong in (-1, 401):
        with pytest.raises(IndexError, match=rf"no moment {wrong}: they are 0 to 400"):
            bands.at(wrong)
    with pytest.raises(IndexError, match="no moment from 500 to 600"):
        bands.peak(500, 600)


def test_columns_that_do_not_fit_together_are_refused() -> None:
    trace = random_trace(0)
    with pytest.raises(ValueError, match="3 are members or not, and there are"):
        Bands(trace, np.ones(3, bool))
    with pytest.raises(ValueError, match="in the order in which they began"):
        Bands(trace_of(5, [3, 1], [5, 5], [1, 1]))
    with pytest.raises(ValueError, match="must be one for each"):
        any_paint(trace).tables(1)


def test_layout_ends_when_it_is_not_wanted() -> None:
    with pytest.raises(CancelledError):
        Bands(random_trace(0), cancelled=lambda: True)


def test_moments_that_contradict_the_trace_are_never_live(way) -> None:
    trace = trace_of(4, [-1, 0, 1, 2], [-5, 0, 9, 3], [1, 2, 4, 8])  # ends before it began, at its own event, too late
    bands = Bands(trace)
    assert bands.live.tolist() == [0, 0, 4, 12, 4]
    assert [bands.at(k)[0].tolist() for k in range(5)] == [[], [], [2], [2, 3], [2]]


def test_reserved_and_allocated_bytes(trace) -> None:
    spans, rows = trace.spans, trace.allocations
    for moment in moments_of(trace, 20):
        there = (spans.start < moment) & (moment <= spans.end)
        assert reserved(trace)[moment] == spans.size[there].sum()
        live = live_by_hand(trace, moment)
        assert allocated(trace)[moment] == sum(-(-int(s) // 512) * 512 for s in rows.size[live])
        assert active(trace)[moment] >= allocated(trace)[moment]
    assert reserved(trace, 5).max() == 0


def test_lanes_part_what_bands_stack(trace) -> None:
    found = lanes(trace, ((0, 0), (0, 3), (1, 0)))
    assert [lane.name for lane in found][:1] in ([], ["default pool"])
    assert len(found) == len(set(trace.allocations.pool.tolist()) | set(trace.spans.pool.tolist()))
    if found:
        assert (np.sum([lane.bands.live for lane in found], 0) == Bands(trace).live).all()
        assert (np.sum([lane.reserved for lane in found], 0) == reserved(trace)).all()
        for lane in found:
            assert lane.height >= lane.bands.live.max()
    assert {lane.name for lane in found} <= {"default pool", "private pool (0, 3)", "private pool (1, 0)"}


def test_an_envelope_is_of_the_array_that_it_was_made_for() -> None:
    values = np.arange(1000)
    edges = np.array([0, 10, 10, 1000])
    for _ in range(2):
        low, high = Envelope(values)(edges)
        assert (low.tolist(), high.tolist()) == ([0, 9, 10], [9, 9, 999])
    del values
    for k in range(50):  # the number of an array that is gone is soon another's
        assert Envelope(np.full(100, k))(np.array([0, 100]))[0][0] == k
    with pytest.raises(ValueError, match="no values"):
        Envelope(np.empty(0, np.int64))


@pytest.mark.parametrize("unit", ["events", "time"])
@pytest.mark.parametrize("trace", [(0, 400, 20, 60), exhaustive((1, 3000, 50, 300)), (2, 0, 20, 60),
                                   exhaustive((3, 5000, 0, 40)), (4, 1, 0, 10)], ids=seed_of, indirect=True)
def test_columns_of_the_axis_begin_where_moments_do(trace, unit) -> None:
    axis = Axis(trace, unit)
    x0, x1 = axis.extent
    assert axis.moment(x0) == 0 and axis.moment(x1) == len(trace.events)
    rng = np.random.default_rng(3)
    for width in (1, 10, 777):
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


def test_columns_outside_of_the_axis_hold_nothing() -> None:
    trace = random_trace(0)
    bands = Bands(trace)
    for unit in ("events", "time"):
        axis = Axis(trace, unit)
        x0, x1 = axis.extent
        length = x1 - x0
        moments = bands.peaks(axis.edges(x0 - length, x1 + length, 300))
        assert (moments[:99] == -1).all() and (moments[202:] == -1).all() and (moments[101:199] >= 0).all()


def test_times_of_moments() -> None:
    trace = trace_of(4, [0], [4], [1], time_us=[1000, 0, 3000, 2500])  # one is missing, one runs backwards
    axis = Axis(trace, "time")
    assert [axis.time_us(k) for k in range(5)] == [1000, 1000, 1000, 3000, 3000]
    assert axis.extent == (-20.0, 2020.0)
    assert [axis.moment(x) for x in (-99, -1, 0, 1999.5, 2000, 1e9)] == [0, 0, 2, 2, 4, 4]
    assert Axis(trace_of(3, [], [], []), "time").timed is False
    with pytest.raises(ValueError, match="'hours' is not 'events' or 'time'"):
        Axis(trace, "hours")  # type: ignore[arg-type]


def test_a_real_snapshot_is_laid_out_as_a_replay_says(way, data_dir) -> None:
    trace = load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False).traces[0]
    bands, rows, blocks = Bands(trace), trace.allocations, trace.blocks
    space, change = Addresses(trace), np.zeros(trace.moments + 1, np.int64)
    for i in range(len(rows)):
        change[rows.start[i] + 1] += rows.size[i]
        change[rows.end[i] + 1] -= rows.size[i]
    assert (bands.live == np.cumsum(change)[:-1]).all()
    active = blocks.state == BLOCK_STATES.index("active_allocated")
    assert bands.live[-1] == blocks.requested[active].sum()
    assert set(bands.at(len(trace.events))[0].tolist()) == set(blocks.allocation[active].tolist())
    axis, canvas = Axis(trace, "events"), Canvas(60, 80)
    moments = bands.peaks(axis.edges(*axis.extent, canvas.width))
    paint, top = any_paint(trace), float(bands.live.max())
    for view, height in ((bands, top), (space, float(space.height))):
        view.paint(canvas, slice(None), moments, 0.0, height / canvas.height, paint)
        for x, moment in enumerate(moments.tolist()):
            for y in range(0, canvas.height, 7):
                assert canvas.ids[x, y] == view.pick(moment, (canvas.height - y - 0.5) * height / canvas.height)
