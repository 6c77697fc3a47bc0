"""Packs scenes into host memory, piece by piece: from a GPU through pinned memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.blocks.layout import BLOCK
from splatview_viewer.blocks.packing import BlockedScene

if TYPE_CHECKING:
    import numpy as np
    import torch

    from splatview_viewer.blocks.layout import BlockPart

_PIECE_BYTES = 8 << 20
"""Bytes that a GPU packs at a time."""


class HostPacker:
    """Packs blocks into host memory. Belongs to one thread.

    A scene on a GPU is read on torch's current stream, for which the thread waits.
    """

    def __init__(self) -> None:
        self._staging: torch.Tensor | None = None
        """Pinned memory, from which the host copies."""
        self.gpu_ms = 0.0
        """Milliseconds that a GPU took to pack so far, without copying."""

    def pack(
        self,
        blocked: BlockedScene,
        block_part: BlockPart,
        target: np.ndarray,
        rows: torch.Tensor | None = None,
    ) -> None:
        """Pack a part of all blocks.

        Args:
            blocked: the scene.
            block_part: one of the three.
            target: (blocks, bytes of the part) uint8, to be written.
            rows: the Gaussians, in the order of the blocks; None: all, in their own.
        """
        blocks, size = target.shape
        step = blocked.blocks_at_once(block_part)
        if blocked.scene.on_gpu:
            step = max(_PIECE_BYTES // size, 1)
        for first in range(0, blocks, step):
            end = min(first + step, blocks)
            rows_slice: slice | torch.Tensor = slice(first * BLOCK, end * BLOCK)
            if rows is not None:
                rows_slice = rows[rows_slice]
            piece = BlockedScene(blocked.scene[rows_slice], blocked.origin)
            self._pack_piece(piece, block_part, target[first:end])

    def _pack_piece(
        self, piece: BlockedScene, block_part: BlockPart, target: np.ndarray
    ) -> None:
        """Pack a few blocks, and measure how long a GPU takes."""
        import torch

        if not piece.scene.on_gpu:
            self._copy(piece.pack(block_part), target)
            return
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        packed = piece.pack(block_part)
        end.record()
        self._copy(packed, target)
        self.gpu_ms += start.elapsed_time(end)

    def _copy(self, values: torch.Tensor, target: np.ndarray) -> None:
        """Copy bytes to host memory, from a GPU through pinned memory."""
        import torch

        if not values.is_cuda:
            torch.from_numpy(target).copy_(values)
            return
        flat = values.view(-1)
        if self._staging is None or len(self._staging) < len(flat):
            self._staging = torch.empty(len(flat), dtype=torch.uint8, pin_memory=True)
        staging = self._staging[: len(flat)]
        staging.copy_(flat, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        torch.from_numpy(target).view(-1).copy_(staging)
