"""Round places of axes and their labels."""

from __future__ import annotations

from datetime import datetime

import pytest

from splatview_viewer.core import format
from splatview_viewer.core.format import (
    Tick,
    ago_ticks,
    byte_ticks,
    count_ticks,
    log_ticks,
)


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (byte_ticks(0, 12 << 30, 7), "0|2 GiB|4 GiB|6 GiB|8 GiB|10 GiB|12 GiB"),
        (
            byte_ticks(6 << 30, 7 << 30, 5),
            "6.00 GiB|6.25 GiB|6.50 GiB|6.75 GiB|7.00 GiB",
        ),
        (byte_ticks(0, 4096, 5), "0|1 KiB|2 KiB|3 KiB|4 KiB"),
        (count_ticks(0, 25_000, 3), "0|10,000|20,000"),
        (log_ticks(0.05, 2), "0.05|0.1|0.2|0.5|1|2"),
        (log_ticks(2.1, 4.2), "2.5|3|3.5|4"),
        (log_ticks(0.001, 10), ""),
        (ago_ticks(-65, 0, 5), "-60 s|-45 s|-30 s|-15 s|now"),
        (ago_ticks(-0.5, 0, 3), "-0.4 s|-0.2 s|now"),
        (ago_ticks(-9000, 0, 4), "-2 h|-60 min|now"),
    ],
)
def test_ticks_are_round(found: list[Tick], want: str) -> None:
    assert "|".join(text for _, text in found) == want


@pytest.mark.parametrize(("span", "most"), [(40, 8), (700_000, 6), (3 * 3600e6, 7)])
def test_ticks_of_time_are_round_on_the_clock(span: float, most: int) -> None:
    origin = 1_700_000_123_456_789
    found = format.time_ticks(0, span, origin, most)
    assert 2 <= len(found) <= most + 1
    step = found[1][0] - found[0][0]
    for at, text in found:
        when = datetime.fromtimestamp(round(origin + at) // 1_000_000)
        micros = round(origin + at) % 1_000_000
        midnight = (
            when.hour * 3600 + when.minute * 60 + when.second
        ) * 1_000_000 + micros
        assert midnight % min(step, 86400e6) == pytest.approx(0, abs=1)
        digits = f".{micros:06d}"
        assert (
            text in (f"{when:%H:%M:%S}" + digits[:k] for k in (0, 2, 3, 4, 5, 6, 7))
            or text == f"{when:%H:%M}"
        )
    assert len({text for _, text in found}) == len(found) or span > 86400e6
