"""Texts for sizes, durations and values, and round ticks of an axis. Without imgui."""

from __future__ import annotations

import math
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class ByteUnits(NamedTuple):
    """Units of bytes, each so many times the one before."""

    factor: int
    names: tuple[str, ...]


BINARY = ByteUnits(1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
DECIMAL = ByteUnits(1000, ("B", "kB", "MB", "GB", "TB", "PB"))
_byte_units = ContextVar("byte units", default=BINARY)
"""The units of the user for whom something is done; jobs have those of who began them.
"""


def use_byte_units(units: ByteUnits) -> None:
    """Tell sizes in these units from now on."""
    _byte_units.set(units)


_DAY_S = 86400
# fmt: off
_ROUND_SECONDS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
    _DAY_S,
)
# fmt: on
_LEAST_HZ = 0.05
"""Publishes a second below which a rate is not told."""
_MAX_TICKS = 200
"""Ticks of an axis."""

Tick = tuple[float, str]
"""A value on an axis, and its label."""


def size_text(size: float) -> str:
    """Return bytes in three digits: "512 B", "1.50 GiB", "-2.00 MiB"."""
    units = _byte_units.get()
    amount = float(abs(size))
    unit = 0
    while amount >= 999.5 and unit < len(units.names) - 1:
        amount /= units.factor
        unit += 1
    if unit == 0 or amount >= 99.95:
        digits = 0
    elif amount >= 9.995:
        digits = 1
    else:
        digits = 2
    sign = "-" if size < 0 else ""
    return f"{sign}{amount:.{digits}f} {units.names[unit]}"


def rate_text(value: float) -> str:
    """Return a frequency in three digits, without an exponent."""
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2g}"


def publishing_text(hz: float) -> str:
    """Return how often something is published: "3.6 /s"; "" for hardly ever."""
    if hz < _LEAST_HZ:
        return ""
    return f"{rate_text(hz)} /s"


def exact_size_text(size: int) -> str:
    """Return bytes in short and exactly: "1.50 GiB (1,610,612,736 bytes)"."""
    if abs(size) < 1000:
        return f"{size:,} bytes"
    return f"{size_text(size)} ({size:,} bytes)"


def change_text(change: int) -> str:
    """Return a difference of bytes, with its sign: "+1.50 GiB"."""
    sign = "+" if change > 0 else ""
    return sign + size_text(change)


def age_text(microseconds: float) -> str:
    """Return a duration: "0.5 us", "12 ms", "3.2 s", "4 min 05 s", "2 h 03 min"."""
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


def count_text(count: int, unit: str) -> str:
    """Return a count with its unit: "1 block", "1,234 blocks"."""
    plural = "" if count == 1 else "s"
    return f"{count:,} {unit}{plural}"


def value_text(value: float) -> str:
    """Return a number in four digits; large whole numbers exactly."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        if value < 0:
            return "-infinite"
        return "infinite"
    if value == int(value) and 1000 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def clock_text(time_us: int) -> str:
    """Return a time in microseconds since the epoch: "14:03:05.123456"; "" for 0."""
    if time_us <= 0:
        return ""
    return _clock(time_us, 1.0)


# -- axes ------------------------------------------------------------------------------


def round_up(value: float) -> float:
    """Return the smallest of 1, 2, 5, 10, 20, ...

    (and 0.1, 0.2, 0.5 ...) from `value` on.
    """
    power = 10.0 ** math.floor(math.log10(max(value, 1e-12)))
    tolerated = value * (1 - 1e-9)
    return next(m * power for m in (1, 2, 5, 10, 20) if m * power >= tolerated)


def round_seconds(seconds: float) -> float:
    """Return the shortest round duration from `seconds` on.

    One of 0.1, 0.2, 0.5, 1, ... 30, 60, 120, ... seconds, or whole days.
    """
    if seconds < 1:
        return round_up(seconds)
    for round_value in _ROUND_SECONDS:
        if round_value >= seconds:
            return float(round_value)
    return round_up(seconds / _DAY_S) * _DAY_S


def byte_ticks(low: float, high: float, count: int) -> list[Tick]:
    """Return at most about `count` round sizes in one unit: "12 GiB", "12,300 MiB".

    low, high: bytes at both ends of the axis.
    """
    units = _byte_units.get()
    spacing = max((high - low) / max(count, 1), 1.0)
    if units is BINARY:
        step = float(2 ** max(math.ceil(math.log2(spacing)), 0))
    else:
        step = round_up(spacing)
    unit = _tick_unit(low, high, step)
    size = units.factor**unit
    if units is BINARY:
        # Halves, quarters and eighths of a unit.
        digits = min(max(-round(math.log2(step / size)), 0), 3)
    else:
        digits = min(_decimals(step / size), 3)
    ticks = []
    for value in _multiples(low, high, step):
        label = "0"
        if value:
            label = f"{value / size:,.{digits}f} {units.names[unit]}"
        ticks.append((value, label))
    return ticks


def _tick_unit(low: float, high: float, step: float) -> int:
    """Return the index of the unit of ticks at multiples of `step` bytes."""
    units = _byte_units.get()
    last = len(units.names) - 1
    unit = min(max(int(math.log(step, units.factor) + 1e-9), 0), last)
    if unit < last:
        # 6.5 GiB rather than 6,656 MiB.
        larger = units.factor ** (unit + 1)
        if step >= larger / 8 and high >= 2 * larger:
            unit += 1
    if unit == 0 and low >= 1 << 20:
        # The last digits of a large number are of no use.
        unit = 1
    return unit


def count_ticks(low: float, high: float, count: int) -> list[Tick]:
    """Return at most about `count` round whole numbers: "12,500"."""
    step = max(round_up((high - low) / max(count, 1)), 1.0)
    return [(value, f"{value:,.0f}") for value in _multiples(low, high, step)]


def log_ticks(low: float, high: float, max_ticks: int = 6) -> list[Tick]:
    """Return round numbers for a logarithmic axis of less than two powers of ten.

    None for an axis of more, which has its own.
    """
    if not 0 < low < high or high / low > 100:
        return []
    values = []
    for exponent in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        values += [m * 10.0**exponent for m in (1, 2, 5)]
    values = [value for value in values if low <= value <= high]
    if len(values) < 3:
        values = _multiples(low, high, round_up((high - low) / max_ticks))
    return [(value, f"{value:g}") for value in values]


def time_ticks(low: float, high: float, origin_us: int, count: int) -> list[Tick]:
    """Return at most about `count` round times of the clock on the wall.

    Their labels have as many digits as tell them apart: "14:03:05", ".250" after a full
    second's.

    Args:
        low: microseconds after `origin_us` at the left end of the axis.
        high: the same at the right end.
        origin_us: since the epoch; 0: the times are labelled by seconds after it.
        count: of ticks, about.
    """
    spacing = (high - low) / max(count, 1)
    if spacing >= 1e6:
        step = round_seconds(spacing / 1e6) * 1e6
    else:
        step = max(round_up(spacing), 1.0)
    if origin_us <= 0:
        digits = _second_digits(step)
        values = _multiples(low, high, step)
        return [(value, f"{value / 1e6:,.{digits}f} s") for value in values]
    # Times are round on the clock: from the midnight before.
    origin = datetime.fromtimestamp(origin_us // 1_000_000)
    midnight = origin.replace(hour=0, minute=0, second=0, microsecond=0)
    shift = (origin - midnight).total_seconds() * 1e6 + origin_us % 1_000_000
    ticks = []
    for since_midnight in _multiples(low + shift, high + shift, step):
        label = _clock(origin_us + since_midnight - shift, step)
        ticks.append((since_midnight - shift, label))
    return ticks


def duration_ticks(low: float, high: float, zero: float, count: int) -> list[Tick]:
    """Return at most about `count` round durations: "-20 ms", "0 ms", "1,500 ms".

    Args:
        low: microseconds at the left end of the axis.
        high: the same at the right end.
        zero: the same at 0.
        count: of ticks, about.
    """
    step = max(round_up((high - low) / max(count, 1)), 1.0)
    unit, size = _duration_unit(step)
    digits = _decimals(step / size)
    return [
        (zero + value, f"{value / size:,.{digits}f} {unit}")
        for value in _multiples(low - zero, high - zero, step)
    ]


def duration_text(microseconds: float) -> str:
    """Return a duration with three digits after the point: "128.100 ms"."""
    unit, size = _duration_unit(max(abs(microseconds), 1.0))
    return f"{microseconds / size:,.3f} {unit}"


def _duration_unit(microseconds: float) -> tuple[str, float]:
    """Return the unit that durations of this order are told in, and its microseconds."""
    if microseconds >= 1e6:
        return "s", 1e6
    if microseconds >= 1e3:
        return "ms", 1e3
    return "\u00b5s", 1.0


def ago_ticks(low: float, high: float, count: int) -> list[Tick]:
    """Return round durations before now: "-2 min 30 s", "-15 s", "now".

    low, high: seconds at both ends of the axis, of which 0 is now.
    """
    step = round_seconds((high - low) / max(count, 1))
    return [(value, ago_text(-value, step)) for value in _multiples(low, high, step)]


def ago_text(seconds: float, step: float = 1.0) -> str:
    """Return a time this many seconds ago: "-2 min 30 s".

    Its digits tell multiples of `step` seconds apart.
    """
    if abs(seconds) < 1e-9:
        return "now"
    if seconds < 0:
        return f"+{-seconds:g} s"
    if seconds < 120 or step < 1:
        return f"-{seconds:.{_second_digits(step * 1e6)}f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    if minutes < 120:
        return _two_units(minutes, "min", seconds_left, "s")
    hours, minutes_left = divmod(minutes, 60)
    return _two_units(hours, "h", minutes_left, "min")


def _two_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    """Return a time ago in two units, the smaller one only if it is not 0."""
    if not small:
        return f"-{large} {large_unit}"
    return f"-{large} {large_unit} {small} {small_unit}"


def _second_digits(step: float) -> int:
    """Return the digits of a second that tell multiples of `step` microseconds apart."""
    return _decimals(step / 1e6)


def _decimals(step: float) -> int:
    """Return the digits after the point that tell multiples of a round step apart."""
    return max(-math.floor(math.log10(step) + 1e-9), 0)


def _clock(time_us: float, step: float) -> str:
    """Return a time of day whose digits tell multiples of `step` microseconds apart.

    Args:
        time_us: since the epoch.
    """
    seconds, fraction_us = divmod(round(time_us), 1_000_000)
    pattern = "%H:%M:%S" if step < 60e6 else "%H:%M"
    text = datetime.fromtimestamp(seconds).strftime(pattern)
    digits = _second_digits(step)
    if not digits:
        return text
    fraction = f"{fraction_us:06d}"[:digits]
    return f"{text}.{fraction}"


def _multiples(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of a step on an axis, at most about _MAX_TICKS."""
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, min(last, first + _MAX_TICKS) + 1)]


def number_labels(values: Sequence[float]) -> list[str]:
    """Return numbers as texts, with just enough decimals to tell them apart."""
    span = max(values) - min(values)
    largest = max(abs(value) for value in values)
    if span <= 0 or largest >= 1e6 or span < 1e-4:
        return [f"{value:.3g}" for value in values]
    decimals = min(max(2 - math.floor(math.log10(span)), 0), 6)
    labels = [f"{value:,.{decimals}f}" for value in values]
    while decimals and all(label.endswith("0") for label in labels):
        decimals -= 1
        labels = [label[:-1] for label in labels]
    return [label.rstrip(".") for label in labels]


def count_labels(values: Sequence[float]) -> list[str]:
    """Return counts as texts, whole where they span ten or more."""
    if max(values) - min(values) >= 10:
        return [f"{round(value):,}" for value in values]
    return [f"{value:g}" for value in values]


def psnr_text(psnr: float) -> str:
    """Return a peak signal-to-noise ratio: "24.0 dB PSNR", "no difference"."""
    if math.isinf(psnr):
        return "no difference"
    return f"{psnr:.1f} dB PSNR"
