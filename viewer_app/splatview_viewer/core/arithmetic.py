"""Integer arithmetic that Python has no name for."""

from __future__ import annotations


def ceil_div(dividend: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-dividend // divisor)
