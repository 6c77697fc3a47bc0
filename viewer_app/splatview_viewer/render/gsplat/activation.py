"""The activation of a scene on its GPU (activation.cu)."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import torch

from splatview_viewer.render.gsplat.cuda import blocks
from splatview_viewer.render.gsplat.packed_scene import PackedScene
from splatview_viewer.scene.scene import FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from splatview_viewer.render.gsplat.cuda import Launcher
    from splatview_viewer.render.gsplat.float_scene import FloatScene
    from splatview_viewer.scene.scene import GaussianScene

THREADS = 128
BLOCKS = 8192
"""Blocks, at most: some ten times what a large GPU runs at once. Each takes what is next
until nothing is left."""
TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}
"""Numbers of dtypes in the kernel."""


class _Array(ctypes.Structure):
    """Mirrors `Array` in activated.cuh."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("strides", ctypes.c_int64 * 3),
        ("type", ctypes.c_int),
        ("unused", ctypes.c_int),
    )


class SourceArrays(ctypes.Structure):
    """Mirrors `Source` in activated.cuh."""

    _fields_ = (
        *((name, _Array) for name in FIELDS),
        ("origin", ctypes.c_float * 3),
        ("scales_activated", ctypes.c_int),
        ("opacities_activated", ctypes.c_int),
    )

    @classmethod
    def of(
        cls,
        tensors: Sequence[torch.Tensor],
        origin: np.ndarray,
        activation: tuple[bool, bool],
    ) -> SourceArrays:
        """Return the arguments for tensors of at most three axes, in FIELDS' order."""
        # In the order of the fields: structures of ctypes take several times as long.
        values: list[float] = []
        for tensor in tensors:
            strides = (*tensor.stride(), 0, 0)
            values += (tensor.data_ptr(), *strides[:3], TYPES[tensor.dtype], 0)
        values += origin.tolist()
        values += activation
        return cls.from_buffer_copy(_SOURCE_VALUES.pack(*values))


_SOURCE_VALUES = struct.Struct("=" + len(FIELDS) * "Q3q2i" + "3f2i4x")
"""All fields of a `SourceArrays`, with what follows them up to its size."""


def readable(raw: GaussianScene) -> list[torch.Tensor]:
    """Return a scene's tensors for `SourceArrays`.

    They have to stay until the kernel is launched: some are converted.
    """
    tensors = [
        raw.means,
        raw.quats,
        raw.scales,
        raw.opacities,
        raw.sh0[:, None],
        raw.shN,
    ]
    return [t if t.dtype in TYPES else t.float() for t in tensors]


def activate(
    raw: GaussianScene,
    out: FloatScene | PackedScene,
    origin: np.ndarray,
    left_out: torch.Tensor,
    counters: torch.Tensor,
    launcher: Launcher,
) -> None:
    """Write a scene activated, queued on the current stream.

    Args:
        raw: of any floating dtypes and strides, on one device; higher coefficients than
            are used may be there.
        out: arrays may share memory with `raw`, each tensor with its own counterpart;
            packed ones of the scene's number and of a degree that it has.
        origin: (3,), subtracted from the means.
        left_out: (3,) int64 that the host can read, written when it is done: counts by
            `LeftOut`'s reasons.
        counters: (4,) int32 zeros on the device, zeros again when it is done.
        launcher: launches the kernels of activation.cu.
    """
    tensors = readable(raw)
    source = SourceArrays.of(tensors, origin, raw.activation)
    n = len(raw)
    if isinstance(out, PackedScene):
        kernel = "activate_packed"
        sizes = [n, (out.degree + 1) ** 2, out.colors.shape[1]]
        arrays = [out.shapes, out.colors]
    else:
        kernel = "activate"
        sizes = [n, out.colors.shape[1]]
        arrays = [out.means, out.quats, out.scales, out.opacities, out.colors]
    launcher.launch(
        kernel,
        min(blocks(n, THREADS), BLOCKS),
        THREADS,
        *(ctypes.c_int(size) for size in sizes),
        source,
        *arrays,
        counters,
        left_out,
    )
