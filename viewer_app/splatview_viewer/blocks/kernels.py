"""The kernels that pack scenes on a GPU (render/gsplat/blocks.cu).

A training at the side of the viewer loses the GPU with each launch that the next one
does not follow at once: here, a part of all blocks is one launch.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
from typing import TYPE_CHECKING

import numpy as np
import torch

from splatview_viewer.blocks.layout import BlockPart, part_bytes
from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.gsplat import cuda
from splatview_viewer.render.gsplat.activation import SourceArrays, readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.blocks.importance import SeenCone
    from splatview_viewer.render.gsplat.cuda import Launcher
    from splatview_viewer.scene.scene import GaussianScene

_THREADS = 256
_MOST_VIEWS = 16
_NO_ORIGIN = np.zeros(3, np.float32)
"""What is subtracted by the rules of a renderer, whose float32 is not enough here."""

_log = logging.getLogger("splatview")


class _PackedRows(ctypes.Structure):
    """Mirrors `Packed` in blocks.cu."""

    _fields_ = (
        ("rows", ctypes.c_uint64),
        ("count", ctypes.c_int64),
        ("origin", ctypes.c_double * 3),
        ("terms", ctypes.c_int),
        ("unused", ctypes.c_int),
    )


class _SeenCone(ctypes.Structure):
    """Mirrors `View` in blocks.cu."""

    _fields_ = (
        ("position", ctypes.c_float * 3),
        ("ahead", ctypes.c_float * 3),
        ("cosine", ctypes.c_float),
        ("sees_all", ctypes.c_int),
    )


class _SeenCones(ctypes.Structure):
    """Mirrors `Views` in blocks.cu."""

    _fields_ = (
        ("views", _SeenCone * _MOST_VIEWS),
        ("count", ctypes.c_int),
        ("unused", ctypes.c_int),
    )


class BlockKernels:
    """Packs scenes, queued on torch's current stream."""

    def __init__(self, launcher: Launcher) -> None:
        """launcher: of the kernels of blocks.cu."""
        self._launcher = launcher

    def pack(
        self,
        block_part: BlockPart,
        scene: GaussianScene,
        rows: torch.Tensor | None,
        blocks: range,
        origin: Sequence[float],
    ) -> torch.Tensor:
        """Pack a part of some blocks.

        Args:
            block_part: one of the three.
            scene: all that there is, with the coefficients that are used.
            rows: int32, the Gaussians that are packed, in order; None: all.
            blocks: at least one.
            origin: what positions are relative to.

        Returns:
            (blocks, bytes of the part) uint8.
        """
        terms = scene.shN.shape[1]
        shape = (len(blocks), part_bytes(block_part, terms))
        out = torch.empty(shape, dtype=torch.uint8, device=scene.means.device)
        tensors = readable(scene)
        source = SourceArrays.of(tensors, _NO_ORIGIN, scene.activation)
        self._launcher.launch(
            f"pack_{block_part}",
            len(blocks),
            _THREADS,
            _packed(scene, rows, origin),
            ctypes.c_int64(blocks.start),
            source,
            out,
        )
        return out

    def weigh(
        self,
        scene: GaussianScene,
        origin: Sequence[float],
        cones: Sequence[SeenCone],
        out_of_view: float,
    ) -> torch.Tensor:
        """Return the importance of Gaussians, (N,) float32, at least 0."""
        weights = torch.empty(len(scene), device=scene.means.device)
        tensors = readable(scene)
        source = SourceArrays.of(tensors, _NO_ORIGIN, scene.activation)
        self._launcher.launch(
            "weigh",
            ceil_div(len(scene), _THREADS),
            _THREADS,
            _packed(scene, None, origin),
            source,
            _views_of(cones),
            ctypes.c_float(out_of_view),
            weights,
        )
        return weights


def _packed(
    scene: GaussianScene, rows: torch.Tensor | None, origin: Sequence[float]
) -> _PackedRows:
    """Return which Gaussians are packed."""
    address = 0
    count = len(scene)
    if rows is not None:
        address = rows.data_ptr()
        count = len(rows)
    origin_values = (ctypes.c_double * 3)(*origin)
    return _PackedRows(address, count, origin_values, scene.shN.shape[1], 0)


def _views_of(cones: Sequence[SeenCone]) -> _SeenCones:
    """Return what cameras see, of the first ones."""
    views = _SeenCones(count=min(len(cones), _MOST_VIEWS))
    for index, cone in enumerate(cones[:_MOST_VIEWS]):
        sees_all = math.isinf(cone.angle)
        cosine = 0.0
        if not sees_all:
            cosine = math.cos(cone.angle)
        views.views[index] = _SeenCone(
            (ctypes.c_float * 3)(*cone.position),
            (ctypes.c_float * 3)(*cone.ahead),
            cosine,
            int(sees_all),
        )
    return views


@functools.cache
def block_kernels(device: int) -> BlockKernels | None:
    """Return the kernels of a GPU; None where there are none."""
    try:
        return BlockKernels(cuda.kernels("blocks.cu", device=device))
    except RendererError as error:
        _log.warning("scenes are packed for pages with more work of the GPU: %s", error)
        return None
