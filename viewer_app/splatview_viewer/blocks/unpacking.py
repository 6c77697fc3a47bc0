"""Reads scenes back from exact blocks and harmonics: into host memory, from any thread.

`splatview_viewer.blocks.layout` names the bits.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_viewer.blocks.layout import (
    BLOCK,
    EXACT,
    EXACT_WORDS,
    EXPONENT_BIAS,
    HEADER,
    LOG_SCALE_MIN,
    harmonics_rows,
)
from splatview_viewer.scene.scene import GaussianScene, row_shapes

if TYPE_CHECKING:
    import numpy as np
    import torch

    from splatview_viewer.blocks.layout import BlockPart

_CHUNK = 16
"""Blocks that a thread reads at a time, so that intermediate values stay in its cache.
"""
_HALF_EXPONENT = 0x7C00
"""The exponent's bits of a float16: all are 1 where it is not finite."""
_HALF_ONE = 0x3C00
"""The float16 1; the bits of those below it, from 0 on, are smaller numbers."""
_MOST_THREADS = 4
"""The viewer's torch computes in one thread; a user waits for a snapshot."""


@dataclass(frozen=True, eq=False)
class SceneBlocks:
    """A whole scene in exact blocks, in the order of the training."""

    gaussians: int
    origin: tuple[float, float, float]
    """What positions are relative to, in world units."""
    coefficients: int
    """Coefficients of spherical harmonics beyond degree 0, for each Gaussian."""
    exact: np.ndarray
    """(blocks, bytes) uint8."""
    harmonics: np.ndarray
    """(blocks, bytes) uint8; without bytes where there are no coefficients."""

    def packed(self, block_part: BlockPart, coefficients: int) -> np.ndarray | None:
        """Return a part of all blocks as it lies here; None where it has to be packed.

        That is also where a damaged file has brought what packing never writes.

        Args:
            block_part: one of the three.
            coefficients: beyond degree 0, for each Gaussian, as they are wanted.
        """
        if block_part == "exact" and self._is_sound():
            return self.exact
        if block_part == "harmonics" and coefficients == self.coefficients:
            return self.harmonics
        return None

    def _is_sound(self) -> bool:
        """Return whether the exact blocks hold only numbers that can be drawn."""
        import numpy as np

        forms = self.exact[:, 12:16].view("<f4")
        packed = self.exact[:, HEADER * 4 :].view("<u4")
        packed = packed.reshape(len(packed), BLOCK, EXACT_WORDS)
        means = packed[..., :3].view("<f4")
        halves = packed[..., 3:7].view("<u2")[..., :7]
        return bool(
            (forms == EXACT).all()
            and np.isfinite(means).all()
            and (halves & _HALF_EXPONENT != _HALF_EXPONENT).all()
            and (halves[..., 0] <= _HALF_ONE).all()
        )

    def scene(self, *, is_wide: bool = False, **options: Any) -> GaussianScene:
        """Return the scene on the CPU: scales as logarithms, opacities from 0 to 1.

        What could not be drawn gets a centre of NaN, and cannot be drawn either.

        Args:
            is_wide: with centres of float64, not float32.
            options: other fields of the scene.
        """
        import torch

        tensors: dict[str, torch.Tensor] = {}
        for name, shape in row_shapes(self.coefficients).items():
            dtype = torch.float32
            if is_wide and name == "means":
                dtype = torch.float64
            tensors[name] = torch.empty((self.gaussians, *shape), dtype=dtype)
        scene = GaussianScene(
            **tensors,
            activated=(False, True),
            sh_degree=math.isqrt(self.coefficients + 1) - 1,
            **options,
        )
        first_blocks = range(0, len(self.exact), _CHUNK)
        thread_count = max(min(len(first_blocks), _MOST_THREADS), 1)
        with ThreadPoolExecutor(thread_count, "unpack") as pool:
            # Errors are raised by the results.
            list(pool.map(partial(self._unpack, scene), first_blocks))
        return scene

    def _unpack(self, scene: GaussianScene, first: int) -> None:
        """Unpack a few blocks, from block `first` on, into their rows of a scene."""
        end = first + _CHUNK
        rows = scene[first * BLOCK : end * BLOCK]
        for name, values in self._fields(slice(first, end)).items():
            getattr(rows, name).copy_(values[: len(rows)])
        if self.coefficients:
            _unpack_harmonics(self.harmonics[first:end], rows.shN)

    def _fields(self, chunk: slice) -> dict[str, torch.Tensor]:
        """Unpack exact blocks into tensors of a scene, centres as float64."""
        import torch

        exact = torch.from_numpy(self.exact[chunk, HEADER * 4 :])
        packed = exact.view(torch.int32).reshape(-1, EXACT_WORDS)
        halves = packed.view(torch.float16).float()
        is_left_out = packed[:, 6:7] < 0
        origin = torch.tensor(self.origin, dtype=torch.float64)
        means = packed[:, :3].view(torch.float32).double() + origin
        log_scales = halves[:, 10:13]
        is_flat = log_scales <= LOG_SCALE_MIN
        return {
            "means": torch.where(is_left_out, math.nan, means),
            "quats": _quats(packed[:, 6], packed[:, 7]),
            "scales": torch.where(is_flat, -math.inf, log_scales),
            "opacities": halves[:, 6],
            "sh0": halves[:, 7:10],
        }


class UnpackedScene(NamedTuple):
    """A scene, and the blocks from which it was read."""

    scene: GaussianScene
    blocks: SceneBlocks | None
    """None: it was read from something else."""


def _quats(word_6: torch.Tensor, word_7: torch.Tensor) -> torch.Tensor:
    """Return quaternions w, x, y, z (N, 4) of length 1, of the last two words (N,)."""
    import torch

    packed_parts = [word_7, word_7 >> 15, word_6 >> 16]
    mask = (1 << 15) - 1
    first, second, third = (
        ((packed & mask).float() / mask - 0.5) * math.sqrt(2) for packed in packed_parts
    )
    squares = first * first + second * second + third * third
    largest = (1 - squares).clamp_(min=0).sqrt_()
    index = word_7 >> 30 & 3
    return torch.stack(
        [
            torch.where(index == 0, largest, first),
            torch.where(index == 0, first, torch.where(index == 1, largest, second)),
            torch.where(index == 3, third, torch.where(index == 2, largest, second)),
            torch.where(index == 3, largest, third),
        ],
        1,
    )


def _unpack_harmonics(blocks: np.ndarray, target: torch.Tensor) -> None:
    """Unpack the harmonics of some blocks.

    Args:
        blocks: (blocks, bytes) uint8.
        target: (Gaussians, coefficients, 3) float32, to be written.
    """
    import torch

    count, coefficients, _ = target.shape
    groups = harmonics_rows(coefficients)
    packed = torch.from_numpy(blocks).view(torch.int32)
    packed = packed.reshape(len(blocks), groups, BLOCK, 4).movedim(1, 2)
    packed = packed.reshape(-1, groups * 4)[:count, :coefficients].contiguous()
    # By the exponents of float32.
    units = ((packed >> 27 & 31) + (127 - EXPONENT_BIAS) << 23).view(torch.float32)
    # Two's complement of 9 bits: shifted up to bit 31, and down again with its sign.
    for color, shift in zip(target.unbind(2), (23, 14, 5), strict=True):
        torch.mul(packed << shift >> 23, units, out=color)
