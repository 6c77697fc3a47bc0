"""The count of a stream's versions, and all that a version costs which no viewer asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.shm.control_block import NOBODY, Board

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_ipc.kinds import ValueLayout
    from splatview_ipc.publisher.outlet import Outlet, Published, Tensors

LOOK = 63
"""A mask: of one version in so many the tensors are looked at even if nobody asks, so that what has been replaced is
given back. (A viewer that shows them asks far more often.)"""


class Steady:
    """What a stream knows while its tensors stay where they are and all its viewers read them there: as long as none of
    them asks, a version is only counted, and else it costs one call of the writer."""

    __slots__ = ("addresses", "again", "form", "outlet", "tensors")

    def __init__(self, form: ValueLayout, outlet: Outlet, tensors: Tensors, addresses: list[int]):
        assert outlet.writer is not None
        self.again = outlet.writer.again
        self.form = form
        self.outlet = outlet
        self.tensors = tensors
        self.addresses = addresses


class Tally:
    """Counts a stream's versions.

    Behind a training step, which leaves the caches cold, a call costs what it has to fetch from memory. What it takes
    to count a version is therefore in this one small object.
    """

    __slots__ = ("_asked", "_word", "_words", "cuda_stream", "device", "newest", "raw_stream", "steady", "version")

    def __init__(self, board: Board, index: int):
        """For the stream of this number."""
        self._asked = board.leased(index)
        self._words = board.words
        self._word = Board.version_word(index)
        self.version = 0
        self.steady: Steady | None = None
        self.newest: tuple[ValueLayout, Published] | None = None
        """The newest value and its layout, kept for viewers that come late."""
        self.raw_stream: Callable[[int], int] | None = None
        """What tells the current CUDA stream of a device; None for tensors of the CPU."""
        self.device = 0
        """The device's ordinal."""
        self.cuda_stream = 0
        """What was current there at the newest publish."""

    @property
    def asked(self) -> bool:
        """Whether a viewer asks for a version, or reads a copy of one."""
        return self._asked() != NOBODY

    def tell(self) -> None:
        """Let the viewers see the count."""
        self._words[self._word] = self.version

    def tell_beside(self) -> None:
        """`tell` on another thread than the one that publishes: the last word is the newest count."""
        while self._words[self._word] != self.version:
            self._words[self._word] = self.version
