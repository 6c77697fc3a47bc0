"""Words for addresses, pools and streams, and sizes as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([kmgtp]?)(i?b|bytes?)?$", re.IGNORECASE)


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
