"""How often versions come, whatever the rhythm in which they are looked for."""

from __future__ import annotations

import pytest

from splatview_ipc.subscriber.rate import Rate


def looked(rate: Rate, hz: float, every: float, begin: float, seconds: float) -> list[float]:
    """What it says at each look, while something happens `hz` times a second since 0."""
    said = []
    for k in range(int(seconds / every)):
        now = begin + k * every
        rate.look(now, int(now * hz))
        said.append(rate.hz)
    return said


@pytest.mark.parametrize("every", [0.004, 0.07])
@pytest.mark.parametrize("hz", [0.3, 1.9, 60.0, 1000.0])
def test_it_is_told_right_and_steadily(hz: float, every: float) -> None:
    said = looked(Rate(), hz, every, 100.3, 20.0)
    known = [r for r in said if r]
    assert len(known) > len(said) / 2
    assert min(known) > 0.8 * hz and max(known) < 1.25 * hz


def test_what_stops_is_told_to_be_rarer_and_rarer_in_few_steps() -> None:
    rate = Rate()
    looked(rate, 60.0, 0.01, 0.0, 5.0)
    count, said = int(60 * 4.99), [rate.hz]
    for k in range(10_000):
        rate.look(5.0 + 0.01 * k, count)
        if rate.hz != said[-1]:
            said.append(rate.hz)
    assert said[0] == pytest.approx(60, rel=0.1) and said[-1] == 0.0
    assert said == sorted(said, reverse=True) and len(said) < 15  # each one is a picture
    said = looked(rate, 60.0, 0.01, 200.0, 3.0)
    assert said[-1] == pytest.approx(60, rel=0.1)
