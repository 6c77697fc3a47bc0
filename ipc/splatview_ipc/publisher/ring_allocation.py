"""Memory for the slots of a stream's outlets, made by the helper thread, a part at a time, while the training goes on.

To allocate a gigabyte and to map its pages takes a second, a hundred times longer than `publish` may. Invariants

1. Only the helper thread makes a writer's memory, outside of the stream's lock. `publish` takes a writer that is there
   and complete, or counts the version as late; the helper thread shares the newest value when the memory is there.
2. The lock is held only to look at the newest value, to give up a writer and to install one. Memory is also given back
   outside of it, since that takes long as well.
3. Of large frames (`layout.LARGE`) the old memory is given back before the new is made: both exist together only as
   far as readers hold frames in the old one. Of others the old writer goes on until the new one is complete.
4. Nothing is allocated that is not free: see `check`. What does not fit is refused, viewers get the reason in place
   of the picture, and it is tried again: the training must not be ended for a picture.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from splatview_ipc.control.errors import NotYet, SharingError
from splatview_ipc.shm.slot_layout import LARGE
from splatview_ipc.system import free_memory

if TYPE_CHECKING:
    from splatview_ipc.publisher.outlet import Outlet
    from splatview_ipc.publisher.stream import Stream
    from splatview_ipc.transports.base import FrameWriter

RETRY = 1.0
"""Seconds between two looks whether memory that was refused is free now."""
ROOMY = 5.0
"""Seconds for which values must have taken much less memory than there is before it is made smaller."""
_SPARE = 256 << 20
"""Bytes that stay free, at most."""


class ShortageError(SharingError):
    """Memory of `size` bytes that is not free."""

    def __init__(self, size: int, available: int):
        super().__init__(f"not enough memory: the frames need {_mb(size)}, and {_mb(margin(size))} stay free for the "
                         f"training, but {_mb(available)} are left. Free some memory, or publish less at once; tried "
                         "again every second")


def margin(size: int) -> int:
    """Return the bytes that stay free when `size` bytes are taken.

    The free memory is an estimate, the training takes more while the memory is made, and a viewer copies each frame
    that it reads. As much again, up to 256 MB: with more, a small picture would be refused in a small container.
    """
    return min(size, _SPARE)


def check(size: int, available: int | None) -> None:
    """Raise ShortageError unless `size` bytes may be taken. `available`: bytes, None if not known."""
    if available is not None and available < size + margin(size):
        raise ShortageError(size, available)


def due(outlet: Outlet) -> float:
    """Return when (time.monotonic) an outlet needs `provide`; inf: not before something changes."""
    if outlet.making is not None or outlet.wants or outlet.crowded:
        return 0.0
    again = math.inf if outlet.refused is None else outlet.refused
    return again if outlet.roomy_since is None else min(again, outlet.roomy_since + ROOMY)


def provide(stream: Stream, outlet: Outlet) -> None:
    """Take one step, of less than a tenth of a second, towards a writer that suits the stream's newest value.

    Raises TypeError, ValueError for a value that cannot be shown.
    """
    try:
        if outlet.making is None:
            _begin(stream, outlet)
        else:
            _go_on(stream, outlet, outlet.making)
    except NotYet:  # there is no value yet that can be looked at: the next publish brings one
        pass
    except SharingError as e:
        _refuse(stream, outlet, e)


def abandon(stream: Stream, outlet: Outlet) -> None:
    """Give up what is being made, and what was refused: the outlet ends."""
    made, outlet.making = outlet.making, None
    if made is not None:
        made.close()
    _restore(stream, outlet)


def _begin(stream: Stream, outlet: Outlet) -> None:
    """Look which memory the newest value needs, and begin to make it."""
    outlet.wants = outlet.growing = False
    available, crowded = free_memory.available_bytes(), outlet.crowded
    if outlet.refused is not None:
        outlet.refused = time.monotonic() + RETRY
    writer, tensors = outlet.writer, stream.newest_tensors()
    if writer is not None and writer.fits(tensors):
        if crowded:
            writer.crowded, outlet.growing = False, True
            outlet.making = writer.larger()
            outlet.making.grows = True
            check(outlet.making.size, available)
        elif outlet.roomy_since is None or not writer.roomy(tensors):
            outlet.roomy_since = None
            stream.late |= _restore(stream, outlet)
            return
    if outlet.making is None:
        if writer is not None and writer.size > 2 * LARGE:
            with stream.lock:
                outlet.install(None)
            writer.retire()
            available = free_memory.available_bytes()
        check(outlet.needs(stream.kind, tensors), available)
        outlet.making = outlet.made(stream.kind, tensors, stream.leased)


def _go_on(stream: Stream, outlet: Outlet, made: FrameWriter) -> None:
    """Make some more of the memory, and install the writer when it is complete."""
    if stream.tally.newest is None:  # what it was for is not published any more
        abandon(stream, outlet)
        return
    available = free_memory.available_bytes()
    if available is not None and available < margin(made.size) // 2:  # something else has taken it meanwhile
        raise ShortageError(made.size, available)
    if not made.populate():
        return
    with stream.lock:
        outlet.making = None
        before = made
        ended = stream.tally.newest is None  # the run, while the memory was made
        if not ended:
            before = outlet.install(made)
            stream.forget_leases()
            _restore(stream, outlet)
    if before is not None:
        before.close()
    if ended:
        return
    stream.late = True  # no publish has brought the newest value there


def _refuse(stream: Stream, outlet: Outlet, error: SharingError) -> None:
    """Do without this memory for a while, and report why."""
    made, outlet.making = outlet.making, None
    if made is not None:
        made.close()
    anew = outlet.refused is None
    if outlet.growing and outlet.writer is not None:
        outlet.writer.grows = False  # frames that readers hold are overwritten from now on (`Frame.intact`)
    else:
        outlet.refused = time.monotonic() + RETRY
        with stream.lock:
            stream.withhold(outlet.way, str(error))
    if anew:
        stream.report_shortage(outlet.way, error)


def _restore(stream: Stream, outlet: Outlet) -> bool:
    """Offer again what was refused; return whether anything was."""
    if outlet.refused is None:
        return False
    outlet.refused = None
    with stream.lock:
        stream.withhold(outlet.way, "")
    return True


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
