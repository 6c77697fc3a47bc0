"""`frames`: the newest frame of a stream, again and again, in any process."""

from __future__ import annotations

import math
import weakref

from splatview.adapters.metadata import check_text
from splatview.api.follower import Follower, seen
from splatview.api.frame import Frame, Held

__all__ = ["Frame", "Frames", "frames", "newest_seen"]


def frames(name: str, *, run: str | None = None, timeout: float | None = None,
           in_place: bool | None = None) -> Frames:
    """Iterate the newest frames of a stream that this or another process of the same user publishes.

        for frame in splatview.frames("camera"):
            boxes = detect(frame.tensor)

    name: the stream's name, as `splatview.publish` was given it. It need not be there yet.
    run: of which run: its id, the beginning of one, its name or its process's number. None: of whichever has a stream
        of this name, the newest where there are several.
    timeout: seconds that a new frame may take, else TimeoutError; None: wait for ever.
    in_place: of CUDA tensors that stay where they are. True: read them there; no copy is made, and they may change
        while they are read. False: read copies that the publisher makes on its GPU into a ring. None: Gaussians where
        they lie, everything else by the ring. Only a publisher's `copy=False` decides against that: `Frames.path`.

    Each frame is the newest at the time; those that came in between are passed over and counted. Nothing is copied
    here, and neither the publisher nor other readers notice how fast this one is. Frames of CPU streams may be written
    to: only pages that are written are copied, and only this process sees them. A publisher that ends and starts
    again is gone on with. Raises TypeError, ValueError for arguments that cannot be meant.
    """
    return Frames(name, run=run, timeout=timeout, in_place=in_place)


def newest_seen(name: str) -> tuple[int, int, str] | None:
    """Of the stream of this name, the frame that this process was handed last: its version, its time in ns since the
    epoch, and the id of its run. None before there was one."""
    return seen.get(name)


class Frames:
    """The newest frames of one stream: iterate it, or ask for the `latest`. Made by `splatview.frames`.

    Leave it with `with`, call `close`, or let go of it. To be used by one thread at a time.
    """

    def __init__(self, name: str, *, run: str | None = None, timeout: float | None = None,
                 in_place: bool | None = None):
        """As `splatview.frames`."""
        from splatview.adapters import checks

        checks.stream_name(name)
        if not isinstance(run, (str, type(None))):
            raise TypeError(f"run is a {type(run).__name__}, not a str: a run's id, its name or its process's number")
        if run == "":
            raise ValueError("run is ''; legal are a run's id, the beginning of one, its name or its process's number")
        check_text(run or "", "run")
        if in_place not in (None, True, False):
            raise ValueError(f"in_place is {in_place!r}, not True, False or None")
        self._timeout = _checked(timeout)
        self._follower = Follower(name, run, in_place)
        self._end = weakref.finalize(self, self._follower.close)

    def __iter__(self) -> Frames:
        return self

    def __next__(self) -> Frame:
        """The newest frame that is newer than the last; waits until there is one.

        The frame handed out before becomes invalid. Raises TimeoutError, which says what is known; ValueError when
        `in_place=True` cannot be; StopIteration after `close`.
        """
        if self._follower.closed:
            raise StopIteration
        return Frame(self._follower.next(self._timeout), self._give_back)

    def latest(self, timeout: float | None = None) -> Frame:
        """The newest frame there is, if need be the one that was handed out last; waits only while there is none.

        timeout: seconds, by default those of `frames`. Raises as iterating does, ValueError after `close`.
        """
        if self._follower.closed:
            raise ValueError("these frames are closed: ask splatview.frames for others")
        held = self._follower.latest(self._timeout if timeout is None else _checked(timeout))
        return Frame(held, self._give_back)

    def close(self) -> None:
        """Give everything back; the last frame becomes invalid. Idempotent."""
        self._end()

    def __enter__(self) -> Frames:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _give_back(self, held: Held) -> None:
        """A frame was closed. (That it knows us keeps us while it is in use.)"""
        self._follower.finish(held)

    def __repr__(self) -> str:
        return f"<splatview frames of {self._follower.name!r}, run {self.run or 'not found yet'}>"

    @property
    def skipped(self) -> int:
        """Versions that were passed over, in all."""
        return self._follower.skipped

    @property
    def run(self) -> str:
        """The id of the run that is read; "" before there is one."""
        stream = self._follower.stream
        return stream.run.id if stream is not None else ""

    @property
    def path(self) -> str:
        """How frames come: "ring" (shared memory), "device-ring" (a ring in GPU memory), "in-place" or "host" (GPU to
        host memory, where this process cannot open that GPU's); "" before there is a stream."""
        stream = self._follower.stream
        return stream.sharing if stream is not None else ""


def _checked(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout is a {type(timeout).__name__}, not a number of seconds or None")
    if not 0 <= timeout < math.inf:
        raise ValueError(f"timeout is {timeout!r}; legal are seconds from 0 on, or None: wait for ever")
    return float(timeout)
