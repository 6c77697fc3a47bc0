"""What a stream is made of beside itself: its outlets, the run it belongs to."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Protocol

from splatview_ipc.control.errors import NotYet
from splatview_ipc.publisher.other_threads import OtherThreads
from splatview_ipc.shm.slot_layout import data_bytes, ring_bytes, room_for
from splatview_ipc.transports import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from splatview_ipc.kinds import ValueLayout
    from splatview_ipc.publisher.preference import Place
    from splatview_ipc.shm.control_block import Board
    from splatview_ipc.transports.base import FrameWriter

    Tensors = tuple[Any, ...]
    Published = tuple[Tensors, dict[str, Any]]
    """Tensors in the order of the layout, and the metadata of the frame."""


_REST = 0.1
"""Seconds between two generations in place while another way suits the stream better."""
_SETTLE = 0.01
"""Seconds for which a tensor must stay unchanged after a late copy, and processor time of each thread meanwhile."""
_SLOWER = 2
"""Times as long as a copy that a write into the same tensor may take."""
_LOOK_AGAIN = 0.001
"""Seconds between two looks at the other threads."""
_TURN = 0.25
"""Seconds for which the helper thread waits for them before it does other work; at least twice the processor time that
each of them needs."""
_LONGEST = 1.0
"""Seconds after which threads that have had too little processor time are waited for no longer."""


class Run(Protocol):
    """What a stream needs of the run it belongs to."""

    board: Board

    def announce(self) -> None:
        """Have the viewers told what streams there are now."""
        ...

    def attend(self) -> None:
        """Have the helper thread look at the streams: whether one is late, or lies somewhere else."""
        ...

    def fault(self, error: BaseException) -> None:
        """Count a fault of the surroundings and pass it on."""
        ...


class Outlet:
    """One way in which a stream is being shared."""

    def __init__(self, way: str):
        self.way = way
        self.readers = 0
        """Viewers that chose it."""
        self.writer: FrameWriter | None = None
        self.in_place = way == "in-place"
        self.version = 0
        """The newest version that it has."""
        self.form: ValueLayout | None = None
        """Of the value that its writer was last prepared for, or refused to be."""
        self.looks = -1
        """How that value looked (`Place.looks`)."""
        self.ready = -1
        """What the next value's `Place.number` (in place) or `Place.looks` (elsewhere) must be for the writer to take
        it by `again`."""
        self.moved = 0.0
        """When it was told of another place."""
        self.aside = WAYS[way].aside
        """As `Way.aside`: the writer comes from the helper thread (`splatview_ipc.publisher.ring_allocation`)."""
        self.wants = self.aside
        """Whether the helper thread is to look which memory the newest value needs."""
        self.making: FrameWriter | None = None
        """A writer whose memory is being made. The helper thread's alone."""
        self.growing = False
        """Whether that one takes the place of a writer for the same frames, whose slots readers hold."""
        self.roomy_since: float | None = None
        """Since when (time.monotonic) the values have taken much less memory than the writer has; None: they do not."""
        self.refused: float | None = None
        """When (time.monotonic) to look again whether there is memory for the newest value; None: it was not refused.
        Written by the helper thread."""

    @property
    def waits(self) -> bool:
        """Whether the helper thread makes memory now, or found none: versions are not shared meanwhile."""
        return self.making is not None or self.refused is not None

    def fitting(self, kind: str, tensors: dict[str, torch.Tensor], leased: Callable[[], bytes]) -> FrameWriter:
        """The writer, another one if there is none or these tensors do not fit it. Raises SharingError, and NotYet
        where the helper thread makes it."""
        writer = self.writer
        if writer is not None and writer.fits(tensors):
            if self.aside and not writer.roomy(tensors):
                self.roomy_since = None
            elif self.aside and self.roomy_since is None:
                self.roomy_since = time.monotonic()
            return writer
        if self.aside:
            self.wants = True
            raise NotYet
        made = self.made(kind, tensors, leased)
        while not made.populate():
            pass
        self.close()
        self.writer = made
        return made

    def needs(self, kind: str, tensors: dict[str, torch.Tensor]) -> int:
        """Return the bytes of host memory that `made` takes for slots."""
        room = room_for(data_bytes(tensors), self.writer is not None or kind == "gaussians")
        return ring_bytes(room)

    def made(self, kind: str, tensors: dict[str, torch.Tensor], leased: Callable[[], bytes]) -> FrameWriter:
        """Return another writer for these tensors. Raises SharingError."""
        # A scene that outgrew its memory will grow again; an image keeps its size.
        size = data_bytes(tensors)
        room = room_for(size, self.writer is not None or kind == "gaussians")
        made = WAYS[self.way].writer(tensors, room / size if room > size else 1.0, leased)
        made.grows = True
        return made

    def install(self, made: FrameWriter | None) -> FrameWriter | None:
        """Have another writer from now on, whose memory is complete; return the one before, to be closed outside of the
        stream's lock. Under the stream's lock."""
        before, self.writer = self.writer, made
        self.version, self.form, self.ready, self.roomy_since = 0, None, -1, None
        return before

    def prepare(self, form: ValueLayout, place: Place, tensors: dict[str, torch.Tensor], published: Tensors) -> None:
        """Have the writer prepared for more values like the one that it has just written. Under the stream's lock."""
        assert self.writer is not None
        if self.in_place:
            self.moved = time.monotonic()
        elif form is self.form and place.looks == self.looks:
            return
        self.form, self.looks, self.ready = form, place.looks, -1
        if self.writer.prepare(tensors, published):
            self.ready = place.number if self.in_place else place.looks

    def holds(self, tensors: dict[str, torch.Tensor]) -> bool:
        """Whether the newest frame is known to hold what these tensors hold now: of those in host memory it can be
        told."""
        from splatview_ipc.transports.cpu_ring import RingWriter

        return isinstance(self.writer, RingWriter) and self.writer.holds(tensors)

    @property
    def crowded(self) -> bool:
        """Whether readers hold all slots that the next version could be written into."""
        writer = self.writer
        return writer is not None and writer.crowded

    def rests(self, ways: tuple[str, ...]) -> bool:
        """Whether tensors in place that moved wait a little, since another of the `ways` that suit would be better."""
        return self.in_place and ways[:1] != ("in-place",) and time.monotonic() - self.moved < _REST

    def close(self) -> None:
        """Let the writer go; the next version gets a new one."""
        if (writer := self.install(None)) is not None:
            writer.close()


def undo(outlets: Iterable[Outlet], place: Place) -> None:
    """Let go of what a call has left that was broken off in the middle, and not by an error of its own: Ctrl-C comes
    between any two steps, amid a slot as well. The next version is written afresh. Under the stream's lock."""
    for outlet in outlets:
        with contextlib.suppress(Exception):
            outlet.close()
        outlet.writer = None
    place.forget()


def at_rest(tensors: dict[str, torch.Tensor], current: Callable[[], bool], since: float) -> Callable[[], bool]:
    """What tells, called after a copy that begins now, whether these tensors were at rest until a moment after it: no
    in-place operation has ended on them (inference tensors do not count them), and they are still `current`.

    The moment gives a write that the copy ran into the chance to end: each other thread of the process has had
    processor time for it, or does not want to run. Where one gets none, "no" is said for a second: `since`
    (time.monotonic) such copies were made in vain.
    """
    def counts() -> list[int]:
        return [0 if t.is_inference() else t._version for t in tensors.values()]

    def rest() -> bool:
        return current() and before == counts()

    def settled() -> bool:
        others, enough = OtherThreads(), max(_SETTLE, _SLOWER * (time.thread_time() - begin))
        end = time.monotonic() + max(_TURN, 2 * enough)
        time.sleep(_SETTLE)
        calm = 0  # looks in a row: a thread that was seen asleep may have been woken by the next one
        while rest():
            calm = calm + 1 if others.came_on(enough) else 0
            now = time.monotonic()
            if calm == 2 or now > end:
                return rest() and (calm == 2 or now > since + _LONGEST)
            time.sleep(_LOOK_AGAIN)
        return False

    begin, before = time.thread_time(), counts()
    return settled
