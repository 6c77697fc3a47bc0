"""Packs scenes into host memory, piece by piece: from a GPU through pinned memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    import torch

    from splatview_viewer.blocks.layout import BlockPart
    from splatview_viewer.blocks.packing import BlockedScene

_PIECE_BYTES = 64 << 20
"""Bytes that a GPU packs at a time. Each time, a training at the side of the viewer loses
it."""
_STAGING_BYTES = 8 << 20
"""Bytes of pinned memory."""


class _BlockPiece(NamedTuple):
    """Some blocks of a part that are packed together."""

    block_part: BlockPart
    first: int
    target: np.ndarray
    """(blocks, bytes) uint8."""


class _LaunchedPiece(NamedTuple):
    values: torch.Tensor
    target: np.ndarray


class _PackingClock:
    """Measures the work of a GPU on torch's current stream."""

    def __init__(self, start: torch.cuda.Event | None) -> None:
        """start: recorded where it began; None: it begins now."""
        import torch

        self._end = torch.cuda.Event(enable_timing=True)
        if start is None:
            start = torch.cuda.Event(enable_timing=True)
            start.record()
        self._start = start

    def end(self) -> None:
        """End it, or end it later than before."""
        self._end.record()

    @property
    def ms(self) -> float:
        """The milliseconds, for whose end it waits."""
        self._end.synchronize()
        return self._start.elapsed_time(self._end)


class HostPacker:
    """Packs blocks into host memory. Belongs to one thread.

    A scene on a GPU is read on torch's current stream, for which the thread waits.
    """

    def __init__(self) -> None:
        self._staging: torch.Tensor | None = None
        """Pinned memory, from which the host copies."""
        self.gpu_ms = 0.0
        """Milliseconds that a GPU took to pack so far, without copying the end of it."""

    def pack(
        self,
        blocked: BlockedScene,
        targets: Mapping[BlockPart, np.ndarray],
        start: torch.cuda.Event | None = None,
    ) -> None:
        """Pack parts of all blocks.

        What comes next is begun with before the last piece is copied, so that a GPU has
        no pause in between.

        Args:
            blocked: the scene.
            targets: (blocks, bytes of the part) uint8 by part, to be written.
            start: recorded where a GPU's work for it began; None: it begins now.
        """
        clock = None
        if blocked.scene.on_gpu:
            clock = _PackingClock(start)
        launched: deque[_LaunchedPiece] = deque()
        for piece in _pieces(blocked, targets):
            end = piece.first + len(piece.target)
            values = blocked.pack(piece.block_part, piece.first, end)
            if clock is not None:
                clock.end()
            launched.append(_LaunchedPiece(values, piece.target))
            if len(launched) > 1:
                self._copy(*launched.popleft())
        while launched:
            self._copy(*launched.popleft())
        if clock is not None:
            self.gpu_ms += clock.ms

    def _copy(self, values: torch.Tensor, target: np.ndarray) -> None:
        """Copy bytes to host memory, from a GPU through pinned memory."""
        import torch

        if not values.is_cuda:
            torch.from_numpy(target).copy_(values)
            return
        if self._staging is None:
            self._staging = torch.empty(
                _STAGING_BYTES, dtype=torch.uint8, pin_memory=True
            )
        flat = values.view(-1)
        target_bytes = torch.from_numpy(target).view(-1)
        for start in range(0, len(flat), _STAGING_BYTES):
            piece = flat[start : start + _STAGING_BYTES]
            staging = self._staging[: len(piece)]
            staging.copy_(piece, non_blocking=True)
            torch.cuda.current_stream().synchronize()
            target_bytes[start : start + len(piece)].copy_(staging)


def _pieces(
    blocked: BlockedScene, targets: Mapping[BlockPart, np.ndarray]
) -> Iterator[_BlockPiece]:
    """Yield the pieces in which parts are packed."""
    for block_part, target in targets.items():
        blocks, size = target.shape
        step = blocked.blocks_at_once(block_part)
        if blocked.scene.on_gpu:
            step = max(_PIECE_BYTES // size, 1)
        for first in range(0, blocks, step):
            yield _BlockPiece(block_part, first, target[first : first + step])
