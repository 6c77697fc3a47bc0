"""Words for sizes, durations and values, and round places for the lines of an axis. Without imgui."""

from __future__ import annotations

import math
from datetime import datetime

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
"""Units of bytes, each 1024 times the one before."""
_SECONDS = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
)
_MOST = 200
"""Ticks of an axis."""

Tick = tuple[float, str]
"""A place on an axis, and its label."""


def size_text(size: float) -> str:
    """Bytes in three digits and units of 1024: "512 B", "1.50 GiB", "-2.00 MiB"."""
    amount = float(abs(size))
    unit = 0
    while amount >= 999.5 and unit < len(UNITS) - 1:
        amount /= 1024
        unit += 1
    if unit == 0 or amount >= 99.95:
        number = f"{amount:.0f}"
    else:
        number = f"{amount:.2f}" if amount < 9.995 else f"{amount:.1f}"
    return f"{'-' if size < 0 else ''}{number} {UNITS[unit]}"


def exact_size_text(size: int) -> str:
    """Bytes in short and exactly: "1.50 GiB (1,610,612,736 bytes)"."""
    if abs(size) < 1000:
        return f"{size:,} bytes"
    return f"{size_text(size)} ({size:,} bytes)"


def change_text(change: int) -> str:
    """A difference of bytes, with its sign: "+1.50 GiB"."""
    return ("+" if change > 0 else "") + size_text(change)


def age_text(microseconds: float) -> str:
    """A duration: "0.5 us", "12 ms", "3.2 s", "4 min 05 s", "2 h 03 min"."""
    us = abs(float(microseconds))
    sign = "-" if microseconds < 0 else ""
    if us < 999.5:
        return f"{sign}{us:.3g} us"
    if us < 999.5e3:
        return f"{sign}{us / 1e3:.3g} ms"
    if us < 59.95e6:
        return f"{sign}{us / 1e6:.3g} s"
    seconds = round(us / 1e6)
    if seconds < 3600:
        return f"{sign}{seconds // 60} min {seconds % 60:02d} s"
    return f"{sign}{seconds // 3600:,} h {seconds % 3600 // 60:02d} min"


def count_text(count: int, one: str) -> str:
    """ "1 block", "1,234 blocks"."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def value_text(value: float) -> str:
    """A number in four digits; large whole numbers exactly."""
    if not math.isfinite(value):
        if value != value:
            return "NaN"
        if value > 0:
            return "infinite"
        return "-infinite"
    if value == int(value) and 1000 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def clock_text(time_us: int) -> str:
    """ "14:03:05.123456" for microseconds since the epoch; "" for 0: not known."""
    return _clock(time_us, 1.0) if time_us > 0 else ""


# -- axes -------------------------------------------------------------------------------------------------------


def round_up(least: float) -> float:
    """The least of 1, 2, 5, 10, 20, ... (and 0.1, 0.2, 0.5 ...) that is not less."""
    power = 10.0 ** math.floor(math.log10(max(least, 1e-12)))
    return next(m * power for m in (1, 2, 5, 10, 20) if m * power >= least * (1 - 1e-9))


def round_seconds(least: float) -> float:
    """The least round duration that is not less: 0.1, 0.2, 0.5, 1, ... 30, 60, 120, ... seconds, whole days."""
    if least < 1:
        return round_up(least)
    return next(
        (float(s) for s in _SECONDS if s >= least), round_up(least / 86400) * 86400
    )


def byte_ticks(low: float, high: float, count: int) -> list[Tick]:
    """At most about `count` round places from `low` to `high` bytes, in one unit: "12 GiB", "12,300 MiB"."""
    step = float(
        2 ** max(math.ceil(math.log2(max((high - low) / max(count, 1), 1.0))), 0)
    )
    unit = min(max(int(math.log2(step) // 10), 0), len(UNITS) - 1)
    if (
        unit + 1 < len(UNITS)
        and step >= 1024 ** (unit + 1) / 8
        and high >= 2 * 1024 ** (unit + 1)
    ):
        unit += 1  # 6.5 GiB rather than 6,656 MiB
    if unit == 0 and low >= 1 << 20:  # the last digits of a large number are of no use
        unit = 1
    size = 1024**unit
    digits = min(max(-round(math.log2(step / size)), 0), 3)  # halves, quarters, eighths
    return [
        (at, f"{at / size:,.{digits}f} {UNITS[unit]}" if at else "0")
        for at in _places(low, high, step)
    ]


def count_ticks(low: float, high: float, count: int) -> list[Tick]:
    """Round whole numbers: "12,500"."""
    step = max(round_up((high - low) / max(count, 1)), 1.0)
    return [(at, f"{at:,.0f}") for at in _places(low, high, step)]


def log_ticks(low: float, high: float, most: int = 6) -> list[Tick]:
    """Round numbers for a logarithmic axis that covers less than two powers of ten; none where it covers more."""
    if not 0 < low < high or high / low > 100:
        return []
    found = [
        m * 10.0**k
        for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for m in (1, 2, 5)
        if low <= m * 10.0**k <= high
    ]
    return [
        (at, f"{at:g}")
        for at in (
            found
            if len(found) >= 3
            else _places(low, high, round_up((high - low) / most))
        )
    ]


def time_ticks(low: float, high: float, origin_us: int, count: int) -> list[Tick]:
    """Round times of the clock on the wall from `low` to `high` microseconds after `origin_us` (since the epoch), with
    as many digits as tell them apart: "14:03:05", ".250" after a full second's; without an origin, since the begin.
    """
    least = (high - low) / max(count, 1)
    if least >= 1e6:
        step = round_seconds(least / 1e6) * 1e6
    else:
        step = max(round_up(least), 1.0)
    if origin_us <= 0:
        return [
            (at, f"{at / 1e6:,.{_digits(step)}f} s") for at in _places(low, high, step)
        ]
    # Round on the clock: from the midnight before.
    begin = datetime.fromtimestamp(origin_us // 1_000_000)
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    shift = (begin - midnight).total_seconds() * 1e6 + origin_us % 1_000_000
    return [
        (at - shift, _clock(origin_us + at - shift, step))
        for at in _places(low + shift, high + shift, step)
    ]


def ago_ticks(low: float, high: float, count: int) -> list[Tick]:
    """Round durations from `low` to `high` seconds, of which 0 is now: "-2 min 30 s", "-15 s", "now"."""
    step = round_seconds((high - low) / max(count, 1))
    return [(at, ago_text(-at, step)) for at in _places(low, high, step)]


def ago_text(seconds: float, step: float = 1.0) -> str:
    """A time so many seconds ago, with the digits that tell multiples of `step` seconds apart: "-2 min 30 s"."""
    if abs(seconds) < 1e-9:
        return "now"
    if seconds < 0:
        return f"+{-seconds:g} s"
    if seconds < 120 or step < 1:
        return f"-{seconds:.{_digits(step * 1e6)}f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"-{minutes} min" + (f" {rest} s" if rest else "")
    return f"-{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def _digits(step: float) -> int:
    """Digits of a second that tell multiples of `step` microseconds apart."""
    return max(0, 6 - math.floor(math.log10(step) + 1e-9)) if step < 1e6 else 0


def _clock(us: float, step: float) -> str:
    whole = round(us)
    text = datetime.fromtimestamp(whole // 1_000_000).strftime(
        "%H:%M:%S" if step < 60e6 else "%H:%M"
    )
    digits = _digits(step)
    if digits:
        return f"{text}.{whole % 1_000_000:06d}"[: len(text) + 1 + digits]
    return text


def _places(low: float, high: float, step: float) -> list[float]:
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, min(last, first + _MOST) + 1)]
