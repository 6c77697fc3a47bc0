"""Flow control on simulated lines: fluent, prompt, and as good as the line allows."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from splatview.viewer_app.web.pacing import IN_FLIGHT, LEVELS, LOSSLESS, Level, Pacer

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = {85: 1.0, 75: 0.8, 65: 0.7, 55: 0.62, 45: 0.55, 35: 0.47}  # not quite what the pacer believes
FRAME = 1 / 60


@dataclass(frozen=True)
class Line:
    """A network and a page: bytes a second, seconds there and back, seconds to decode a picture of full size, and those
    that the page does something else each time, on average."""

    rate: float
    trip: float
    decode: float = 0.008
    busy: float = 0.0


LINES = {
    "local": Line(1e9, 0.0002),
    "100 Mbit/s": Line(12.5e6, 0.002),
    "10 Mbit/s": Line(1.25e6, 0.040),
    "2 Mbit/s": Line(0.25e6, 0.100),
    "phone": Line(5e6, 0.010, 0.070),
    "far": Line(12.5e6, 0.250),
}


@dataclass(frozen=True)
class Shown:
    at: float
    late: float
    """Seconds more than on an empty line."""
    level: Level


def run(line: Callable[[float], Line], seconds: float, *, full: float = 80e3) -> list[Shown]:
    """Somebody drags a camera all the time: 60 pictures a second, if the pacer takes them."""
    chance, pacer, out = random.Random(0), Pacer(), []
    acks: list[tuple[float, int, Shown]] = []
    number, now, due, line_free, page_free = 0, 0.0, 0.0, 0.0, 0.0
    while now < seconds:
        while acks and acks[0][0] <= now:
            at, acked, shown = acks.pop(0)
            pacer.acked(acked, at)
            out.append(shown)
        if now >= due and pacer.ready:
            assert pacer.in_flight < IN_FLIGHT
            due, number, level, here = now + FRAME, number + 1, pacer.level, line(now)
            size = full * BYTES[level.quality] * level.scale**1.6 * chance.uniform(0.9, 1.1) + 3000 * level.scale**2
            sent = now + 0.005
            line_free = max(sent, line_free) + size / here.rate
            page_free = max(page_free, line_free + here.trip / 2) + here.decode * level.scale**2
            page_free += chance.expovariate(1 / here.busy) if here.busy else 0.0
            ack = math.ceil(page_free / FRAME + chance.random() * 0.2) * FRAME + here.trip / 2
            pacer.sent(number, int(size), sent, level)
            acks.append((ack, number, Shown(ack, ack - sent - here.trip - FRAME / 2, level)))
        now += 0.001
    return out


def steady(shown: list[Shown], begin: float, end: float) -> tuple[float, float, list[int]]:
    """Pictures a second, the lateness that 95 % keep, and the levels."""
    part = [s for s in shown if begin <= s.at < end]
    late = sorted(s.late for s in part)
    return len(part) / (end - begin), late[int(len(late) * 0.95)], [LEVELS.index(s.level) for s in part]


@pytest.mark.parametrize(("name", "full", "fluent", "late"), [
    ("local", 350e3, 50, 0.03), ("100 Mbit/s", 80e3, 50, 0.04), ("100 Mbit/s", 350e3, 28, 0.07),
    ("10 Mbit/s", 350e3, 17, 0.10), ("2 Mbit/s", 350e3, 9, 0.13), ("phone", 80e3, 18, 0.13), ("far", 350e3, 6, 0.08),
])
def test_pictures_come_soon_and_often(name: str, full: float, fluent: float, late: float) -> None:
    shown = run(lambda _: LINES[name], 25, full=full)
    assert shown[0].level.scale < 0.5, "small, until the line is known"
    rate, most, _ = steady(shown, 4, 25)
    assert rate >= fluent
    assert most <= late


@pytest.mark.parametrize("name", ["local", "far"])
def test_a_line_that_can_has_the_best_pictures(name: str) -> None:
    """However far away it is: what takes long there does not take less when it is small."""
    _, _, levels = steady(run(lambda _: LINES[name], 25), 3, 25)
    assert levels.count(0) > 0.9 * len(levels)


def test_worse_is_noticed_and_better_as_well() -> None:
    def line(now: float) -> Line:
        return LINES["2 Mbit/s"] if 10 <= now < 20 else LINES["100 Mbit/s"]

    shown = run(line, 32)
    _, _, before = steady(shown, 3, 10)
    assert set(before) == {0}
    rate, late, _ = steady(shown, 13, 20)
    assert rate >= 8
    assert late <= 0.15
    rate, late, after = steady(shown, 26, 32)
    assert set(after) == {0}
    assert rate >= 50
    assert late <= 0.04


def test_never_more_than_two_are_on_their_way() -> None:
    pacer = Pacer()
    assert pacer.ready
    pacer.sent(1, 1000, 0.0, pacer.level)
    assert pacer.ready and pacer.in_flight == 1
    pacer.sent(2, 1000, 0.1, pacer.level)
    assert not pacer.ready
    pacer.acked(1, 0.2)
    assert pacer.ready
    pacer.acked(1, 0.3)  # again
    pacer.acked(77, 0.3)  # a page that makes numbers up: nothing more than what is on its way
    assert pacer.in_flight == 0
    pacer.acked(3, 0.4)
    assert pacer.in_flight == 0


def test_a_page_that_was_hidden_says_nothing_about_the_line() -> None:
    def told(pause: bool) -> Pacer:
        pacer = Pacer()
        for k in range(100):
            pacer.sent(k, 80_000, k * 0.1, LEVELS[0])
            pacer.acked(k, k * 0.1 + 0.02)
        for k in range(100, 110):  # one each time that it is hidden
            pacer.sent(k, 80_000, k * 60, LEVELS[0])
            if pause:
                pacer.pause()
            pacer.acked(k, k * 60 + 40)
        return pacer

    known = told(True)
    assert known.rtt < 0.03
    assert known.level == LEVELS[0]
    assert told(False).rtt > 1


def test_a_picture_without_loss_may_take_a_second() -> None:
    pacer, chance = Pacer(), random.Random(1)
    for k in range(200):
        size = int(chance.uniform(0.5, 1.5) * 40_000)
        pacer.sent(k, size, k * 0.5, pacer.level)
        pacer.acked(k, k * 0.5 + 0.05 + size / 0.5e6)
    assert pacer.bytes_per_second == pytest.approx(0.5e6, rel=0.2)
    assert pacer.rtt == pytest.approx(0.05, abs=0.02)
    assert pacer.lossless_allowed(int(0.35e6 * LOSSLESS))
    assert not pacer.lossless_allowed(int(0.7e6 * LOSSLESS))
