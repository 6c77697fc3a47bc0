"""Activation of Gaussians that lie on a GPU by one kernel (activate.cu); `render/activation.py` is its reference."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from splatview_viewer.render.base import LeftOut
from splatview_viewer.render.kernels.frame import blocks

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.render.kernels.frame import Launcher

THREADS = 128
BLOCKS = 8192
"""At most: some ten times what a large GPU runs at once. Each takes what is next until nothing is left."""
SAMPLE = 1024
"""Gaussians whose centres are told."""
TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
"""Arguments of the kernel."""


@dataclass(frozen=True)
class Raw:
    """N Gaussians as a trainer has them: of any floating dtypes and strides, on one device."""

    means: torch.Tensor
    """(N, 3)"""
    quats: torch.Tensor
    """(N, 4) w, x, y, z"""
    scales: torch.Tensor
    """(N, 3) natural logarithms, or world units if `activated`"""
    opacities: torch.Tensor
    """(N,) logits, or values in [0, 1] if `activated`"""
    sh0: torch.Tensor
    """(N, 3)"""
    shN: torch.Tensor  # noqa: N815
    """(N, K-1 or more, 3)"""
    activated: bool


@dataclass(frozen=True)
class Active:
    """N Gaussians to draw from: contiguous, float32, on one device. May be the very memory of a `Raw`."""

    means: torch.Tensor
    """(N, 3) relative to an origin"""
    quats: torch.Tensor
    """(N, 4); the largest component is 1 or -1"""
    scales: torch.Tensor
    """(N, 3) in world units"""
    opacities: torch.Tensor
    """(N,) in [0, 1]; 0 for a Gaussian that cannot be drawn: one that is not finite (`LeftOut`), a scale
    over `SCALE_MAX` or a quaternion of length zero. gsplat looks at nothing else of it"""
    colors: torch.Tensor
    """(N, K, 3); K is 1, 4, 9, 16 or 25"""


class Told:
    """Report of a load to the host, some time after it: pinned memory, which the GPU writes."""

    def __init__(self, pin_memory: bool = True) -> None:
        self.numbers = torch.zeros(4, dtype=torch.int64, pin_memory=pin_memory)
        """Numbers of Gaussians that cannot be drawn, in the order of `LeftOut`'s reasons; the version of the last load
        that is done."""
        self.points = torch.zeros((SAMPLE, 3), dtype=torch.float32, pin_memory=pin_memory)
        """Centres of Gaussians evenly spread over the arrays, before the origin is subtracted."""
        self._array = self.numbers.numpy()

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(*self._array[:3].tolist())

    @property
    def version(self) -> int:
        return int(self._array[3])

    def sample(self, n: int) -> torch.Tensor:
        """The points that come from N Gaussians."""
        return self.points[: blocks(n, step(n))]


def step(n: int) -> int:
    """Gaussians for each one in the sample."""
    return max(blocks(n, SAMPLE), 1)


class _Array(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64), ("strides", ctypes.c_int64 * 3), ("type", ctypes.c_int),
                ("unused", ctypes.c_int))

    @classmethod
    def of(cls, t: torch.Tensor) -> _Array:
        return cls(t.data_ptr(), (ctypes.c_int64 * 3)(*t.stride()), TYPES[t.dtype], 0)


_ARRAYS = "means", "quats", "scales", "opacities", "sh0", "shN"


class _Source(ctypes.Structure):
    _fields_ = (*((name, _Array) for name in _ARRAYS),
                ("origin", ctypes.c_float * 3), ("activated", ctypes.c_int))


def activate(raw: Raw, out: Active, origin: np.ndarray, told: Told, version: int, counters: torch.Tensor,
             own: Launcher) -> None:
    """Activate on the current stream; nothing is waited for.

    Args:
        raw: a tensor whose dtype is none of `TYPES` is converted first.
        out: may share memory with `raw`, each tensor with its own counterpart.
        origin: (3,), subtracted from the means.
        told: written when it is done.
        version: of `told` then.
        counters: (4,) int32 zeros on the device, zeros again when it is done.
        own: the kernels of activate.cu.
    """
    fields = [t if t.dtype in TYPES else t.float()
              for t in (raw.means, raw.quats, raw.scales, raw.opacities, raw.sh0[:, None], raw.shN)]
    source = _Source(*(_Array.of(t) for t in fields), (ctypes.c_float * 3)(*origin.tolist()), raw.activated)
    n, terms = out.colors.shape[:2]
    own.launch("activate", min(blocks(n, THREADS), BLOCKS), THREADS, ctypes.c_int(n), ctypes.c_int(terms), source,
               out.means, out.quats, out.scales, out.opacities, out.colors, counters, ctypes.c_int(step(n)),
               told.points, ctypes.c_int64(version), told.numbers)


def shift(means: torch.Tensor, by: np.ndarray) -> None:
    """Add to each coordinate, in place."""
    for axis, value in enumerate(by.tolist()):
        if value:
            means[:, axis].add_(value)
