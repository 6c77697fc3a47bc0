"""Smoothing: an exponential moving average that does not begin at zero."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from splatview_viewer.kinds.scalars.curves import Curve


@lru_cache(80)  # a stream has at most 64 curves
def smoothed(curve: Curve, weight: float) -> np.ndarray:
    """Return (N,) float64, not to be written: each row's average with all before it.

    A sample weighs `weight` times as much as the next, 0 (no smoothing) up to less than 1; divided by the sum of the
    weights (debiased), it begins at the first value. Rows of several samples count as that many. What is not finite is
    left out: NaN before the first that is.
    """
    values = curve["value"]
    if weight <= 0:
        return values
    good = curve.finite
    decay = np.where(good, np.power(weight, curve["count"]), 1.0)
    fresh = 1.0 - decay
    sums = scan(decay, np.where(good, values, 0.0) * fresh)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(good.cumsum() > 0, sums / scan(decay, fresh), np.nan)


def scan(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """y[i] = a[i] * y[i - 1] + b[i] with y[-1] = 0, for (N,) float64: blocks side by side, then what each hands on."""
    n = len(a)
    side = max(int(np.sqrt(n)), 1)
    blocks = -(-n // side)
    padded_a, padded_b = np.ones(blocks * side), np.zeros(blocks * side)
    padded_a[:n], padded_b[:n] = a, b
    y, product = padded_b.reshape(blocks, side).T.copy(), padded_a.reshape(blocks, side).T.copy()
    for i in range(1, side):  # within all blocks at once
        y[i] += product[i] * y[i - 1]
        product[i] *= product[i - 1]
    carried = 0.0
    carry = np.empty(blocks)
    last_y, last_product = y[-1].tolist(), product[-1].tolist()
    for j in range(blocks):
        carry[j] = carried
        carried = last_y[j] + last_product[j] * carried
    return (y + product * carry).T.ravel()[:n]
