"""`splatview.log`: what viewers get of it, early or late, and how much is kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from support.reading import logged_rows

import splatview
from splatview.api.session import session
from splatview_ipc.kinds.scalars import SCALAR_COLUMNS, SCALAR_ROWS
from splatview_ipc.subscriber.subscriber import Subscriber

Logged = Callable[[str, int], dict[str, np.ndarray]]

STEP, TIME, VALUE, LOW, HIGH, COUNT, BROKEN = range(len(SCALAR_COLUMNS))


@pytest.fixture
def logged(subscriber: Subscriber) -> Logged:
    """`logged(name, samples)`: all series, once there are this many samples of one."""
    return partial(logged_rows, subscriber)


def test_viewer_reads_every_logged_series(logged: Logged) -> None:
    for step in range(200):
        splatview.log(step, loss=1 / (step + 1), count=step)
        if step % 50 == 0:
            splatview.log(
                step, **{"eval/psnr": torch.tensor(20.0 + step, dtype=torch.float16)}
            )
    series = logged("count", 200)
    assert list(series) == ["loss", "count", "eval/psnr"]
    assert (series["loss"][:, STEP] == np.arange(200)).all()
    assert (series["loss"][:, VALUE] == 1 / np.arange(1.0, 201)).all()
    assert (series["eval/psnr"][:, VALUE] == [20, 70, 120, 170]).all()
    assert (np.diff(series["count"][:, TIME]) >= 0).all()
    assert (series["count"][:, COUNT] == 1).all()


def test_steps_are_given_or_counted(logged: Logged) -> None:
    for arguments in ({}, {}, {"step": 7}, {}, {"step": 2.5}):
        splatview.log(**arguments, loss=0.5)
    # Beside a positional step, `step` is a scalar of this name.
    splatview.log(20, loss=0.5, step=3.0)
    series = logged("loss", 6)
    assert series["loss"][:, STEP].tolist() == [0, 1, 7, 8, 2.5, 20]
    assert series["step"][:, VALUE].tolist() == [3]


def test_values_that_are_not_finite_are_counted(logged: Logged) -> None:
    for step, value in enumerate([1.0, math.nan, math.inf, -math.inf, 2.0]):
        splatview.log(step, it=value)
    rows = logged("it", 5)["it"]
    assert rows[:, BROKEN].tolist() == [0, 1, 1, 1, 0]
    np.testing.assert_array_equal(rows[:, VALUE], [1, math.nan, math.inf, -math.inf, 2])
    np.testing.assert_array_equal(rows[:, HIGH], [1, math.nan, math.nan, math.nan, 2])


def test_viewer_reads_growing_series_without_a_fault(
    logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    step = 0
    for total in (10, 2000, 4000, 9000):
        while step < total:
            splatview.log(step, loss=0.5, psnr=2.0)
            step += 1
        series = logged("psnr", total)
        assert series["loss"][-1, STEP] == total - 1
    publisher = session().publisher
    assert publisher is not None
    assert publisher.control.counters()["faults"] == 0
    assert not caplog.records


def test_one_scalar_too_many_is_refused_and_others_continue(logged: Logged) -> None:
    for i in range(64):
        splatview.log(0, **{f"s{i}": float(i)})
    with pytest.raises(
        ValueError, match="'s64' is one scalar too many; a run has at most 64"
    ):
        splatview.log(0, s64=1.0)
    splatview.log(1, s63=5.0)
    series = logged("s63", 2)
    assert len(series) == 64
    assert sum(map(len, series.values())) == 65


def test_history_is_bounded_and_keeps_outliers(logged: Logged) -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    values = rng.normal(size=n)
    values[2345] = 1e6
    for step in range(n):
        splatview.log(step, loss=float(values[step]))
    # More series leave fewer rows for each.
    for i in range(30):
        splatview.log(n, **{f"other{i}": 0.0})
    series = logged("other29", 1)
    rows = series["loss"]
    assert rows[:, COUNT].sum() == n
    assert len(rows) <= SCALAR_ROWS // 32
    assert rows[0, STEP] < 1000
    assert rows[-1, STEP] == n - 1
    assert rows[:, HIGH].max() == 1e6
    np.testing.assert_allclose(
        (rows[:, VALUE] * rows[:, COUNT]).sum(), values.sum(), rtol=1e-9
    )
