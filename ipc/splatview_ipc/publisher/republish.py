"""What a stream's tensors hold at this moment, for a viewer that is about to be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_ipc.control.errors import NotYet

if TYPE_CHECKING:
    from splatview_ipc.publisher.stream import Stream


def renew(stream: Stream) -> int:
    """Have viewers see what a stream's newest value holds now, whether or not that changed since it was published. From
    the thread that changes it, as `Stream.publish`, which this does once more.

    Returns the version to look for; 0: only the next publish can tell. Of an image that was copied at its publish and
    has reached every viewer, that copy stays. Raises TypeError, ValueError for a value that cannot be shown.
    """
    tally = stream.tally
    try:
        with stream._lock:
            form, value = stream._newest()
            outlets = list(stream._outlets.values())
    except NotYet:
        return 0
    copied = outlets and all(not o.in_place and o.version == tally.version for o in outlets)
    if copied and stream.kind == "image" and not stream.live:
        return tally.version
    tally.steady = None  # which would only count a version that nobody asks for
    if form is stream._form:
        stream.publish(value)
    else:  # it looks different since it was passed over: the helper thread sees to that
        tally.version += 1
        stream._is_late()
        tally.tell()
    return tally.version
