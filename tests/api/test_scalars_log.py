"""`splatview.log`: what is plotted of what a script gives, whoever looks, and how much is kept of it."""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frames import host_array
from support.open_files import open_files

import splatview
from splatview import publishing, scalars
from splatview.adapt.gpu_scalars import Later, _Pool
from splatview.ipc import Subscriber
from splatview.ipc.kinds import SCALAR_COLUMNS, SCALAR_ROWS, check_frame
from splatview.ipc.series import Series, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

STEP, TIME, VALUE, LOW, HIGH, COUNT, BROKEN = range(len(SCALAR_COLUMNS))


@pytest.fixture
def viewer() -> Iterator[Subscriber]:
    with Subscriber() as subscriber:
        yield subscriber


def series(viewer: Subscriber) -> dict[str, np.ndarray]:
    """The rows of each series in the newest frame."""
    viewer.poll()
    stream = next((s for s in viewer.streams if s.kind == "scalars"), None)
    if stream is None:
        return {}
    stream.open()
    frame = stream.read()
    if frame is None:
        return {}
    with frame:
        tensors = {name: np.array(host_array(tensor)) for name, tensor in frame.tensors.items()}
        check_frame("scalars", {n: (t.dtype, tuple(t.shape)) for n, t in frame.tensors.items()}, frame.meta)
    names = tensors["names"].tobytes().decode().split("\0")[:-1]
    assert len(names) == len(tensors["ends"])
    assert tensors["ends"][-1] == len(tensors["rows"])
    return dict(zip(names, np.split(tensors["rows"], tensors["ends"][:-1]), strict=True))


def logged(viewer: Subscriber, wait_until: Callable[..., Any], name: str, samples: int) -> dict[str, np.ndarray]:
    """What is seen once so many samples of a series are."""
    found: dict[str, np.ndarray] = {}

    def there() -> bool:
        found.update(series(viewer))
        return name in found and found[name][:, COUNT].sum() == samples

    wait_until(there)
    return found


def test_what_was_logged_is_seen(viewer: Subscriber, wait_until: Callable[..., Any]) -> None:
    for step in range(200):
        splatview.log(step, loss=1 / (step + 1), count=step)
        if step % 50 == 0:
            splatview.log(step, **{"eval/psnr": torch.tensor(20.0 + step, dtype=torch.float16)})
    found = logged(viewer, wait_until, "count", 200)
    assert list(found) == ["loss", "count", "eval/psnr"]
    assert (found["loss"][:, STEP] == np.arange(200)).all()
    assert (found["loss"][:, VALUE] == 1 / np.arange(1.0, 201)).all()
    assert (found["eval/psnr"][:, VALUE] == [20, 70, 120, 170]).all()
    assert (np.diff(found["count"][:, TIME]) >= 0).all()
    assert (found["count"][:, COUNT] == 1).all()


def test_a_viewer_that_comes_late_sees_all_of_it(wait_until: Callable[..., Any]) -> None:
    for step in range(5000):
        splatview.log(step, loss=float(step))
    with Subscriber() as early:
        logged(early, wait_until, "loss", 5000)
    splatview.log(5000, loss=5000.0)
    with Subscriber() as late:
        rows = logged(late, wait_until, "loss", 5001)["loss"]
        assert (rows[0, STEP], rows[-1, STEP]) == (0, 5000)
        splatview.log(5001, loss=0.0)
        assert logged(late, wait_until, "loss", 5002)["loss"][-1, VALUE] == 0


@pytest.mark.parametrize("value", [
    0.5, 1, True, torch.tensor(0.5), torch.tensor([[0.5]]), torch.tensor(3), torch.tensor(0.5, requires_grad=True),
    torch.tensor(0.5, dtype=torch.bfloat16), np.float32(0.5), np.array(0.5), np.array([2]), np.int64(7), 2**70])
def test_whatever_is_one_number_is_taken(value: Any, viewer: Subscriber, wait_until: Callable[..., Any]) -> None:
    splatview.log(1, it=value)
    rows = logged(viewer, wait_until, "it", 1)["it"]
    assert rows[0, VALUE] == float(value.item() if hasattr(value, "item") else value)


def test_what_is_not_finite_is_counted(viewer: Subscriber, wait_until: Callable[..., Any]) -> None:
    for step, value in enumerate([1.0, math.nan, math.inf, -math.inf, 2.0]):
        splatview.log(step, it=value)
    rows = logged(viewer, wait_until, "it", 5)["it"]
    assert rows[:, BROKEN].tolist() == [0, 1, 1, 1, 0]
    np.testing.assert_array_equal(rows[:, VALUE], [1, math.nan, math.inf, -math.inf, 2])
    np.testing.assert_array_equal(rows[:, HIGH], [1, math.nan, math.nan, math.nan, 2])


def test_a_tensor_is_plotted_as_it_was(viewer: Subscriber, wait_until: Callable[..., Any]) -> None:
    loss = torch.zeros(())
    for step in range(100):
        loss.fill_(step)
        splatview.log(step, loss=loss)
    assert logged(viewer, wait_until, "loss", 100)["loss"][:, VALUE].tolist() == list(range(100))


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: splatview.log("one", a=1.0), TypeError, "step is a str"),  # type: ignore[arg-type]
    (lambda: splatview.log(math.nan, a=1.0), ValueError, "step is nan"),  # type: ignore[arg-type]
    (lambda: splatview.log(3), TypeError, "loss=loss"),
    (lambda: splatview.log(3, a="much"), TypeError, "a is a str"),
    (lambda: splatview.log(3, a=None), TypeError, "a is a NoneType"),
    (lambda: splatview.log(3, a=torch.zeros(2)), TypeError, r"shape \(2,\)"),
    (lambda: splatview.log(3, a=torch.zeros((), dtype=torch.complex64)), TypeError, "complex64"),
    (lambda: splatview.log(3, a=np.zeros(3)), TypeError, "ndarray"),
    (lambda: splatview.log(3, a=10**400), ValueError, "too large"),
    (lambda: splatview.log(3, **{"a\nb": 1.0}), ValueError, "printable"),
    (lambda: splatview.log(3, **{"a" * 101: 1.0}), ValueError, "100 printable"),
    (lambda: splatview.log(3, **{"": 1.0}), ValueError, "1 to 100"),
])
def test_mistakes_are_named(call: Callable[[], None], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_one_scalar_too_many_is_refused_and_others_go_on(viewer: Subscriber, wait_until: Callable[..., Any]) -> None:
    for i in range(64):
        splatview.log(0, **{f"s{i}": float(i)})
    with pytest.raises(ValueError, match="'s64' is one scalar too many; a run has at most 64"):
        splatview.log(0, s64=1.0)
    splatview.log(1, s63=5.0)
    found = logged(viewer, wait_until, "s63", 2)
    assert len(found) == 64
    assert sum(map(len, found.values())) == 65


def test_the_history_is_bounded_and_keeps_what_stands_out(viewer: Subscriber, wait_until: Callable[..., Any]) -> None:
    n, rng = 100_000, np.random.default_rng(0)
    values = rng.normal(size=n)
    values[12_345] = 1e6
    for step in range(n):
        splatview.log(step, loss=float(values[step]))
    for i in range(30):  # fewer rows for each from now on
        splatview.log(n, **{f"other{i}": 0.0})
    found = logged(viewer, wait_until, "other29", 1)
    rows = found["loss"]
    assert rows[:, COUNT].sum() == n
    assert len(rows) <= SCALAR_ROWS // 32
    assert (rows[0, STEP] < 1000, rows[-1, STEP]) == (True, n - 1)
    assert rows[:, HIGH].max() == 1e6
    np.testing.assert_allclose((rows[:, VALUE] * rows[:, COUNT]).sum(), values.sum(), rtol=1e-9)


def test_nothing_is_done_when_nothing_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_DISABLE", "1")
    before = threading.active_count()
    splatview.log(0, loss=1.0)
    assert publishing.begun() is None
    assert threading.active_count() == before


def test_closing_gives_back_everything(wait_until: Callable[..., Any]) -> None:
    splatview.log(0, loss=1.0)
    splatview.close()
    before = open_files()
    for round_ in range(3):
        splatview.log(round_, loss=1.0)
        splatview.log(round_, other=1.0)
        splatview.close()
        assert not [t for t in threading.enumerate() if t.name == "splatview scalars"]
    wait_until(lambda: (gc.collect(), open_files() <= before)[-1])
    with Subscriber() as viewer:
        splatview.log(7, loss=2.0)  # begins anew
        assert logged(viewer, wait_until, "loss", 1)["loss"][0, STEP] == 7


def test_a_name_that_something_else_has(wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(4, 4), "scalars")
    with pytest.raises(ValueError, match="scalars"):
        splatview.log(0, loss=1.0)


def test_what_was_logged_last_outlives_the_program(viewer: Subscriber, programs: Programs,
                                                   wait_until: Callable[..., Any]) -> None:
    trainer = programs.code("""
import sys, splatview
splatview.log(0, loss=1.0)
sys.stdin.readline()
for step in range(1, 1001):
    splatview.log(step, loss=float(step))
""")
    logged(viewer, wait_until, "loss", 1)
    assert trainer.stdin is not None
    trainer.stdin.write("\n")
    trainer.stdin.flush()
    assert logged(viewer, wait_until, "loss", 1001)["loss"][-1, VALUE] == 1000
    assert trainer.wait() == 0


def test_a_child_logs_for_itself(viewer: Subscriber, programs: Programs, wait_until: Callable[..., Any]) -> None:
    program = programs.code("""
import os, sys, splatview
splatview.log(0, loss=1.0)
child = os.fork()
splatview.log(1, loss=2.0 if child else 3.0)
sys.stdin.readline()
if child:
    os.waitpid(child, 0)
""")
    wait_until(lambda: (viewer.poll(), len([s for s in viewer.streams if s.kind == "scalars"]) == 2)[-1])
    values = set()

    def both() -> bool:
        viewer.poll()
        for stream in viewer.streams:
            stream.open()
            frame = stream.read()
            if frame is not None:
                with frame:
                    values.add(float(np.array(host_array(frame.tensors["rows"]))[-1, VALUE]))
        return values >= {2.0, 3.0}

    wait_until(both)
    program.kill()


def test_a_program_that_never_stops_logging_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "MOST_WAITING", 1000)
    splatview.log(0, loss=0.0)
    logger = scalars._logger
    assert logger is not None
    most = 0
    for step in range(20_000):
        splatview.log(step, loss=0.0)
        most = max(most, len(logger.waiting))
    assert most <= 1001


def test_status_lists_it(viewer: Subscriber, capsys: pytest.CaptureFixture[str]) -> None:
    from splatview.cli import main

    splatview.log(0, loss=1.0)
    main(["status", "--json"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [(s["name"], s["kind"]) for s in run["streams"]] == [("scalars", "scalars")]
    assert run["pid"] == os.getpid()
    assert sys.modules["splatview.scalars"] is scalars


# -- numbers on a GPU, whose coming the tests decide: tests/cuda has real ones ----------------------------------------


class Arrival:
    """Where a CUDA event would be asked."""

    def __init__(self) -> None:
        self.come = False

    def query(self) -> bool:
        return self.come


def on_its_way(pool: _Pool, value: float) -> tuple[Any, Arrival]:
    slot, event = pool.free.pop(), Arrival()
    pool.slots[slot].fill_(value)
    return Later(pool, slot, event), event  # type: ignore[arg-type]


@pytest.fixture
def gpu() -> _Pool:
    return _Pool(torch.float32, pinned=False)


def test_what_comes_later_keeps_its_place(gpu: _Pool, viewer: Subscriber, wait_until: Callable[..., Any]) -> None:
    splatview.log(0, loss=10.0)
    logged(viewer, wait_until, "loss", 1)
    logger = scalars._logger
    assert logger is not None
    (first, came), (second, came_too) = on_its_way(gpu, 11.0), on_its_way(gpu, 12.0)
    for step, value in ((1, first), (2, 20.0), (3, second)):
        logger.waiting.append((step, 1.7e9, {"loss": value}))
    came_too.come = True
    assert not logger.take_in()
    assert len(logger.waiting) == 3  # the first holds the others up
    came.come = True
    logger.called.set()
    rows = logged(viewer, wait_until, "loss", 4)["loss"]
    assert rows[:, VALUE].tolist() == [10, 11, 20, 12]
    assert len(gpu.free) == len(gpu.slots)


def test_what_never_comes_holds_nobody_up_for_ever(gpu: _Pool, monkeypatch: pytest.MonkeyPatch, viewer: Subscriber,
                                                   wait_until: Callable[..., Any]) -> None:
    monkeypatch.setattr(scalars, "MOST_WAITING", 50)
    splatview.log(0, loss=0.0)
    logged(viewer, wait_until, "loss", 1)
    logger = scalars._logger
    assert logger is not None
    never, event = on_its_way(gpu, 1.0)
    logger.waiting.append((1, 1.7e9, {"loss": never}))
    for step in range(2, 200):
        splatview.log(step, loss=float(step))
    rows = logged(viewer, wait_until, "loss", 199)["loss"]
    assert 1 not in rows[:, STEP]
    assert len(gpu.free) == len(gpu.slots) - 1
    gpu.reclaim()
    assert len(gpu.free) == len(gpu.slots) - 1  # it may still be written
    event.come = True
    gpu.reclaim()
    assert len(gpu.free) == len(gpu.slots)


def test_the_end_of_a_run_does_not_wait_for_ever(gpu: _Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scalars, "LAST", 0.01)
    splatview.log(0, loss=0.0)
    logger = scalars._logger
    assert logger is not None
    logger.waiting.extend((step, 1.7e9, {"loss": on_its_way(gpu, 1.0)[0]}) for step in range(1, 100))
    scalars.end()
    assert not logger.waiting


# -- rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 63, 64, 65, 100, 1000, 12_345])
@pytest.mark.parametrize("chunk", [1, 7, 500])
def test_rows_stand_for_all_samples(n: int, chunk: int) -> None:
    rng = np.random.default_rng(n)
    samples = np.stack([np.arange(n), np.cumsum(rng.uniform(0, 1, n)), rng.normal(size=n)], axis=1)
    samples[rng.uniform(size=n) < 0.05, 2] = np.nan
    made = Series(64)
    for begin in range(0, n, chunk):
        made.extend(samples[begin: begin + chunk])
        assert len(made.rows) <= 64
    rows = made.rows
    ends = rows[:, COUNT].cumsum().astype(int)
    assert ends[-1] == made.samples == n
    begins = ends - rows[:, COUNT].astype(int)
    for begin, end, row in zip(begins, ends, rows, strict=True):
        part = samples[begin:end]
        good = part[np.isfinite(part[:, 2]), 2]
        assert (row[STEP], row[TIME]) == tuple(part[-1, :2])
        assert row[BROKEN] == len(part) - len(good)
        if len(good):
            np.testing.assert_allclose([row[VALUE], row[LOW], row[HIGH]], [good.mean(), good.min(), good.max()],
                                       rtol=1e-9, atol=1e-12)
        else:
            assert np.isnan(row[[VALUE, LOW, HIGH]]).all()
    assert (rows[-min(16, n):, COUNT] == 1).all()  # what is new is kept as it was
    assert rows[:, COUNT].max() <= max(1, 8 * n / 64)  # and what is old evenly


def test_fewer_rows_may_be_had_later() -> None:
    made = Series(1024)
    made.extend(np.stack([np.arange(1000.0)] * 3, axis=1))
    made.limit(64)
    assert len(made.rows) <= 64
    assert made.rows[:, COUNT].sum() == 1000
    assert made.rows[-1, STEP] == 999


def test_merging_takes_the_newest_place_and_the_extremes() -> None:
    rows = np.array([[1, 10, 2.0, 1, 3, 2, 0], [2, 11, 5.0, 5, 5, 1, 0], [3, 12, np.inf, np.nan, np.nan, 1, 1]])
    (merged,) = merge(rows, np.array([0]))
    assert merged.tolist() == [3, 12, 3.0, 1, 5, 4, 1]
