"""The reading thread: its pace, its retries, and that it is never held up."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.wait import PATIENCE, turns

from splatview.camera import reading as reading_module
from splatview.camera.capture import CaptureSettings
from splatview.camera.reading import Reading
from splatview.camera.sources import CameraError, DamagedError, HopelessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.camera.sources import Buffers, Source


class Script:
    """A source that does what it is told: for each time that it is opened, a list of times, errors, or events to wait
    for. After the last list it goes on with it."""

    def __init__(self, *rounds: list[Any], recorded: bool = False, rate: float = 0.0):
        self.words, self.rate, self.recorded = "the script", rate, recorded
        self.rounds, self.opened, self.closed = list(rounds), 0, 0
        self.open_now = False
        self._left: Iterator[Any] = iter(())

    def open(self) -> None:
        assert not self.open_now
        steps = self.rounds[min(self.opened, len(self.rounds) - 1)]
        self.opened += 1
        if steps and isinstance(steps[0], Exception):
            raise steps[0]
        self.open_now = True
        self._left = iter(steps)

    def grab(self) -> float | None:
        step = next(self._left, None)
        if isinstance(step, threading.Event):
            step.wait(PATIENCE)
            step = next(self._left, None)
        if isinstance(step, Exception) and not isinstance(step, DamagedError):
            raise step
        self._step = step
        return 0.0 if isinstance(step, DamagedError) else step

    def retrieve(self, buffers: Buffers) -> np.ndarray:
        if isinstance(self._step, DamagedError):
            raise self._step
        assert self._step is not None
        return np.full((2, 2, 3), round(self._step * 1000) % 256, np.uint8)

    def close(self) -> None:
        self.open_now = False
        self.closed += 1


@dataclass
class Played:
    reading: Reading
    waits: list[float] = field(default_factory=list)
    shown: list[tuple[float, int]] = field(default_factory=list)
    """When each picture was shown, and its value."""


@pytest.fixture
def start() -> Iterator[Callable[..., Reading]]:
    started = []

    def begin(source: Source, **settings: Any) -> Reading:
        reading = Reading(source, CaptureSettings(source="script", **settings))
        reading.start()
        started.append(reading)
        return reading

    yield begin
    for reading in started:
        reading.stop()
        assert reading.ends_within(PATIENCE)
        assert not getattr(reading.source, "open_now", False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_module, "_PAUSES", (0.001, 0.002))


def values(reading: Reading, count: int) -> list[int]:
    taken = []
    for _ in turns("pictures"):
        image = reading.take(PATIENCE)
        if image is not None:
            taken.append(int(image[0, 0, 0]))
        if len(taken) == count:
            break
    return taken


def test_the_newest_picture_is_kept_and_the_others_are_counted(start: Callable[..., Reading],
                                                               wait_until: Callable[..., Any]) -> None:
    """Nobody takes pictures: the source is read all the same."""
    done = threading.Event()
    reading = start(Script([i / 1000 for i in range(1, 101)] + [done]))
    wait_until(lambda: reading.dropped == 99)
    assert values(reading, 1) == [100]
    assert reading.take(0) is None
    reading.forget_dropped()
    assert reading.dropped == 0
    done.set()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Played]:
    """Play a source by a clock that goes on by what is waited for and by what pictures take."""
    def play(source: Script, *, loop: bool = True, retrieve: float = 0.0, grab: float = 0.0, most: int = 0) -> Played:
        clock, reading = [1000.0], Reading(source, CaptureSettings(source="script", loop=loop))
        found = Played(reading)

        def wait(self: Reading, seconds: float) -> None:
            found.waits.append(round(seconds, 3))
            clock[0] += max(0.0, seconds)

        def put(self: Reading, image: np.ndarray) -> None:
            found.shown.append((round(clock[0] - 1000, 3), int(image[0, 0, 0])))
            clock[0] += retrieve
            if len(found.shown) == most:
                reading.stop()

        def slow_grab() -> float | None:
            clock[0] += grab
            return quick_grab()

        quick_grab, source.grab = source.grab, slow_grab  # type: ignore[method-assign]
        monkeypatch.setattr(reading_module.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(Reading, "_wait", wait)
        monkeypatch.setattr(Reading, "_put", put)
        reading._open()
        reading._play()
        return found

    return play


def test_a_recording_is_played_at_its_own_times_and_again(played: Callable[..., Played]) -> None:
    """Each picture is waited for until it is due, and the first of a round until the last has been seen."""
    source = Script([0.0, 0.1, 0.3, 0.4], recorded=True, rate=10)
    times = [0.0, 0.1, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9, 1.0, 1.1]
    assert played(source, retrieve=0.03, most=10).shown == [(at, round((at % 0.5) * 1000) % 256) for at in times]
    assert source.opened == 3


def test_what_fails_is_tried_again_for_ever_and_told(start: Callable[..., Reading], quick: None,
                                                     wait_until: Callable[..., Any]) -> None:
    hold = threading.Event()
    source = Script([0.001, CameraError("pulled out")], *[[CameraError("no route")]] * 20, [HopelessError("no file")],
                    [0.002, RuntimeError("odd")], [0.003, hold])
    reading = start(source)
    seen = set()
    wait_until(lambda: (seen.add(reading.trouble), source.opened == 24)[1])
    assert values(reading, 1) == [3]
    wait_until(lambda: reading.trouble == "")
    assert seen <= {"", "pulled out; trying again", "no route; trying again", "no file; trying again",
                    "the script: RuntimeError: odd; trying again"}
    assert not reading.hopeless
    assert source.closed >= source.opened - 1
    hold.set()


def test_what_is_hopeless_at_first_is_not_tried_again(start: Callable[..., Reading],
                                                      wait_until: Callable[..., Any]) -> None:
    source = Script([HopelessError("no such file")])
    reading = start(source)
    wait_until(lambda: reading.hopeless)
    assert reading.hopeless == "no such file" and reading.ends_within(PATIENCE) and source.opened == 1


def test_damaged_pictures_are_left_out_until_there_are_too_many(start: Callable[..., Reading], quick: None,
                                                                wait_until: Callable[..., Any]) -> None:
    hold = threading.Event()
    reading = start(Script([0.001, *[DamagedError("damaged")] * 30, 0.002, hold]))
    wait_until(lambda: reading.dropped >= 30)
    assert reading.trouble == ""
    hold.set()
    worse = start(Script([0.001, *[DamagedError("damaged")] * 31, 0.002]))
    wait_until(lambda: worse.trouble == "damaged; trying again")


def test_at_most_so_many_pictures_as_asked_for() -> None:
    source = Script([], rate=30)
    reading = Reading(source, CaptureSettings(source="script", fps=20))
    assert [i for i in range(12) if not reading._too_many(i / 30)] == [0, 2, 3, 5, 6, 8, 9, 11]
    source.rate = 20.5  # what was asked for, as a camera understands it
    assert not any(reading._too_many(i / 100) for i in range(12))
