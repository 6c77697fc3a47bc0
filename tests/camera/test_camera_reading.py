"""Reading a source: its pace, its retries, and what is left out.

Time goes on by what is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from splatview.camera.capture import PLAYED, SourceReader
from splatview.camera.sources import CaptureError, CaptureSettings, NoPictureError

DAMAGED = -1.0
"""The time of a picture that cannot be decoded."""


class Script:
    """A source that does what it is told: for each time that it is opened, a list of
    times and errors. After the last list it goes on with it.
    """

    def __init__(self, *rounds: list[Any], recorded: bool = False, rate: float = 0.0):
        self.description = "the script"
        self.rate = rate
        self.recorded = recorded
        self.rounds = list(rounds)
        self.opened = 0
        self.open_now = False
        self._left: Iterator[Any] = iter(())
        self._step: Any = None

    def open(self) -> None:
        steps = self.rounds[min(self.opened, len(self.rounds) - 1)]
        self.opened += 1
        if steps and isinstance(steps[0], Exception):
            raise steps[0]
        self.open_now, self._left = True, iter(steps)

    def grab(self) -> float | None:
        step = next(self._left, None)
        if isinstance(step, Exception):
            raise step
        self._step = step
        return step

    def retrieve(self) -> np.ndarray | None:
        if self._step == DAMAGED:
            return None
        return np.full((2, 2, 3), round(self._step * 1000) % 256, np.uint8)

    def close(self) -> None:
        self.open_now = False


@dataclass
class Watched:
    """Keeps the output of a reading, and is its clock.

    It stops the reading after `max_pictures` pictures, or ten times as many waits.
    """

    max_pictures: int
    per_picture: float = 0.0
    """Seconds that publishing one takes."""
    time: float = 1000.0
    exit_code: int = 1
    pictures: list[tuple[float, int]] = field(default_factory=list)
    """Time and value of each picture that was shown."""
    reports: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    dropped: int = 0
    left_held: int = 0
    """Number of looks at which pictures are not wanted."""

    def is_paused(self) -> bool:
        self.left_held -= 1
        return self.left_held >= 0

    def report(self, text: str) -> None:
        self.reports.append(text)

    def show(self, image: np.ndarray, dropped: int, now: float) -> None:
        self.pictures.append((round(now - 1000, 3), int(image[0, 0, 0])))
        self.dropped = dropped
        self.time += self.per_picture

    def show_error(self, text: str, dropped: int) -> None:
        self.troubles.append(text)

    def is_set(self) -> bool:
        has_all_pictures = len(self.pictures) >= self.max_pictures
        return has_all_pictures or len(self.waits) > 10 * self.max_pictures

    def wait(self, seconds: float | None = None) -> bool:
        # Without a time the reading waits for its end.
        if seconds is None:
            self.max_pictures = 0
        else:
            self.waits.append(seconds)
            self.time += seconds
        return self.is_set()

    def _clock(self) -> float:
        return self.time

    def run(self, script: Script, source: str = "script", **settings: Any) -> Watched:
        output: Any = self
        capture = CaptureSettings(source=source, **settings)
        SourceReader(script, capture, output, output, self._clock).run()
        assert not script.open_now
        return self


def test_recording_is_played_at_its_own_times_and_again() -> None:
    """Each picture is waited for until it is due, and the first of a round until the
    last has been seen.
    """
    source = Script([0.0, 0.1, 0.3, 0.9], recorded=True, rate=10)
    times = [0.0, 0.1, 0.3, 0.9, 1.0, 1.1, 1.3, 1.9, 2.0, 2.1]
    assert Watched(10, per_picture=0.03).run(source).pictures == [
        (time_s, round((time_s % 1.0) * 1000) % 256) for time_s in times
    ]
    assert source.opened == 3


def test_recording_that_lags_leaves_pictures_out_and_then_goes_on_more_slowly() -> None:
    source = Script([i / 10 for i in range(20)], recorded=True, rate=10)
    slow = Watched(5, per_picture=0.21).run(source)
    assert [value for _, value in slow.pictures] == [
        0,
        200,
        400 % 256,
        600 % 256,
        800 % 256,
    ]
    assert slow.dropped == 4
    source = Script([i / 10 for i in range(20)], recorded=True, rate=10)
    slower = Watched(8, per_picture=1.0).run(source)
    assert [round(time_s) for time_s, _ in slower.pictures] == list(range(8))


def test_paused_recording_stands_still_and_camera_pictures_are_dropped() -> None:
    """A recording stands still; what a camera gives meanwhile is let go."""
    recorded = Watched(2, left_held=4).run(Script([0.0, 0.1], recorded=True, rate=10))
    assert [value for _, value in recorded.pictures] == [0, 100]
    assert recorded.waits[:4] == [0.05] * 4
    live = Watched(1, left_held=4).run(Script([i / 1000 for i in range(9)]))
    assert live.pictures == [(0, 4)]
    assert not live.waits
    assert live.dropped == 0


def test_source_is_opened_again_after_each_fault() -> None:
    source = Script(
        [0.001, CaptureError("pulled out")],
        *[[CaptureError("no route")]] * 6,
        [CaptureError("no file")],
        [0.002, RuntimeError("odd")],
        [0.003],
    )
    watched = Watched(3).run(source)
    assert [value for _, value in watched.pictures] == [1, 2, 3]
    assert watched.troubles == [
        "pulled out; trying again",
        *["no route; trying again"] * 6,
        "no file; trying again",
        "the script: RuntimeError: odd; trying again",
    ]
    assert watched.waits == [1.0] * 9
    assert watched.exit_code == 0


def test_source_that_never_opened_is_tried_again_only_in_a_network() -> None:
    later = Watched(1).run(
        Script([CaptureError("no route")], [0.001]), source="rtsp://a/b"
    )
    assert (later.pictures, later.troubles) == ([(1, 1)], ["no route; trying again"])
    source = Script([CaptureError("no such file")])
    watched = Watched(1).run(source)
    assert (watched.exit_code, source.opened, watched.reports, watched.troubles) == (
        2,
        1,
        ["no such file"],
        [],
    )


def test_recording_without_loop_ends_with_its_last_picture() -> None:
    watched = Watched(9).run(Script([0.0, 0.1], recorded=True, rate=10), loop=False)
    assert len(watched.pictures) == 2
    assert watched.reports[-1] == PLAYED
    assert watched.troubles == ["the script: the end"]
    assert watched.exit_code == 0
    assert (
        Watched(1)
        .run(Script([], recorded=True))
        .troubles[0]
        .startswith("the script: there is no picture in it")
    )


def test_damaged_pictures_are_left_out_until_there_are_too_many() -> None:
    watched = Watched(2).run(Script([0.001, *[DAMAGED] * 30, 0.002]))
    assert (watched.dropped, watched.troubles, watched.reports) == (
        30,
        [],
        ["the script"],
    )
    assert (
        "cannot be decoded"
        in Watched(2).run(Script([0.001, *[DAMAGED] * 31, 0.002])).troubles[0]
    )


def test_grabs_without_a_picture_are_skipped() -> None:
    """A live source is lost when none comes for long; a recording then has ended."""
    missing = NoPictureError("none comes")
    watched = Watched(2).run(Script([0.001, *[missing] * 40, 0.002]))
    assert [value for _, value in watched.pictures] == [1, 2]
    assert (watched.dropped, watched.troubles) == (40, [])
    lost_source = Watched(3).run(Script([0.001, 0.002, *[missing] * 300], [0.003]))
    assert lost_source.troubles == ["none comes; trying again"]
    recorded = Script([0.0, missing, 0.1, *[missing] * 300], recorded=True, rate=10)
    assert [value for _, value in Watched(4).run(recorded).pictures] == [0, 100, 0, 100]


def test_address_of_one_picture_is_read_again_every_second() -> None:
    """As cameras have it beside their stream, for a page that loads it again."""
    missing = NoPictureError("none comes")
    still_picture = Script(*([n / 1000, *[missing] * 300] for n in (1, 2, 3)))
    watched = Watched(3).run(still_picture)
    assert watched.pictures == [(0.0, 1), (1.0, 2), (2.0, 3)]
    assert watched.troubles == []
    removed_picture = Script([0.001, *[missing] * 300], [CaptureError("gone")], [0.002])
    assert Watched(2).run(removed_picture).troubles == ["gone; trying again"]


def test_silent_source_is_lost_after_its_patience() -> None:
    watched = Watched(2)

    class Silent(Script):
        def grab(self) -> float | None:
            try:
                return super().grab()
            except NoPictureError:
                watched.time += 5
                raise

    source = Silent([0.001, *[NoPictureError("none comes")] * 2], [0.002])
    watched.run(source, patience=5)
    assert watched.troubles == ["none comes; trying again"]
    assert source.opened == 2
