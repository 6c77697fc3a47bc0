"""Where the lines of an axis lie, and what is written at them."""

from __future__ import annotations

import math
from datetime import datetime

from splatview_viewer.kinds.snapshot.labels import UNITS

_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_MOST = 200

Tick = tuple[float, str]


def byte_ticks(low: float, high: float, count: int) -> list[Tick]:
    """At most about `count` round places from `low` to `high` bytes, in one unit: "12 GiB", "12,300 MiB"."""
    step = _power_of_two((high - low) / max(count, 1))
    unit = min(max(int(math.log2(step) // 10), 0), len(UNITS) - 1)
    if unit + 1 < len(UNITS) and step >= 1024 ** (unit + 1) / 8 and high >= 2 * 1024 ** (unit + 1):
        unit += 1  # 6.5 GiB rather than 6,656 MiB
    if unit == 0 and low >= 1 << 20:  # bytes of something large: nobody reads these digits
        unit = 1
    size = 1024 ** unit
    digits = min(max(-round(math.log2(step / size)), 0), 3)  # halves, quarters, eighths
    return [(at, f"{at / size:,.{digits}f} {UNITS[unit]}" if at else "0") for at in _places(low, high, step)]


def _power_of_two(least: float) -> float:
    return float(2 ** max(math.ceil(math.log2(max(least, 1.0))), 0))


def event_ticks(low: float, high: float, count: int) -> list[Tick]:
    """Round numbers of moments: "12,500"."""
    step = max(_decimal((high - low) / max(count, 1)), 1.0)
    return [(at, f"{at:,.0f}") for at in _places(low, high, step)]


def _decimal(least: float) -> float:
    """The least of 1, 2, 5, 10, ... that is not less."""
    power = 10.0 ** math.floor(math.log10(max(least, 1e-12)))
    return next(m * power for m in (1, 2, 5, 10, 20) if m * power >= least * (1 - 1e-9))


def time_ticks(low: float, high: float, origin_us: int, count: int) -> list[Tick]:
    """Round times of the clock on the wall from `low` to `high` microseconds after `origin_us` (since the epoch), with
    as many digits as tell them apart: "14:03:05", ".250" after a full second's; without an origin, since the begin."""
    least = (high - low) / max(count, 1)
    if least >= 1e6:
        step = next((s * 1e6 for s in _SECONDS if s * 1e6 >= least), _decimal(least / 86400e6) * 86400e6)
    else:
        step = max(_decimal(least), 1.0)
    if origin_us <= 0:
        return [(at, _seconds(at, step)) for at in _places(low, high, step)]
    # Round on the clock: from the midnight before.
    begin = datetime.fromtimestamp(origin_us // 1_000_000)
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    shift = (begin - midnight).total_seconds() * 1e6 + origin_us % 1_000_000
    return [(at - shift, _clock(origin_us + at - shift, step)) for at in _places(low + shift, high + shift, step)]


def _digits(step: float) -> int:
    """Digits of a second that tell multiples of `step` microseconds apart."""
    return max(0, 6 - math.floor(math.log10(step) + 1e-9)) if step < 1e6 else 0


def _seconds(us: float, step: float) -> str:
    return f"{us / 1e6:,.{_digits(step)}f} s"


def _clock(us: float, step: float) -> str:
    whole = round(us)
    text = datetime.fromtimestamp(whole // 1_000_000).strftime("%H:%M:%S" if step < 60e6 else "%H:%M")
    digits = _digits(step)
    return f"{text}.{whole % 1_000_000:06d}"[: len(text) + 1 + digits] if digits else text


def clock_text(time_us: int) -> str:
    """"14:03:05.123456" for microseconds since the epoch; "" for 0: not known."""
    return _clock(time_us, 1.0) if time_us > 0 else ""


def date_text(time_us: int) -> str:
    """"2026-11-21"; "" for 0."""
    return datetime.fromtimestamp(time_us // 1_000_000).strftime("%Y-%m-%d") if time_us > 0 else ""


def _places(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, min(last, first + _MOST) + 1)]
