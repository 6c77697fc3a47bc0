"""Reads packed blocks back, one Gaussian like the other: what shaders do, in NumPy.

`splatview_viewer.blocks.layout` names the bits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.blocks.layout import (
    BLOCK,
    EXPONENT_BIAS,
    HEADER,
    QUICK,
    harmonics_rows,
)
from splatview_viewer.formats.common import quats_from_smallest_three
from splatview_viewer.scene.scene import GaussianScene

if TYPE_CHECKING:
    from collections.abc import Sequence


def unpacked(
    blocks: np.ndarray,
    harmonics: np.ndarray | None,
    count: int,
    origin: Sequence[float],
    coefficients: int = 0,
) -> GaussianScene:
    """Return the scene of packed blocks, activated, on the CPU.

    Args:
        blocks: (blocks, bytes) uint8: the parts quick or exact of all of its blocks.
        harmonics: (blocks, bytes) uint8; None for none.
        count: Gaussians.
        origin: of the scene.
        coefficients: beyond degree 0, for each Gaussian.
    """
    header = blocks[:, : HEADER * 4].copy().view("<f4")
    packed_words = blocks[:, HEADER * 4 :].copy().view("<u4")
    packed_words = packed_words.reshape(len(blocks), BLOCK, -1)
    if len(blocks) and header[0, 3] == QUICK:
        fields = _quick_fields(header, packed_words)
    else:
        fields = _exact_fields(packed_words)
    means, quats, log_scales, opacities, sh0 = (
        field.reshape(len(blocks) * BLOCK, -1)[:count] for field in fields
    )
    sh_n = np.zeros((count, 0, 3), np.float32)
    if harmonics is not None and coefficients:
        sh_n = _harmonics_of(harmonics, coefficients)[:count]
    return GaussianScene.of_arrays(
        means=means.astype(np.float64) + np.asarray(origin),
        quats=quats.astype(np.float32),
        scales=np.exp(log_scales).astype(np.float32),
        opacities=opacities[:, 0].astype(np.float32),
        sh0=sh0.astype(np.float32),
        shN=sh_n,
        activated=True,
        sh_degree=math.isqrt(coefficients + 1) - 1,
    )


def _quick_fields(header: np.ndarray, packed_words: np.ndarray) -> list[np.ndarray]:
    """Return means, quaternions, logs of scales, opacities and sh0 of quick blocks."""
    texels = header.reshape(-1, 6, 1, 4)[..., :3].astype(np.float64)

    def in_range(texel: int, bits: list[np.ndarray], highest: int) -> np.ndarray:
        shares = np.stack(bits, 2) / highest
        return texels[:, texel] + texels[:, texel + 1] * shares

    w0, w1, w2, w3 = np.moveaxis(packed_words, 2, 0)
    means = in_range(0, [w0 & 0x7FFF, w0 >> 15 & 0x7FFF, w1 & 0x7FFF], 0x7FFF)
    log_scales = in_range(2, [w1 >> 16 & 0xFF, w1 >> 24, w2 & 0xFF], 0xFF)
    sh0 = in_range(4, [w2 >> 8 & 0xFF, w2 >> 16 & 0xFF, w2 >> 24], 0xFF)
    parts = np.stack([w3 & 0xFF, w3 >> 8 & 0xFF, w3 >> 16 & 0xFF], 2) / 0xFF
    quats = _from_smallest_three(parts, w0[..., None] >> 30)
    return [means, quats, log_scales, (w3 >> 24)[..., None] / 255, sh0]


def _exact_fields(packed_words: np.ndarray) -> list[np.ndarray]:
    """Return means, quaternions, logs of scales, opacities and sh0 of exact blocks."""
    means = np.ascontiguousarray(packed_words[..., :3]).view("<f4")
    halves = np.ascontiguousarray(packed_words[..., 3:7]).view("<f2").astype(np.float64)
    opacities = halves[..., :1]
    sh0 = halves[..., 1:4]
    log_scales = halves[..., 4:7]
    w6, w7 = np.moveaxis(packed_words[..., 6:], 2, 0)
    parts = np.stack([w7 & 0x7FFF, w7 >> 15 & 0x7FFF, w6 >> 16 & 0x7FFF], 2)
    quats = _from_smallest_three(parts / 0x7FFF, w7[..., None] >> 30)
    is_left_out = w6[..., None] >> 31 == 1
    means = np.where(is_left_out, np.float32(np.nan), means)
    return [means, quats, log_scales, opacities, sh0]


def _from_smallest_three(shares: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Return quaternions (blocks * BLOCK, 4).

    Args:
        shares: (blocks, BLOCK, 3), from 0 to 1, of the range of the smallest parts.
        largest: (blocks, BLOCK, 1), index of the largest part.
    """
    components = (shares.reshape(-1, 3) - 0.5) * math.sqrt(2)
    return quats_from_smallest_three(largest.reshape(-1), components)


def _harmonics_of(harmonics: np.ndarray, coefficients: int) -> np.ndarray:
    """Return coefficients (blocks * BLOCK, coefficients, 3) float32."""
    groups = harmonics_rows(coefficients)
    packed_words = np.ascontiguousarray(harmonics).view("<u4")
    packed_words = packed_words.reshape(len(harmonics), groups, BLOCK, 4)
    packed_words = np.moveaxis(packed_words, 2, 1).reshape(-1, groups * 4)[
        :, :coefficients
    ]
    # Two's complement of 9 bits: shifted up to bit 31, and down again with its sign.
    colors = (
        np.stack(
            [packed_words << 23, packed_words << 14, packed_words << 5], axis=2
        ).view(np.int32)
        >> 23
    )
    exponents = (packed_words >> 27).astype(np.int32) - EXPONENT_BIAS
    return np.ldexp(colors.astype(np.float32), exponents[..., None]).astype(np.float32)
