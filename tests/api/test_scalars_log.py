"""`splatview.log`: what viewers get of it, early or late, and how much is kept."""

from __future__ import annotations

import math
from collections.abc import Callable

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
    """`logged(name, samples)`: all series, once there are so many samples of one."""
    return lambda name, samples: logged_rows(subscriber, name, samples)


def test_what_was_logged_is_seen(logged: Logged) -> None:
    for step in range(200):
        splatview.log(step, loss=1 / (step + 1), count=step)
        if step % 50 == 0:
            splatview.log(
                step, **{"eval/psnr": torch.tensor(20.0 + step, dtype=torch.float16)}
            )
    found = logged("count", 200)
    assert list(found) == ["loss", "count", "eval/psnr"]
    assert (found["loss"][:, STEP] == np.arange(200)).all()
    assert (found["loss"][:, VALUE] == 1 / np.arange(1.0, 201)).all()
    assert (found["eval/psnr"][:, VALUE] == [20, 70, 120, 170]).all()
    assert (np.diff(found["count"][:, TIME]) >= 0).all()
    assert (found["count"][:, COUNT] == 1).all()


def test_steps_are_named_or_count_themselves(logged: Logged) -> None:
    for given in ({}, {}, {"step": 7}, {}, {"step": 2.5}):
        splatview.log(**given, loss=0.5)
    splatview.log(20, loss=0.5, step=3.0)  # behind a step it is a scalar of this name
    found = logged("loss", 6)
    assert (found["loss"][:, STEP].tolist(), found["step"][:, VALUE].tolist()) == (
        [0, 1, 7, 8, 2.5, 20],
        [3],
    )


def test_what_is_not_finite_is_counted(logged: Logged) -> None:
    for step, value in enumerate([1.0, math.nan, math.inf, -math.inf, 2.0]):
        splatview.log(step, it=value)
    rows = logged("it", 5)["it"]
    assert rows[:, BROKEN].tolist() == [0, 1, 1, 1, 0]
    np.testing.assert_array_equal(rows[:, VALUE], [1, math.nan, math.inf, -math.inf, 2])
    np.testing.assert_array_equal(rows[:, HIGH], [1, math.nan, math.nan, math.nan, 2])


def test_what_grows_beside_a_viewer_is_seen_without_a_fault(
    logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    step = 0
    for total in (10, 2000, 4000, 9000):
        while step < total:
            splatview.log(step, loss=0.5, psnr=2.0)
            step += 1
        found = logged("psnr", total)
        assert found["loss"][-1, STEP] == total - 1
    publisher = session().publisher
    assert publisher is not None
    assert publisher.control.counters()["faults"] == 0
    assert not caplog.records


def test_one_scalar_too_many_is_refused_and_others_go_on(logged: Logged) -> None:
    for i in range(64):
        splatview.log(0, **{f"s{i}": float(i)})
    with pytest.raises(
        ValueError, match="'s64' is one scalar too many; a run has at most 64"
    ):
        splatview.log(0, s64=1.0)
    splatview.log(1, s63=5.0)
    found = logged("s63", 2)
    assert len(found) == 64
    assert sum(map(len, found.values())) == 65


def test_the_history_is_bounded_and_keeps_what_stands_out(logged: Logged) -> None:
    n = 20_000
    rng = np.random.default_rng(0)
    values = rng.normal(size=n)
    values[2345] = 1e6
    for step in range(n):
        splatview.log(step, loss=float(values[step]))
    for i in range(30):  # fewer rows for each from now on
        splatview.log(n, **{f"other{i}": 0.0})
    found = logged("other29", 1)
    rows = found["loss"]
    assert rows[:, COUNT].sum() == n
    assert len(rows) <= SCALAR_ROWS // 32
    assert (rows[0, STEP] < 1000, rows[-1, STEP]) == (True, n - 1)
    assert rows[:, HIGH].max() == 1e6
    np.testing.assert_allclose(
        (rows[:, VALUE] * rows[:, COUNT]).sum(), values.sum(), rtol=1e-9
    )
