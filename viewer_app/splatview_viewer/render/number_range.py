"""The range of the numbers that a picture shows by colours, as it is measured in it.

The viewer measures it in the pictures that it draws, a page in those that it draws by
itself: both look at the same pixels in the same way.
"""

from __future__ import annotations

import math

SHARES = (0.01, 0.99)
"""The percentiles at both ends of the colour map; of counts, the first is 0."""
SEEN_ALPHA = 0.3
"""Alpha from which on a pixel counts for the range."""
PERIOD_S = 0.25
"""Seconds between looks at the range of a picture on a GPU, which wait for it."""
SAMPLE = 1 << 17
"""Pixels that are looked at for that, about."""


def sample_step(pixels: int) -> int:
    """Return that every how manieth pixel is looked at, row by row."""
    # An odd step does not keep to some columns.
    return max(pixels // SAMPLE, 1) | 1


def range_of_counts(high: float) -> tuple[float, float]:
    """Return the range of counts, of which `high` is the upper percentile."""
    return (0.0, max(math.ceil(high), 1.0))
