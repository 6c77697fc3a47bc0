"""How long a reader sleeps until a stream's next frame, for streams that are steady, irregular, stopped or changed."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

from splatview import naps
from splatview.naps import Naps, be_punctual, while_busy

PERIOD = 1 / 30
START = 1e9


def learnt(periods: list[float], step: int = 1) -> tuple[Naps, float]:
    """What is known after frames so far apart, and when the last one came. `step`: versions from one to the next."""
    known, at = Naps(), START
    for i, period in enumerate(periods):
        at += period
        known.came(1 + step * i, at)
    return known, at


def looks(known: Naps, begin: float, end: float) -> list[float]:
    """When somebody looks who sleeps as told, from `begin` on, and first after `end`."""
    found = [begin]
    while found[-1] < end:
        found.append(found[-1] + known.nap(found[-1]))
    return found


def test_nothing_is_known_at_first() -> None:
    known = Naps()
    assert known.nap(START) == pytest.approx(2e-3)
    known.came(1, START)
    assert naps.SHORTEST <= known.nap(START + 1e-3) <= 2e-3


@pytest.mark.parametrize("step", [1, 7])
def test_of_a_steady_stream_the_next_frame_is_found_at_once_with_few_looks(step: int) -> None:
    known, at = learnt([PERIOD * step] * 60, step)
    due = at + PERIOD
    times = looks(known, at + 1e-4, due)
    assert len(times) < 15
    assert times[1] > due - 5e-4, "the first sleep lasts nearly until then"
    assert times[-1] - due <= 2 * naps.SHORTEST


def test_of_an_irregular_stream_it_is_found_soon_with_looks_in_proportion() -> None:
    chance = random.Random(0)
    known, at = learnt([PERIOD * chance.uniform(0.7, 1.3) for _ in range(200)])
    for share in (0.7, 0.85, 1.0, 1.15, 1.3):
        times = looks(known, at + 1e-4, at + share * PERIOD)
        assert times[-1] - (at + share * PERIOD) < 0.05 * PERIOD
        assert len(times) < 60


def test_one_frame_that_comes_far_too_late_changes_little() -> None:
    known, at = learnt([PERIOD] * 60 + [4 * PERIOD] + [PERIOD] * 5)
    times = looks(known, at + 1e-4, at + PERIOD)
    assert times[-1] - at - PERIOD < 5e-4
    assert len(times) < 40


def test_another_rate_is_learnt_within_a_few_frames() -> None:
    known, at = learnt([PERIOD] * 60 + [PERIOD / 20] * 8)
    assert known.nap(at) < PERIOD / 20
    known, at = learnt([PERIOD / 20] * 60 + [PERIOD] * 8)
    assert known.nap(at) > 0.7 * PERIOD


def test_a_stream_that_stopped_is_looked_at_less_and_less() -> None:
    known, at = learnt([PERIOD] * 60)
    assert known.nap(at + PERIOD + 0.5) == pytest.approx(2e-3)
    assert known.nap(at + 2) == pytest.approx(1e-2)
    assert known.nap(at + 3600) == pytest.approx(2e-2)
    lengths = [known.nap(at + PERIOD + late) for late in (1e-3, 5e-3, 1e-2, 0.5, 2, 60)]
    assert all(a <= b for a, b in itertools.pairwise(lengths))


def test_a_clock_that_was_put_back_does_no_harm() -> None:
    known, at = learnt([PERIOD] * 60)
    known.came(100, at - 3600)
    known.came(101, at - 3600 + PERIOD)
    assert 0 < known.nap(at - 3600 + 2 * PERIOD) <= PERIOD
    known.came(3, at)  # and versions that began again
    assert 0 < known.nap(at + 0.01) <= PERIOD


def test_while_the_gpu_is_busy_naps_grow_from_a_few_microseconds() -> None:
    assert while_busy(0) == pytest.approx(1e-5)
    assert while_busy(1e-3) == pytest.approx(1e-4)
    assert while_busy(100) == pytest.approx(2e-3)


def test_only_the_thread_that_waits_is_woken_on_time() -> None:
    def waits() -> None:
        be_punctual()
        be_punctual()
        slack.append(naps._prctl(naps._PR_GET_TIMERSLACK, 0))

    slack: list[int] = []
    before = naps._prctl(naps._PR_GET_TIMERSLACK, 0)
    thread = threading.Thread(target=waits)
    thread.start()
    thread.join()
    assert slack == [min(before, naps._SLACK)]
    assert naps._prctl(naps._PR_GET_TIMERSLACK, 0) == before


def test_the_shortest_naps_are_not_slept(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(naps.time, "sleep", slept.append)
    for seconds in (0.0, naps.SHORTEST / 2, naps.SHORTEST, 1e-3):
        naps.sleep(seconds)
    assert slept == [1e-3]
