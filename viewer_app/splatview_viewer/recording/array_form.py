"""The form of snapshots that earlier versions wrote: an array for each field.

Behind the header are the arrays of `layout` one after the other, little-endian:

means       float32, or float64, as they are
quats       unit quaternions times 32767, int16
scales      logarithms as float16; those that come activated as float32
opacities   logits as float16; those that come activated as float16
sh0         float16
shN         int8, each Gaussian's as fractions of its own largest one
sh_unit     float16, what a fraction of 1 stands for
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from splatview_ipc.kinds.gaussians import parse_activated
from splatview_viewer.recording.snapshot_header import Share, SnapshotHeader
from splatview_viewer.scene.scene import GaussianScene

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNIT = 32767.0


class ArrayHeader(SnapshotHeader, frozen=True, kw_only=True):
    """Description of a scene in arrays."""

    magic = b"SVSCENE1"

    coefficients: Literal[0, 3, 8, 15, 24]
    """Coefficients of spherical harmonics beyond degree 0, for each Gaussian."""
    activated: bool | tuple[bool, bool]
    """True if scales and opacities already went through exp and sigmoid; a pair where one
    of them alone did."""
    background: tuple[Share, Share, Share] | None = None
    """The scene's own, RGB in [0, 1]."""
    wide: bool = False
    """True for positions of float64."""

    @property
    def unpacked_coefficients(self) -> int:
        return self.coefficients

    @property
    def layout(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of each array, in their order."""
        scale_type = "<f4" if parse_activated(self.activated).scales else "<f2"
        means_type = "<f8" if self.wide else "<f4"
        count = self.count
        # Without higher degrees there is no unit of them.
        unit_count = count if self.coefficients else 0
        return {
            "means": ((count, 3), np.dtype(means_type)),
            "quats": ((count, 4), np.dtype("<i2")),
            "scales": ((count, 3), np.dtype(scale_type)),
            "opacities": ((count,), np.dtype("<f2")),
            "sh0": ((count, 3), np.dtype("<f2")),
            "shN": ((count, self.coefficients, 3), np.dtype("<i1")),
            "sh_unit": ((unit_count,), np.dtype("<f2")),
        }

    @property
    def body_bytes(self) -> int:
        return sum(_size(shape, dtype) for shape, dtype in self.layout.values())

    def row_spans(self, index: int) -> Sequence[tuple[int, int]]:
        spans = []
        start = 0
        for shape, dtype in self.layout.values():
            row_size = _size(shape[1:], dtype)
            if shape[0]:
                spans.append((start + index * row_size, row_size))
            start += _size(shape, dtype)
        return spans

    def row(self, row_bytes: np.ndarray, index: int) -> GaussianScene:
        return msgspec.structs.replace(self, count=1).scene(row_bytes)

    def scene(
        self, body: np.ndarray, *, version: int = 0, notes: tuple[str, ...] = ()
    ) -> GaussianScene:
        import torch

        # An array may begin at any byte.
        means, quats, scales, opacities, sh0, higher, unit = (
            torch.from_numpy(np.require(array, requirements="A"))
            for array in self._arrays(body)
        )
        higher = higher.float()
        if higher.numel():
            higher *= unit.float()[:, None, None]
        return GaussianScene(
            means=means,
            quats=quats * (1 / _UNIT),
            scales=scales.float(),
            opacities=opacities.float(),
            sh0=sh0.float(),
            shN=higher,
            activated=self.activated,
            sh_degree=self.sh_degree,
            antialiased=self.antialiased,
            version=version,
            notes=notes,
            background=self.background,
        )

    def _arrays(self, body: np.ndarray) -> list[np.ndarray]:
        """Return the arrays as views of their bytes."""
        arrays: list[np.ndarray] = []
        offset = 0
        for shape, dtype in self.layout.values():
            size = _size(shape, dtype)
            array_bytes = body[offset : offset + size]
            arrays.append(array_bytes.view(dtype).reshape(shape))
            offset += size
        return arrays


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes of an array."""
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
