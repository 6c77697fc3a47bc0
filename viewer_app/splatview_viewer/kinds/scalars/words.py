"""Numbers as people read them."""

from __future__ import annotations

import math


def value_text(value: float) -> str:
    """A value in few figures."""
    if not math.isfinite(value):
        return "NaN" if value != value else "infinite" if value > 0 else "-infinite"
    if value == int(value) and 1000 <= abs(value) < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}"
