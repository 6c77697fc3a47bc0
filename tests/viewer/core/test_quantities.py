"""Ticks of axes: round values and their labels."""

from __future__ import annotations

from datetime import datetime

import pytest

from splatview_viewer.core import quantities
from splatview_viewer.core.jobs import JobQueue
from splatview_viewer.core.quantities import (
    BINARY,
    DECIMAL,
    Tick,
    ago_ticks,
    byte_ticks,
    count_ticks,
    log_ticks,
    size_text,
    use_byte_units,
)


@pytest.mark.parametrize(
    ("ticks", "expected"),
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
def test_ticks_are_round(ticks: list[Tick], expected: str) -> None:
    assert "|".join(text for _, text in ticks) == expected


@pytest.mark.parametrize(
    ("span", "max_ticks"), [(40, 8), (700_000, 6), (3 * 3600e6, 7)]
)
def test_ticks_of_time_are_round_on_the_clock(span: float, max_ticks: int) -> None:
    origin = 1_700_000_123_456_789
    ticks = quantities.time_ticks(0, span, origin, max_ticks)
    assert 2 <= len(ticks) <= max_ticks + 1
    step = ticks[1][0] - ticks[0][0]
    for offset, text in ticks:
        time = datetime.fromtimestamp(round(origin + offset) // 1_000_000)
        micros = round(origin + offset) % 1_000_000
        seconds = time.hour * 3600 + time.minute * 60 + time.second
        since_midnight = seconds * 1_000_000 + micros
        assert since_midnight % min(step, 86400e6) == pytest.approx(0, abs=1)
        digits = f".{micros:06d}"
        forms = [f"{time:%H:%M:%S}" + digits[:k] for k in (0, 2, 3, 4, 5, 6, 7)]
        assert text in [*forms, f"{time:%H:%M}"]
    # Within a day, no label occurs twice.
    if span <= 86400e6:
        assert len({text for _, text in ticks}) == len(ticks)


def test_memory_is_told_in_the_chosen_units() -> None:
    size = 6 * 10**9

    def tell_size(_: object) -> str:
        return size_text(size)

    assert size_text(size) == "5.59 GiB"
    use_byte_units(DECIMAL)
    jobs = JobQueue("sizes")
    try:
        # A job tells them as the user who began it.
        job = jobs.submit(tell_size)
        use_byte_units(BINARY)
        assert job.wait(10)
        assert job.result() == "6.00 GB"
        use_byte_units(DECIMAL)
        assert size_text(size) == "6.00 GB"
        ticks = byte_ticks(0, 12e9, 7)
        assert [text for _, text in ticks[:4]] == ["0", "2 GB", "4 GB", "6 GB"]
        ticks = byte_ticks(6e9, 7e9, 5)
        assert ticks[1][1] == "6.2 GB"
    finally:
        use_byte_units(BINARY)
