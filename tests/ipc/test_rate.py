"""How often versions come, whatever the rhythm in which they are looked for."""

from __future__ import annotations

import pytest

from splatview_ipc.subscriber.rate import Rate


def looked(
    rate: Rate, hz: float, every: float, begin: float, seconds: float
) -> list[float]:
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
    assert min(known) > 0.8 * hz
    assert max(known) < 1.25 * hz
