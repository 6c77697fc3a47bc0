"""Curves of scalars in the viewer: what a frame may say, smoothing, columns of pixels, limits and rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frames import host_array, scalar_rows, scalars_frame

from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.scalars.columns import Axis, columns, limits, ticks
from splatview.viewer_app.scalars.counts import Counts, on_steps_of
from splatview.viewer_app.scalars.curves import Curve, Curves, rate_of, read_frame
from splatview.viewer_app.scalars.smooth import scan, smoothed
from splatview.viewer_app.scalars.words import value_text

if TYPE_CHECKING:
    from collections.abc import Callable


def made(value: Any, step: Any = None, count: Any = 1.0) -> Curve:
    value = np.asarray(value, np.float64)
    n = len(value)
    rows = np.zeros((n, 7))
    rows[:, 0] = np.arange(n) if step is None else step
    rows[:, 1] = 1.7e9 + np.arange(n)
    rows[:, 2] = value
    rows[:, 3] = rows[:, 4] = np.where(np.isfinite(value), value, np.nan)
    rows[:, 5], rows[:, 6] = count, ~np.isfinite(value)
    return Curve.of("it", rows)


# -- frames ------------------------------------------------------------------------------------------------------------


def test_a_frame_is_read_and_copied() -> None:
    frame = scalars_frame(step=399, trouble="2 values are missing", note="a")
    curves = read_frame(frame.tensors, frame.meta)
    assert [c.name for c in curves.all] == ["loss", "parts/count", "parts/rare"]
    assert {title: [c.name for c in found] for title, found in curves.groups.items()} == {
        "loss": ["loss"], "parts": ["parts/count", "parts/rare"]}
    assert (curves.step, curves.trouble, curves.others) == (399, "2 values are missing", {"note": "a"})
    assert curves.clock.name == "loss"
    assert curves["parts/rare"]["value"].tolist() == [20 + 0.5 * i for i in range(8)]
    host_array(frame.tensors["rows"])[...] = 0
    assert curves["loss"].last != 0
    with pytest.raises(ValueError, match="read-only"):
        curves["loss"].rows[0, 0] = 1


@pytest.mark.parametrize(("change", "words"), [
    (lambda t: t.pop("ends"), "'rows', 'ends' and 'names'"),
    (lambda t: t.update(rows=t["rows"].float()), "float32"),
    (lambda t: t.update(rows=t["rows"][:, :6]), r"\(1 to 65536, 7\)"),
    (lambda t: t.update(rows=t["rows"][:0]), "rows are"),
    (lambda t: t.update(ends=torch.zeros(65, dtype=torch.int32)), "1 to 64"),
    (lambda t: t["ends"].__setitem__(0, 0), "series that end at"),
    (lambda t: t["ends"].__setitem__(0, 10**6), "series that end at"),
    (lambda t: t["ends"].__setitem__(2, -5), "series that end at"),
    (lambda t: t["ends"].__setitem__(2, 3), "series that end at"),
    (lambda t: t.update(names=t["names"][:3]), "0 names for 3"),
    (lambda t: t.update(names=torch.tensor([*b"a\0a\0b\0"], dtype=torch.uint8)), "two series of one name"),
    (lambda t: t["rows"][:, 0].fill_(float("nan")), "a step that is none"),
    (lambda t: t["rows"][5, 0].fill_(1e300), "a step that is none"),
    (lambda t: t["rows"][5, 1].fill_(float("inf")), "a time that is none"),
])
def test_frames_that_are_none_are_refused_by_name(change: Callable[[dict[str, torch.Tensor]], Any], words: str) -> None:
    from support.frames import frame_of

    good = scalars_frame()
    tensors = {name: torch.from_numpy(np.array(host_array(t))) for name, t in good.tensors.items()}
    change(tensors)
    frame = frame_of("scalars", tensors)
    with pytest.raises(ViewerError, match=words):
        read_frame(frame.tensors, frame.meta)


def test_odd_numbers_and_names_break_nothing() -> None:
    rows = scalar_rows(100)
    rows["loss"][:, 2:] = float("nan")
    rows["loss"][3, 5:] = float("inf")
    rows["parts/rare"][:, 5] = -7
    rows["parts/count"][20, 1] = 5.0  # a clock that was set back
    frame = scalars_frame({"\x07bell": rows.pop("loss"), **rows})
    curves = read_frame(frame.tensors, frame.meta)
    assert curves.all[0].name == "?bell"
    for curve in curves.all:
        assert (np.diff(curve["time"]) >= 0).all()
        assert (curve["count"] >= 1).all()
        axis = Axis(0, 100, 20)
        parts = columns(curve, curve["step"], smoothed(curve, 0.9), axis)
        assert np.isfinite(limits(parts, axis, False, True)).all()


def test_bytes_from_anybody_are_refused_or_read() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        frame = scalars_frame()
        for tensor in frame.tensors.values():
            flat = host_array(tensor).reshape(-1).view(np.uint8)
            at = rng.integers(0, len(flat), 3)
            flat[at] = rng.integers(0, 256, 3)
        try:
            curves = read_frame(frame.tensors, frame.meta)
        except ViewerError:
            continue
        for curve in curves.all:
            columns(curve, curve["step"], smoothed(curve, 0.5), Axis(0, 400, 50))


# -- smoothing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 10, 99, 1000])
def test_a_scan_is_the_loop(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.uniform(0, 1, n), rng.normal(size=n)
    y, want = 0.0, []
    for i in range(n):
        y = a[i] * y + b[i]
        want.append(y)
    np.testing.assert_allclose(scan(a, b), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weight", [0.5, 0.9, 0.999])
def test_smoothing_is_a_debiased_average(weight: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=500)
    values[[0, 70, 71]] = np.nan, np.inf, -np.inf
    last = num = 0.0
    want = []
    for value in values:  # as TensorBoard does it
        if np.isfinite(value):
            last = last * weight + (1 - weight) * value
            num += 1
        want.append(last / (1 - weight**num) if num else np.nan)
    np.testing.assert_allclose(smoothed(made(values), weight), want, rtol=1e-9)


def test_what_is_smoothed_begins_at_the_first_value_and_none_is_none() -> None:
    curve = made([5.0, 1.0, 1.0])
    assert smoothed(curve, 0.99)[0] == pytest.approx(5.0)
    assert smoothed(curve, 0.0) is not None
    np.testing.assert_array_equal(smoothed(curve, 0.0), [5, 1, 1])


def test_a_row_of_many_samples_counts_as_many() -> None:
    one, many = made([1.0, *[3.0] * 8]), made([1.0, 3.0], count=[1, 8])
    assert smoothed(many, 0.8)[-1] == pytest.approx(smoothed(one, 0.8)[-1])


# -- columns -----------------------------------------------------------------------------------------------------------


def test_a_million_rows_become_columns_that_miss_nothing() -> None:
    n = 1_000_000
    values = np.sin(np.arange(n) / 5e4)
    values[123_456], values[777_777] = 50.0, np.nan
    curve = made(values)
    axis = Axis(0, n, 800)
    (part,) = columns(curve, curve["step"], smoothed(curve, 0.9), axis)
    assert len(part.x) <= 802
    assert part.high.max() == 50
    assert (np.diff(part.x) > 0).all()
    assert part.broken.tolist() == [777_777]
    assert abs(part.x[part.high.argmax()] - 123_456) < n / 800
    inside = (part.x > 1) & (abs(part.x - 123_456) > 3000)
    np.testing.assert_allclose(part.value[inside], np.sin(part.x / 5e4)[inside], atol=0.02)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(("begin", "end", "width"), [(0.0, 999.0, 50), (-500, 2000, 300), (400.2, 400.7, 64),
                                                     (3000, 4000, 20), (-10, -5, 20), (500, 500.0001, 1)])
def test_columns_tell_what_lies_in_them(begin: float, end: float, width: int, log: bool) -> None:
    rng = np.random.default_rng(1)
    curve = made(rng.normal(size=1000))
    parts = columns(curve, curve["step"], curve["value"], Axis(begin, end, width, log))
    steps, values = curve["step"], curve["value"]
    seen = (steps >= begin) & (steps <= end) & ((steps > 0) | (not log))
    if seen.any():
        (part,) = parts
        assert part.high.max() >= values[seen].max()
        assert part.low.min() <= values[seen].min()
        assert set(part.high) <= set(values)
    for part in parts:
        assert (part.x > 0).all() or not log
        assert len(part.x) <= 2 * width + 2


def test_steps_that_begin_anew_are_drawn_as_lines_of_their_own() -> None:
    curve = made(np.arange(30.0), step=[*range(20), *range(5, 15)])
    parts = columns(curve, curve["step"], curve["value"], Axis(0, 20, 400))
    assert [len(part.x) for part in parts] == [20, 10]
    (one,) = columns(curve, curve["time"], curve["value"], Axis(1.7e9, 1.7e9 + 30, 400))
    assert len(one.x) == 30
    often = made(np.arange(1000.0), step=np.arange(1000) % 2)
    assert len(columns(often, often["step"], often["value"], Axis(0, 1, 10))) <= 32


def test_the_area_of_extremes_does_not_bridge_a_gap() -> None:
    rows = np.array(made(np.ones(40)).rows)
    rows[:, 0] += np.where(np.arange(40) >= 20, 500, 0)
    rows[:, 3], rows[:, 4] = 0.0, 2.0
    curve = Curve.of("it", rows)
    (part,) = columns(curve, curve["step"], curve["value"], Axis(0, 600, 400))
    band = part.band
    assert band is not None
    x, low, high = band
    assert (np.diff(x) >= 0).all()
    middle = np.interp(250, x, high) - np.interp(250, x, low)
    assert middle == 0
    assert high.max() == 2
    assert columns(made([1, 2, 3]), np.arange(3.0), np.arange(3.0), Axis(0, 3, 10))[0].band is None


def test_limits_leave_out_what_stands_out_unless_asked() -> None:
    values = np.ones(1000) + 0.1 * np.sin(np.arange(1000))
    values[500] = 100
    curve, axis = made(values), Axis(0, 1000, 2000)
    parts = columns(curve, curve["step"], np.ones(1000), axis)
    low, high = limits(parts, axis, False, False)
    assert 0.8 < low < 0.95
    assert 1.05 < high < 1.2
    assert limits(parts, axis, False, True)[1] > 100
    assert limits([], axis, False, False) == (0, 1)
    flat = columns(made([3.0, 3.0]), np.arange(2.0), np.full(2, 3.0), axis)
    low, high = limits(flat, axis, False, False)
    assert low < 3 < high
    low, high = limits(columns(made([-1.0, 0.01, 10.0]), np.arange(3.0), np.array([-1.0, 0.01, 10]), axis), axis,
                       True, True)
    assert 0 < low < 0.01
    assert high > 10


def test_ticks_of_short_logarithmic_axes_are_round() -> None:
    assert ticks(0.05, 0.45) == [0.05, 0.1, 0.2]
    assert ticks(20.5, 29.5) == [22, 24, 26, 28]
    assert ticks(0.001, 10) == []
    assert ticks(0, 1) == ticks(1, 1) == []
    for low, high in [(1e-9, 5e-9), (9.99, 10.01), (123456, 123460)]:
        found = ticks(low, high)
        assert 2 <= len(found) <= 9
        assert all(low <= t <= high * (1 + 1e-9) for t in found)


# -- rates and counts --------------------------------------------------------------------------------------------------


def test_steps_per_second() -> None:
    rows = np.array(made(np.ones(1000)).rows)
    rows[:, 1] = 1.7e9 + np.concatenate([np.arange(500) * 0.01, 5 + np.arange(500) * 0.1])
    rate = rate_of(Curve.of("it", rows), "steps/s")
    assert rate is not None
    assert rate["value"][:3] == pytest.approx([100] * 3)
    assert rate["value"][-10:] == pytest.approx([10] * 10)
    assert rate_of(made([1.0]), "steps/s") is None
    again = rate_of(made(np.ones(10), step=[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]), "steps/s")
    assert again is not None
    assert (again["value"] >= 0).all()


class Scene:
    """What is asked of a stream."""

    kind = "gaussians"

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = (100, 3)
        self.version = 1
        self.name = "splats"
        self.run = self
        self.alive = True


def test_numbers_of_gaussians_are_taken_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatview.viewer_app.scalars.counts.PERIOD", 0.0)
    counts, scene, other = Counts(), Scene(), Scene()
    streams: Any = [scene, other]
    counts.look(streams)
    assert counts.of(streams[0]) is None  # so far it is always the same
    changes = counts.changes
    for n in (200, 200, 400):
        scene.shape, scene.version = (n, 3), scene.version + 1
        counts.look(streams)
    assert counts.changes == changes + 2
    curve = counts.of(streams[0])
    assert curve is not None
    assert curve["value"].tolist() == [100, 200, 200, 400]
    assert counts.of(streams[1]) is None
    clock = made(np.zeros(10), step=np.arange(10) * 100)
    rows = np.array(curve.rows)
    rows[:, 1] = 1.7e9 + np.arange(4)
    assert on_steps_of(Curve.of("it", rows), clock)["step"].tolist() == [0, 100, 200, 300]
    counts.look([])
    assert counts.of(streams[0]) is None


def test_numbers_are_said_in_few_figures() -> None:
    assert [value_text(v) for v in (0.123456, 1234567.0, np.nan, np.inf, -np.inf, 0, 12, 1e-7)] == [
        "0.1235", "1,234,567", "NaN", "infinite", "-infinite", "0", "12", "1e-07"]


def test_no_curves_are_none() -> None:
    assert Curves().groups == {}
