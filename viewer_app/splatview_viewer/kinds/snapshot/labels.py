"""One place for words about bytes, durations and counts, and for reading sizes that people write."""

from __future__ import annotations

import re

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
"""Of bytes, each 1024 times the one before."""
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)(i?b|bytes?)?$", re.IGNORECASE)


def size_text(size: int) -> str:
    """Bytes as people say them: "512 B", "1.50 GiB", "-2.00 MiB". Three digits, units of 1024."""
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
    """The same, and the exact number: "1.50 GiB (1,610,612,736 bytes)"."""
    return f"{size:,} bytes" if abs(size) < 1000 else f"{size_text(size)} ({size:,} bytes)"


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


def count_text(count: int, one: str, many: str = "") -> str:
    """"1 block", "1,234 blocks"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def parse_size(text: str) -> tuple[float, float] | None:
    """What somebody wrote as a size: (bytes, half of its last digit in bytes), or None when it is not one.

    "4096" is (4096, 0); "512MB" is 512 MiB give or take half a MiB; "1.5 GiB" give or take 0.05 GiB. KB, KiB and K all
    mean 1024 bytes, as PyTorch's messages do.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    digits, prefix, _ = found.groups()
    unit = 1024.0 ** " kmgtp".index(prefix.lower() or " ")
    places = len(digits.partition(".")[2])
    return float(digits) * unit, (0.5 * 10.0 ** -places * unit if prefix else 0.0)


def address_text(address: int) -> str:
    """"0x7f2c40000000"."""
    return f"{address:#x}"


def pool_text(pool: tuple[int, int] | None) -> str:
    """"default pool", "private pool (0, 3)", "pool not known"."""
    if pool is None:
        return "pool not known"
    return "default pool" if tuple(pool) == (0, 0) else f"private pool ({pool[0]}, {pool[1]})"


def stream_text(stream: int) -> str:
    """"default stream" for 0, "stream 7", "stream 0x55d0c1a2f0" for what is a pointer."""
    if stream == 0:
        return "default stream"
    return f"stream {stream}" if 0 < stream < 65536 else f"stream {stream:#x}"
