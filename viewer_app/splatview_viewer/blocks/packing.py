"""Packs scenes into blocks, where they lie: on the CPU or on a GPU.

`splatview_viewer.blocks.layout` names the bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from splatview_viewer.blocks.layout import (
    BLOCK,
    EXACT,
    EXPONENT_BIAS,
    HARMONIC_MAX,
    HEADER,
    LOG_SCALE_MIN,
    MANTISSA_MAX,
    QUICK,
    BlockPart,
    block_count,
    harmonics_rows,
)
from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.render.activation import activate
from splatview_viewer.scene.scene import FIELDS, as_floats

if TYPE_CHECKING:
    import numpy as np
    import torch

    from splatview_viewer.blocks.kernels import BlockKernels
    from splatview_viewer.scene.scene import GaussianScene

_CHUNK = 64
"""Blocks that a CPU packs at a time, so that intermediate values stay in the cache."""
_CHUNK_GPU = 4096
_ORIGIN_SAMPLE = 1000
"""Centres by which an origin is placed."""
_HALF_MAX = 65504.0
_OUTSIDE = 1e12
"""World units from the origin, along an axis, beyond which nothing is seen. One centre
that ran away would take all its bits from the others of its block, or overflow."""
_OTHER_PARTS = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
"""The three other parts of a quaternion, by the index of the largest one."""


@dataclass(frozen=True)
class BlockedScene:
    """A scene that is packed block by block."""

    scene: GaussianScene
    origin: tuple[float, float, float]
    """In the middle of the scene, in world units: positions are relative to it."""
    rows: torch.Tensor | None = None
    """The Gaussians that are packed, in their order, int32; None: all."""

    @classmethod
    def of(cls, scene: GaussianScene) -> BlockedScene:
        """Place the origin of a scene. Reads a sample of it, and waits for its GPU."""
        means, _ = scene.sample(_ORIGIN_SAMPLE)
        return cls(scene, origin_of(means.cpu().numpy()))

    @property
    def block_count(self) -> int:
        if self.rows is not None:
            return block_count(len(self.rows))
        return block_count(len(self.scene))

    @property
    def coefficients(self) -> int:
        """Coefficients of spherical harmonics beyond degree 0, for each Gaussian."""
        return self.scene.shN.shape[1]

    def blocks_at_once(self, block_part: BlockPart) -> int:
        """Return how many blocks are best packed at a time, where the scene lies."""
        if self.scene.on_gpu:
            return _CHUNK_GPU
        if block_part == "harmonics":
            # They have many numbers.
            return ceil_div(_CHUNK, 2 * harmonics_rows(self.coefficients))
        return _CHUNK

    def pack(
        self, block_part: BlockPart, first: int = 0, end: int | None = None
    ) -> torch.Tensor:
        """Pack a part of the blocks from `first` to before `end`.

        Returns:
            (blocks, bytes of the part) uint8, on the scene's device.
        """
        import torch

        if end is None:
            end = self.block_count
        kernels = kernels_for(self.scene)
        if kernels is not None and first < end:
            blocks = range(first, end)
            return kernels.pack(block_part, self.scene, self.rows, blocks, self.origin)
        step = self.blocks_at_once(block_part)
        pieces = []
        with torch.no_grad():
            for start in range(first, end, step):
                pieces.append(self._pack(block_part, start, min(start + step, end)))
            if len(pieces) == 1:
                return pieces[0]
            if pieces:
                return torch.cat(pieces)
        raise ValueError(
            f"blocks {first} to {end}; of {self.block_count}, one at least"
        )

    def _pack(self, block_part: BlockPart, first: int, end: int) -> torch.Tensor:
        """Pack a part of a few blocks."""
        import torch

        rows_slice: slice | torch.Tensor = slice(first * BLOCK, end * BLOCK)
        if self.rows is not None:
            rows_slice = self.rows[rows_slice]
        rows = self.scene[rows_slice]
        if block_part == "harmonics":
            return _as_bytes(_harmonics(_in_blocks(_coefficients(rows), end - first)))
        fields = _Fields.of(rows, self.origin, end - first)
        if block_part == "quick":
            header, packed = _quick(fields)
        else:
            header, packed = _exact(fields)
        return torch.cat([_as_bytes(header), _as_bytes(packed)], 1)


def origin_of(means: np.ndarray) -> tuple[float, float, float]:
    """Return a point amid centres (N, 3), as far as they are finite."""
    import numpy as np

    points = means[:: len(means) // _ORIGIN_SAMPLE + 1]
    points = points[np.isfinite(points).all(1)]
    if not len(points):
        return 0.0, 0.0, 0.0
    x, y, z = np.median(points, 0).tolist()
    return x, y, z


def kernels_for(scene: GaussianScene) -> BlockKernels | None:
    """Return the kernels of a scene's GPU; None on the CPU, or where there are none."""
    if scene.gpu is None:
        return None
    from splatview_viewer.blocks.kernels import block_kernels

    return block_kernels(scene.gpu.index or 0)


@dataclass(frozen=True)
class _Fields:
    """Activated Gaussians in blocks: (blocks, BLOCK, components) float32."""

    means: torch.Tensor
    quats: torch.Tensor
    log_scales: torch.Tensor
    opacities: torch.Tensor
    sh0: torch.Tensor
    is_left_out: torch.Tensor
    """Bool: True where a Gaussian cannot be drawn."""

    @classmethod
    def of(
        cls, rows: GaussianScene, origin: tuple[float, float, float], blocks: int
    ) -> _Fields:
        """Activate Gaussians. Those that cannot be drawn get opacity 0."""
        import torch

        # Those of a half-precision scene are computed in float32 as well.
        floats = {name: as_floats(getattr(rows, name)) for name in FIELDS}
        active, _ = activate(replace(rows, **floats))
        means = active.means
        middle = torch.tensor(origin, dtype=means.dtype, device=means.device)
        means = (means - middle).float()
        is_near = means.abs().amax(1) <= _OUTSIDE
        opacities = torch.where(is_near, active.opacities.float(), 0.0)
        return cls(
            _in_blocks(torch.where(is_near[:, None], means, 0.0), blocks),
            _in_blocks(active.quats.nan_to_num(0, 0, 0), blocks),
            _in_blocks(_log_scales(active.scales.float()), blocks),
            _in_blocks(opacities.reshape(-1, 1), blocks),
            _in_blocks(active.sh0.float().nan_to_num(0, 0, 0), blocks),
            _in_blocks(~is_near[:, None], blocks),
        )


def _log_scales(scales: torch.Tensor) -> torch.Tensor:
    """Return the logarithms of standard deviations, which are bounded from below."""
    return scales.abs().log().nan_to_num(0.0).clamp(LOG_SCALE_MIN, None)


def _in_blocks(rows: torch.Tensor, blocks: int) -> torch.Tensor:
    """Return rows (N, ...) as (blocks, BLOCK, ...), filled up with 0."""
    missing = blocks * BLOCK - len(rows)
    if missing:
        import torch

        rows = torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])
    return rows.reshape(blocks, BLOCK, *rows.shape[1:])


def _as_bytes(values: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each block: (blocks, bytes) uint8."""
    import torch

    return values.contiguous().flatten(1).view(torch.uint8)


# ---- quick


def _quick(fields: _Fields) -> tuple[torch.Tensor, torch.Tensor]:
    """Return headers (blocks, HEADER) float32 and words (blocks, BLOCK, 4) int32."""
    import torch

    is_drawn = fields.opacities > 0
    header = fields.means.new_zeros(len(fields.means), HEADER)
    header[:, 3] = QUICK
    x, y, z = _quantised(fields.means, is_drawn, 15, header[:, 0:8])
    scale_x, scale_y, scale_z = _quantised(
        fields.log_scales, is_drawn, 8, header[:, 8:16]
    )
    red, green, blue = _quantised(fields.sh0, is_drawn, 8, header[:, 16:24])
    first, second, third, index = _smallest_three(fields.quats, 8)
    opacity = _bits(fields.opacities[..., 0], 8)
    packed = [
        x | y << 15 | index << 30,
        z | scale_x << 16 | scale_y << 24,
        scale_z | red << 8 | green << 16 | blue << 24,
        first | second << 8 | third << 16 | opacity << 24,
    ]
    return header, torch.stack(packed, 2)


def _quantised(
    values: torch.Tensor, is_drawn: torch.Tensor, bits: int, ranges: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Return the bits of three components, each (blocks, BLOCK) int32.

    Args:
        values: (blocks, BLOCK, 3).
        is_drawn: (blocks, BLOCK, 1); the others do not count in the ranges.
        bits: of each number.
        ranges: (blocks, 8), two texels of the headers, into which lows and spans are
            written.
    """
    import torch

    low = torch.where(is_drawn, values, math.inf).amin(1)
    high = torch.where(is_drawn, values, -math.inf).amax(1)
    # A block of which nothing is drawn.
    low = torch.where(low.isfinite(), low, 0.0)
    span = torch.where(high.isfinite(), high, 0.0) - low
    ranges[:, 0:3] = low
    ranges[:, 4:7] = span
    divisor = torch.where(span > 0, span, 1.0)
    shares = (values - low[:, None]) / divisor[:, None]
    return _bits(shares, bits).unbind(2)


def _bits(shares: torch.Tensor, bits: int) -> torch.Tensor:
    """Return numbers from 0 to 1 as int32 of so many bits."""
    import torch

    highest = (1 << bits) - 1
    return (shares.clamp(0, 1) * highest).round().to(torch.int32)


# ---- exact


def _exact(fields: _Fields) -> tuple[torch.Tensor, torch.Tensor]:
    """Return headers (blocks, HEADER) float32 and words (blocks, BLOCK, 8) int32."""
    import torch

    header = fields.means.new_zeros(len(fields.means), HEADER)
    header[:, 3] = EXACT
    x, y, z = fields.means.contiguous().view(torch.int32).unbind(2)
    red, green, blue = _half_bits(fields.sh0).unbind(2)
    scale_x, scale_y, scale_z = _half_bits(fields.log_scales).unbind(2)
    opacity = _half_bits(fields.opacities)[..., 0]
    first, second, third, index = _smallest_three(fields.quats, 15)
    mark = fields.is_left_out[..., 0].to(torch.int32)
    packed = [
        x,
        y,
        z,
        opacity | red << 16,
        green | blue << 16,
        scale_x | scale_y << 16,
        scale_z | third << 16 | mark << 31,
        first | second << 15 | index << 30,
    ]
    return header, torch.stack(packed, 2)


def _half_bits(values: torch.Tensor) -> torch.Tensor:
    """Return the bits of values as float16, in the lower half of int32."""
    import torch

    halves = values.clamp(-_HALF_MAX, _HALF_MAX).half()
    return halves.contiguous().view(torch.int16).to(torch.int32) & 0xFFFF


def _smallest_three(quats: torch.Tensor, bits: int) -> tuple[torch.Tensor, ...]:
    """Return the bits of the three smallest parts, and the index of the largest one.

    Args:
        quats: (blocks, BLOCK, 4), w, x, y, z of length 1.
        bits: of each part.
    """
    import torch

    w, x, y, z = quats.abs().unbind(2)
    is_later_pair = torch.maximum(y, z) > torch.maximum(w, x)
    largest = torch.where(is_later_pair, 2 + (z > y).long(), (x > w).long())
    others = torch.tensor(_OTHER_PARTS, device=quats.device)[largest]
    signs = quats.gather(2, largest[..., None]).sign()
    shares = quats.gather(2, others) * signs * math.sqrt(0.5) + 0.5
    return (*_bits(shares, bits).unbind(2), largest.to(torch.int32))


# ---- harmonics


def _coefficients(rows: GaussianScene) -> torch.Tensor:
    """Return the coefficients (N, 4 groups, 3) float32, filled up with 0."""
    import torch

    values = rows.shN.float().nan_to_num(0).clamp_(-HARMONIC_MAX, HARMONIC_MAX)
    missing = harmonics_rows(values.shape[1]) * 4 - values.shape[1]
    if missing:
        padding = values.new_zeros(len(values), missing, 3)
        values = torch.cat([values, padding], 1)
    return values


def _harmonics(values: torch.Tensor) -> torch.Tensor:
    """Return words of coefficients, (blocks, groups, BLOCK, 4) int32.

    Args:
        values: (blocks, BLOCK, 4 groups, 3) float32, at most `HARMONIC_MAX`.
    """
    import torch

    blocks, block, coefficients, _ = values.shape
    groups = values.reshape(blocks, block, coefficients // 4, 4, 3)
    colors = groups.permute(4, 0, 2, 1, 3).contiguous()
    red, green, blue = colors
    largest = torch.maximum(torch.maximum(red.abs(), green.abs()), blue.abs())
    # 2**exponent is over the largest of the three, which so takes 9 bits, also where it
    # is rounded up.
    largest *= 256 / (MANTISSA_MAX + 0.5)
    exponents = (largest.view(torch.int32) >> 23) - 126
    exponents = (exponents - 8 + EXPONENT_BIAS).clamp_(0, 31)
    # A float32 from 2**23 to 2**24 units ends with a whole number of them. Added to half
    # that range, a number rounds to it, and the last bits are its two's complement.
    middles = (exponents - EXPONENT_BIAS + 23 + 127 << 23 | 1 << 22).view(torch.float32)
    packed = exponents << 27
    for index, color in enumerate(colors):
        bits = color.add_(middles).view(torch.int32)
        packed |= bits.bitwise_and_(0x1FF).bitwise_left_shift_(9 * index)
    return packed
