"""mip-splatting's 3D filter in files, applied to raw scales and opacities.

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
    """Return log scales (N, 2 or 3) and logit opacities (N,) as the filter leaves them.

    Args:
        scales: (N, 1, 2 or 3), logarithms. One scale for all axes counts three times;
            flat Gaussians stay flat, their two scales are filtered alone.
        opacities: (N,), logits.
        sizes: (N,), the filter of each Gaussian, in world units.
    """
    if scales.shape[1:] == (1,):
        scales = np.repeat(scales, 3, axis=1)
    new_scales = np.empty(scales.shape, np.float32)
    new_opacities = np.empty(len(scales), np.float32)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for start in range(0, len(scales), _ROWS):
            rows = slice(start, start + _ROWS)
            raw = scales[rows].astype(np.float64)
            log_sizes = np.log(np.abs(sizes[rows].astype(np.float64)))[:, None]
            filtered = np.logaddexp(2 * raw, 2 * log_sizes) / 2
            is_visible = filtered > -np.inf
            log_quotient = np.where(is_visible, raw - filtered, 0.0).sum(axis=1)
            new_scales[rows] = filtered
            new_opacities[rows] = _scaled_logit(opacities[rows], log_quotient)
    return new_scales, new_opacities


def _scaled_logit(logits: np.ndarray, log_factor: np.ndarray) -> np.ndarray:
    """Return the logits of opacities times exp(`log_factor`), which is at most 0."""
    log_opacity = -np.logaddexp(0.0, -logits.astype(np.float64)) + log_factor
    return log_opacity - np.log(-np.expm1(log_opacity))
