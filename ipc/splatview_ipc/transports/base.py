"""The ways in which the tensors of a stream reach a viewer, behind one protocol: what a way has to do.

A way is a writer in the trainer and a reader in the viewer. `ipc.ways.WAYS` lists them; `tests/ipc/test_ways.py` runs
one conformance suite over all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.control.messages import Ref


class FrameWriter(Protocol):
    """The trainer's side of one stream. Calls do not overlap; none of them waits for a reader.

    Writers for CUDA tensors queue their work on torch's current stream of the tensors' device.
    """

    grows: bool
    """Whether it skips a version when readers hold all slots that it may write into, and has `larger` called; otherwise
    it writes into one of them. False at first."""
    crowded: bool
    """Whether `larger` is to be called."""
    note: str
    """What is worse about this way here than it usually is, and why, for people; "" if nothing. It comes with `ref`."""

    @property
    def ref(self) -> Ref:
        """What readers are told. Another object whenever they have to be told again."""
        ...

    def fits(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Whether `write` can take these tensors; if not, another writer is made for them."""
        ...

    def roomy(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Return whether a writer made for these tensors would take clearly less memory, and this one takes much."""
        ...

    @property
    def size(self) -> int:
        """Bytes of host memory that readers share."""
        ...

    def populate(self) -> bool:
        """Make some more of the memory, in less than a tenth of a second; return whether all is there.

        `write` takes nothing before that. Called in the helper thread, outside of the stream's lock, so that `publish`
        never allocates. Raises SharingError.
        """
        ...

    def write(self, kind: str, tensors: dict[str, torch.Tensor], meta: dict[str, Any], version: int,
              still_wanted: Callable[[], bool] | None = None) -> bool:
        """Make these tensors, all of one version, the newest frame, unless `still_wanted` says no in the end.

        False: it is not to be had now (all slots are busy, the way rests, it was not wanted any more); the caller
        comes back with it unless something newer comes first. `still_wanted` is given on the helper thread alone,
        where waiting for the copy is allowed; it is asked when the copy has ended. Raises SharingError.
        """
        ...

    def prepare(self, tensors: dict[str, torch.Tensor], published: tuple[torch.Tensor, ...]) -> bool:
        """Get ready for more values like `published`, the frame of which, `tensors`, was the last to be written.

        Whether `again` may then be called instead of `write`, as long as nothing else is written: where tensors are
        copied, for all that look like these (dtypes, shapes, strides, device), where they are shared in place, for
        these alone. False where that would save nothing.
        """
        ...

    def again(self, published: tuple[torch.Tensor, ...], addresses: list[int], meta: dict[str, Any], version: int,
              stream: int) -> bool:
        """`write` as it was prepared, at the least cost; on the trainer's thread, outside of captures.

        `addresses`: of the published tensors; `meta`: never changed afterwards; `stream`: the current CUDA stream of
        their device.
        """
        ...

    def larger(self) -> FrameWriter:
        """Another one like this with more slots, without any frame yet; this one is closed then, and stays as it is.
        Any thread; not waited for by the trainer. Raises SharingError."""
        ...

    def retire(self) -> None:
        """`close`, and give memory back that no reader leases even where readers still have it mapped."""
        ...

    def close(self) -> None:
        """Give everything back. What readers hold stays readable to them, and is not written any more."""
        ...


class FrameReader(Protocol):
    """A viewer's side of one stream."""

    torn: int
    """Frames given up because the writer came back to them."""
    taken: int
    """The generation that is read now, none older; 0 for ways that have no generations."""

    def follow(self, ref: Ref) -> bool:
        """Take in a newer `FrameWriter.ref`. False: it is no continuation, another reader is needed.

        Raises SharingError and NotYet; what was read until now stays readable then.
        """
        ...

    @property
    def outdated(self) -> bool:
        """Whether the writer was closed so long ago that, if the run goes on, its newest frame lies somewhere else:
        for a viewer that was stopped, and has not heard of it yet."""
        ...

    @property
    def asks(self) -> bool:
        """Whether it has asked for a newer version and none has been read since."""
        ...

    def ask(self) -> None:
        """Say that a newer version would be taken now, of ways where the trainer marks only what is asked for."""
        ...

    def read(self, after: int = 0) -> Frame | None:
        """The newest whole frame with a version over `after`, or None, which asks for one. Never waits."""
        ...

    def hold_several(self, count: int) -> None:
        """Keep up to `count` frames from being overwritten until they are closed, of ways where only the one that was
        read last is. To be called before the first is read."""
        ...

    def settle(self) -> None:
        """The writer has ended: what is held stays whole, also when this reader is closed."""
        ...

    def close(self) -> None:
        """Give everything back, but for what frames still hold. Idempotent."""
        ...


@dataclass(frozen=True)
class Way:
    """How to make the two sides."""

    writer: Callable[[dict[str, torch.Tensor], float, Callable[[], bytes]], FrameWriter]
    """From tensors like those to come, how many times their size to make room for, and what tells which slots are
    being read: one byte per reader, slot + 1, or 0. Raises SharingError."""
    reader: Callable[..., FrameReader]
    """From what the trainer announced, where to get it, and what tells it which slot is being read (-1: none), called
    with the slot, and of frames that are held beside the one of cell 0 with the cell; and, False if left out, whether
    tensors in host memory are to be writable: what is written stays in this process and is gone with the frame.
    Raises SharingError when what was announced cannot be trusted or opened, NotYet when it has not come yet."""
    words: str
    """What it does, for people."""
    aside: bool = False
    """Whether the helper thread makes the writer, since its memory takes long to allocate. Otherwise the first publish
    that needs one does."""
