"""Packed Gaussians: 128 bytes each of degree 3 in place of 236."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from splatview_viewer.render.gsplat.cuda import blocks
from splatview_viewer.render.gsplat.float_scene import FloatScene

if TYPE_CHECKING:
    from splatview_viewer.render.gsplat.cuda import Launcher

SHAPE_FLOATS = 8
"""Numbers of `Shape` in common.cuh."""
HALVES = 8
"""Coefficients of a Gaussian fill words of this many halves."""
_PACKED_AT_ONCE = 256
"""As in activation.cu."""
_INT = ctypes.c_int


@dataclass(frozen=True)
class PackedScene:
    """N packed Gaussians on one device."""

    shapes: torch.Tensor
    """(N, SHAPE_FLOATS) float32: `Shape` in common.cuh."""
    colors: torch.Tensor
    """(N, a multiple of HALVES) float16: coefficients by term and channel; what fills up
    the last word is not read."""
    degree: int
    """The degree of the coefficients."""
    flags: torch.Tensor | None = None
    """(N,) uint8 as `selecting.flags` gives them."""

    @property
    def count(self) -> int:
        """Return N."""
        # Quicker than `len`.
        return self.shapes.shape[0]

    @property
    def layout(self) -> tuple[Any, ...]:
        """Return all that a graph remembers of the tensors, but for `flags`."""
        addresses = (self.shapes.data_ptr(), self.colors.data_ptr())
        return (*addresses, self.shapes.shape, self.colors.shape)

    def with_flags(self, flags: torch.Tensor | None) -> PackedScene:
        """Return the same scene with other flags."""
        return replace(self, flags=flags)

    def to_host(self) -> PackedScene:
        """Return the scene in host memory, without flags. Waits."""
        return PackedScene(self.shapes.cpu(), self.colors.cpu(), self.degree)


def halves_of(degree: int) -> int:
    """Return the halves that the coefficients of a Gaussian take."""
    return HALVES * blocks(3 * (degree + 1) ** 2, HALVES)


def bytes_of(degree: int) -> int:
    """Return the bytes that a packed Gaussian takes."""
    return 4 * SHAPE_FLOATS + 2 * halves_of(degree)


def pack(floats: FloatScene, packed: PackedScene, launcher: Launcher) -> None:
    """Write Gaussians packed, queued on the current stream.

    Args:
        floats: the Gaussians.
        packed: where to; of their number and degree.
        launcher: launches the kernels of activation.cu.
    """
    count, terms = floats.colors.shape[:2]
    launcher.launch(
        "pack",
        blocks(count, _PACKED_AT_ONCE),
        _PACKED_AT_ONCE,
        _INT(count),
        _INT(terms),
        _INT(packed.colors.shape[1]),
        floats.means,
        floats.quats,
        floats.scales,
        floats.opacities,
        floats.colors,
        packed.shapes,
        packed.colors,
    )


def unpacked(packed: PackedScene) -> FloatScene:
    """Return what was packed, as float32, on the same device.

    It has the bits that are left of it: 11 of all but the means, which have 24.
    """
    halves = packed.shapes.view(torch.float16)[:, 8:].float()
    terms = (packed.degree + 1) ** 2
    colors = packed.colors[:, : 3 * terms].float()
    return FloatScene(
        means=packed.shapes[:, :3].contiguous(),
        quats=halves[:, :4].contiguous(),
        scales=halves[:, 4:7] * packed.shapes[:, 3:4],
        opacities=halves[:, 7].contiguous(),
        colors=colors.view(-1, terms, 3),
    )
