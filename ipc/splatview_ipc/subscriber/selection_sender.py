"""The mask of the Gaussians that the user has selected, on its way to the trainer."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from splatview_ipc.control.limits import MAX_SELECTION_PIECE
from splatview_ipc.control.messages import SelectionBits

if TYPE_CHECKING:
    from splatview_ipc.subscriber.remote_stream import RemoteStream

_selection_numbers = itertools.count(1)


class SelectionSender:
    """Sends the newest mask of a stream, in one piece a turn."""

    def __init__(self, stream: RemoteStream) -> None:
        self._stream = stream
        self._selection_number = 0
        """The number of the mask that is being sent."""
        self._count = 0
        self._bits: bytes | None = None
        """What is being sent; None: nothing is."""
        self._offset = 0
        """Bytes of it that are sent."""
        self._is_again = False

    def send(self, count: int, bits: bytes, is_again: bool = False) -> None:
        """Have a mask be sent instead of the one before. Waits for nothing.

        For opened streams whose trainer wants it (`StreamInfo.wants_selection`).

        Args:
            count: Gaussians of the scene; 0: nothing is selected any more.
            bits: a bit for each, as `numpy.packbits` packs them.
            is_again: see `SelectionBits`.
        """
        # What the trainer has not got counts as a change with the next one.
        is_unsent_change = self._bits is not None and not self._is_again
        self._is_again = is_again and not is_unsent_change
        self._selection_number = next(_selection_numbers)
        self._count = count
        self._bits = bits
        self._offset = 0

    def restart(self) -> None:
        """Send a mask that is being sent from its beginning: the trainer has no part."""
        self._offset = 0

    def advance(self) -> None:
        """Send the next piece, if there is one and the trainer takes it now."""
        bits = self._bits
        if bits is None:
            return
        end = self._offset + MAX_SELECTION_PIECE
        bits_piece = SelectionBits(
            self._stream.info.index,
            self._selection_number,
            self._count,
            self._offset,
            bits[self._offset : end],
            self._is_again,
        )
        if not self._stream.run.try_send(bits_piece):
            return
        self._offset = end
        if end >= len(bits):
            self._bits = None
