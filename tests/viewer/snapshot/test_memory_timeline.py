"""Timelines of memory snapshots against slow Python: axis, painted bands and addresses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.memory_data import Recorder, event, snapshot

from splatview_viewer.snapshot.loading import from_pickled
from splatview_viewer.snapshot.model import Trace
from splatview_viewer.snapshot.timeline.bands import (
    Addresses,
    Bands,
    TimelineAxis,
    inks_of,
    peaks,
)

pytestmark = pytest.mark.usefixtures("timeline_kernels")

TRACES = {
    "usual": (0, 400, 20),
    "no event": (2, 0, 20),
    "one event": (4, 1, 0),
    "long": (1, 3000, 50),
}
ROOM = 1 << 20


@pytest.fixture(params=TRACES)
def trace(request: pytest.FixtureRequest) -> Trace:
    """Allocations of many sizes in slots of three segments, some from before the trace, some of no bytes."""
    seed, events, before = TRACES[request.param]
    rng = np.random.default_rng(seed)
    r = Recorder()
    segments = iter((1 << 40, 1 << 41))
    r.segments[2**63 - 30 * ROOM] = (60 * ROOM, 0)  # in it lies the middle of 64 bits
    for slot in range(before):
        r.live[2**63 - 30 * ROOM + slot * ROOM] = (int(rng.integers(1, 9000)), (), 0)
    while len(r.events) < events:
        if len(r.events) > 100 * len(r.segments) and (start := next(segments, None)):
            r.segment(start, 60 * ROOM)
        addr = int(rng.choice(list(r.segments))) + int(rng.integers(60)) * ROOM
        if addr in r.live:
            r.free(addr)
        else:
            r.alloc(addr, int(2 ** rng.uniform(0, 20)) if rng.random() > 0.02 else 0)
    return r.snapshot().traces[0]


@pytest.mark.parametrize("unit", ["events", "time"])
@pytest.mark.parametrize("trace", ["usual", "no event", "one event"], indirect=True)
def test_columns_of_the_axis_begin_where_moments_do(trace: Trace, unit: Any) -> None:
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
            assert min(edges[i + 1], trace.moment_count) - min(
                edges[i], trace.moment_count
            ) == len(inside)
            assert (
                not inside
                or edges[i] == inside[0]
                or axis.x_of(edges[i]) == axis.x_of(inside[0])
            )
    for moment in range(0, trace.moment_count, 20):
        assert axis.x_of(axis.moment(axis.x_of(moment))) == axis.x_of(moment)


def test_times_of_moments() -> None:
    times = (1000, 0, 3000, 2500)  # one is missing, one runs backwards
    (trace,) = from_pickled(
        snapshot([event("snapshot", 0, 0, time_us=t) for t in times])
    ).traces
    axis = TimelineAxis(trace, "time")
    assert [axis.time_us(k) for k in range(5)] == [1000, 1000, 1000, 3000, 3000]
    assert axis.extent == (-20.0, 2020.0)
    assert [axis.moment(x) for x in (-99, -1, 0, 1999.5, 2000, 1e9)] == [
        0,
        0,
        2,
        2,
        4,
        4,
    ]


def column(
    rects: Any, inks: Any, bottoms: np.ndarray, per: float, ground: Any, grounds: Any
) -> Any:
    """(H, 3) float and (H,) ids of one column of these bytes: the mean of the colours in each pixel.

    rects: (allocation, bottom, size). ground: (bottom, size) of what is reserved. grounds: colours of nothing, and of
    what is reserved.
    """

    def covered(bottom: int, size: int) -> np.ndarray:
        return np.clip(
            np.minimum(bottom + size, bottoms + per) - np.maximum(bottom, bottoms),
            0,
            None,
        )[:, None]

    classes, lit, shades = inks
    ids = np.full(len(bottoms), -1)
    sums = np.zeros((len(bottoms), 3))
    full = np.zeros((len(bottoms), 1))
    dark = np.zeros(len(bottoms), bool)
    for i, bottom, size in rects:
        sums += (
            covered(bottom, size)
            * shades[
                int(classes[i]) + (len(shades) // 2 if len(lit) and not lit[i] else 0)
            ]
        )
        full += covered(bottom, size)
        ids[(bottoms + per / 2 >= bottom) & (bottoms + per / 2 < bottom + size)] = i
        dark |= (size >= 3 * per) & (bottoms <= bottom) & (bottom < bottoms + per)
    if ground:
        under = np.clip(sum(covered(*part) for part in ground) - full, 0, None)
    else:
        under = 0 * full
    rgb = (
        sums + under * grounds[1] + np.clip(per - full - under, 0, None) * grounds[0]
    ) / per
    return rgb * np.where(dark, 0.62, 1)[:, None], ids


@pytest.mark.parametrize("lit", [False, True])
@pytest.mark.parametrize("space", [Bands, Addresses])
def test_pixels_have_the_mean_colour_of_what_lies_in_them(
    trace: Trace, space: Any, lit: bool
) -> None:
    made = space(trace)
    size = trace.allocations.size
    spans = trace.spans
    rng = np.random.default_rng(7)
    layers = made.layers
    live = Bands(trace).live
    layers = replace(
        layers, grounds=(*layers.grounds[:2], layers.grounds[1])
    )  # no line where reserved memory ends
    inks = inks_of(
        rng.integers(0, 7, len(size)),
        rng.integers(40, 255, (7, 3)),
        rng.random(len(size)) < 0.5 if lit else None,
    )
    for unit in ("events", "time", "events", "time"):
        width = int(rng.integers(1, 30))
        rows = int(rng.integers(1, 90))
        axis = TimelineAxis(trace, unit)
        x0, x1 = axis.extent
        length = (x1 - x0) * rng.uniform(0.002, 1.3)
        begin = x0 + rng.uniform(-0.1, 1) * (x1 - x0 - length)
        moments = peaks(live, axis.edges(begin, begin + length, width))
        per = (made.height + 1) * rng.uniform(0.01, 1.3) / rows
        low = rng.uniform(-0.2, 0.9) * (made.height + 1)
        canvas = np.zeros((rows, width), np.uint32), np.zeros((rows, width), np.int32)
        cut = int(rng.integers(0, width + 1))
        for part in ((cut, width), (0, cut)):
            layers.paint(canvas, part, moments, low, per, inks)
        for x, moment in enumerate(moments.tolist()):
            there, over = (
                np.flatnonzero((c.start < moment) & (moment <= c.end))
                if moment >= 0
                else np.empty(0, int)
                for c in (trace.allocations, spans)
            )
            if space is Bands:
                bottoms = np.cumsum(size[there]) - size[there]
                ground = [(0, int(made.reserved[moment]))] if moment >= 0 else []
            else:
                bottoms = layers.blocks[1][there]
                ground = list(
                    zip(
                        layers.spans[1][over].tolist(),
                        spans.size[over].tolist(),
                        strict=True,
                    )
                )
            rects = zip(
                there.tolist(), bottoms.tolist(), size[there].tolist(), strict=True
            )
            want, ids = column(
                rects,
                inks,
                low + np.arange(rows) * per,
                per,
                ground,
                np.array(layers.grounds),
            )
            pixels = canvas[0][:, x].copy().view(np.uint8).reshape(rows, 4)
            assert canvas[1][:, x].tolist() == ids.tolist()
            assert np.abs(pixels[:, :3] - want).max() <= 1.01
            assert (pixels[:, 3] == 255).all()


def test_a_spike_of_one_event_is_seen_in_every_zoom() -> None:
    r = Recorder()
    moment = 0
    for i in range(5000):
        r.alloc((i + 1) << 32, 600 + i % 3000)
        if i == 2000:
            r.alloc(1 << 20, 10**9)  # live at one moment only
            moment = len(r.events)
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
    pixels, ids = canvas = (
        np.empty((100, 1000), np.uint32),
        np.empty((100, 1000), np.int32),
    )
    for zoom in range(0, 14, 2):
        length = trace.moment_count / 2**zoom
        begin = min(
            max(moment - length * rng.uniform(0.05, 0.95), 0),
            trace.moment_count - length,
        )
        edges = axis.edges(begin, begin + length, 1000)
        bands.layers.paint(
            canvas, (0, 1000), peaks(bands.live, edges), 0.0, 1.1e7, inks
        )
        column = min(max(int((moment - begin) / length * 1000), 0), 999)
        around = slice(max(column - 1, 0), column + 2)
        assert (ids[20:80, around] == spike).all(0).any()
        assert (pixels[20:80, around] == 0xFF2828FA).all(0).any()
