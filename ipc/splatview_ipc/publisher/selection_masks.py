"""The mask of the Gaussians that a viewer's user has selected, as it comes in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from splatview_ipc.control.messages import SelectionBits


class SelectionMask:
    """A mask of a scene's Gaussians, whole once all of its pieces have been added."""

    def __init__(self, first_piece: SelectionBits, resize_count: int = 0) -> None:
        """Start without pieces; this one is to be added first.

        Args:
            first_piece: tells what the mask is of.
            resize_count: `Stream.resize_count` now.
        """
        self.resize_count = resize_count
        self.is_again = first_piece.is_again
        """See `SelectionBits`."""
        self.mask_number = first_piece.number
        self.count = first_piece.count
        """Gaussians of the scene; 0: nothing is selected any more."""
        self.bits = bytearray()
        """A bit for each, as `numpy.packbits` packs them."""

    @property
    def is_whole(self) -> bool:
        return len(self.bits) == (self.count + 7) // 8

    def add(self, bits_piece: SelectionBits) -> bool:
        """Add the next piece; return whether it is that."""
        expected = self.mask_number, self.count, len(self.bits)
        if (bits_piece.number, bits_piece.count, bits_piece.offset) != expected:
            return False
        self.bits += bits_piece.bits
        return True
