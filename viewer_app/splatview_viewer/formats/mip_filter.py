"""mip-splatting's 3D filter in files: raw scales and opacities as they are drawn behind
it.

The filter f of a Gaussian is the smallest size that the photographs resolve. With the
scales s, those that are drawn are sqrt(s^2 + f^2), and the opacity falls by the
quotient of the volumes before and after. Files hold logarithms and logits, which stay
that: where a Gaussian is tiny or nearly opaque, nothing is lost by exp and sigmoid.
"""

from __future__ import annotations

import numpy as np

_ROWS = 1 << 16
"""Gaussians that are converted in one piece."""


def apply_filter(
    scales: np.ndarray, opacities: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return log scales (N, 2 or 3) and logit opacities (N,) behind the filter of (N,)
    sizes.

    One scale for all axes counts three times. Flat Gaussians stay flat: their two
    scales are filtered alone.
    """
    if scales.shape[1:] == (1,):
        scales = np.repeat(scales, 3, axis=1)
    new_scales = np.empty(scales.shape, np.float32)
    new_opacities = np.empty(len(scales), np.float32)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for start in range(0, len(scales), _ROWS):
            rows = slice(start, start + _ROWS)
            before = scales[rows].astype(np.float64)
            size = np.log(np.abs(sizes[rows].astype(np.float64)))[:, None]
            after = np.logaddexp(2 * before, 2 * size) / 2
            shrinking = np.where(after > -np.inf, before - after, 0.0).sum(axis=1)
            new_scales[rows] = after
            new_opacities[rows] = _scaled_logit(opacities[rows], shrinking)
    return new_scales, new_opacities


def _scaled_logit(logits: np.ndarray, log_factor: np.ndarray) -> np.ndarray:
    """Return the logits of opacities times exp(`log_factor`), which is at most 0."""
    log_opacity = -np.logaddexp(0.0, -logits.astype(np.float64)) + log_factor
    return log_opacity - np.log(-np.expm1(log_opacity))
