"""The rate of versions, whatever the rhythm in which they are counted."""

from __future__ import annotations

import pytest

from splatview_ipc.subscriber.rate import Rate


def _measure(hz: float, period: float, start: float, seconds: float) -> list[float]:
    """Return the rate at each poll, of versions that have come `hz` times a second.

    The polls begin at `start`, and are `period` seconds apart.
    """
    rate = Rate()
    measured = []
    for index in range(int(seconds / period)):
        now = start + index * period
        rate.look(now, int(now * hz))
        measured.append(rate.hz)
    return measured


@pytest.mark.parametrize("period", [0.004, 0.07])
@pytest.mark.parametrize("hz", [0.3, 1.9, 60.0, 1000.0])
def test_rate_is_right_and_steady_once_it_is_known(hz: float, period: float) -> None:
    measured = _measure(hz, period, start=100.3, seconds=20.0)
    known_rates = [rate for rate in measured if rate]
    assert len(known_rates) > len(measured) / 2
    assert min(known_rates) > 0.8 * hz
    assert max(known_rates) < 1.25 * hz
