"""The newest frame of one stream, whichever run publishes it: what `splatview.frames` consist of."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from splatview.api.frame import Held, open_memory
from splatview.api.poll_backoff import Naps, be_punctual, sleep, while_busy
from splatview_ipc import IpcError, Subscriber
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.frame import Frame as Shared
    from splatview_ipc.control.messages import StreamInfo
    from splatview_ipc.subscriber.remote_stream import RemoteStream

_log = logging.getLogger("splatview")

_POLL = 0.05
"""Seconds between two looks at what runs say, while frames come."""
_POLL_SOON = 1e-3
"""While something is expected of them; growing to the above when it does not come."""
_UNREAD = 0.1
"""Seconds for which `latest` waits for a version in place that is newer than what is marked."""
_PENDING = 2
"""Frames given back whose work on the GPU has not ended; while there are as many, no new one is taken."""
_SILENCE = 10.0
"""Seconds after which somebody who waits for ever is told why, once."""
_REMEMBERED = 256
"""Names in `newest_seen`."""

seen: OrderedDict[str, tuple[int, int, str]] = OrderedDict()
"""By the stream's name: version, time and run of the frame that this process was handed last."""


class Follower:
    """Finds the stream, opens it, and waits for its frames. One of them is in use at a time."""

    def __init__(self, name: str, run: str | None, in_place: bool | None):
        self.name = name
        self.skipped = 0
        self.stream: RemoteStream | None = None
        self.closed = False
        self._run = run
        self._in_place = in_place
        self._current: Held | None = None
        self._pending: list[tuple[Shared, list[torch.cuda.Event]]] = []
        self._restart()

    def _restart(self) -> None:
        self._pid = os.getpid()
        self._subscriber: Subscriber | None = None
        self.stream = None
        self._other: RemoteStream | None = None
        """The stream that is to be read instead."""
        self._last = 0
        self._naps = Naps()
        self._came: tuple[int, float] | None = None
        """The frame that the naps are still to be told of: whoever waited for it comes first."""
        self._told: tuple[int, float] = (0, 0.0)
        """The newest version that is known to be published but not read, and since when (time.monotonic)."""
        self._polled, self._news = -math.inf, time.monotonic()

    def next(self, timeout: float | None) -> Held:
        """The next new frame."""
        return self._wait(timeout, self._take)

    def latest(self, timeout: float | None) -> Held:
        """The newest frame, whether or not it is new."""
        self.give_back()
        self._look(time.monotonic())
        stream, unread = self.stream, time.monotonic() + _UNREAD

        def newest() -> Held | None:
            frame = self._take()
            if frame is None and stream is not None and self.stream is stream and self._last and (
                    stream.version <= self._last or stream.sharing != "in-place" or time.monotonic() > unread):
                frame = self._take(again=True)
            return frame

        return self._wait(timeout, newest)

    def _wait(self, timeout: float | None, take: Callable[[], Held | None]) -> Held:
        begun = time.monotonic()
        over = math.inf if timeout is None else begun + timeout
        told = timeout is not None
        self.give_back()
        if (frame := take()) is not None:
            return frame
        be_punctual()
        while True:
            now = time.monotonic()
            if now >= over:
                raise TimeoutError(printable(self._why(now - begun)))
            if not told and now > begun + _SILENCE:
                told = True
                _log.warning("%s", printable(self._why(now - begun)))
            sleep(min(self._nap(now), over - now))
            if (frame := take()) is not None:
                return frame

    def give_back(self) -> None:
        """What was handed out last is not used any more, but for what is queued on a GPU."""
        if self._pid != os.getpid():
            self._after_fork()
        if (came := self._came) is not None:
            self._came = None
            self._naps.came(*came)
        current, self._current = self._current, None
        if current is not None:
            shared, events = current.end()
            if shared is not None and events:
                self._pending.append((shared, events))
            elif shared is not None:
                shared.close()
        self._retire()

    def finish(self, held: Held) -> None:
        """A frame that was handed out is not used any more."""
        if self._current is held:
            self.give_back()

    def _retire(self) -> None:
        while self._pending and all(event.query() for event in self._pending[0][1]):
            self._pending.pop(0)[0].close()

    def _take(self, again: bool = False) -> Held | None:
        """The newest frame if it is newer than the last, or, `again`, even if it is the last."""
        now = time.monotonic()
        if self._pending:
            self._retire()
            if len(self._pending) >= _PENDING:
                return None
        if now >= self._polled + self._poll_pause(now):
            self._look(now)
        stream = self.stream
        if self._other is not None and (stream is None or stream.run.alive or stream.version <= self._last):
            self._change()
            stream = self.stream
        if stream is None:
            return None
        version = stream.version
        if version > self._last:
            if version != self._told[0]:
                self._told = version, now
        elif not again:
            stream.ask()
            return None
        shared = stream.read(0 if again else self._last)
        if shared is None:
            if self._other is not None:  # the last frame of an ended run is not to be had
                self._change()
            return None
        try:
            open_memory(shared)
        except IpcError as e:
            shared.close()
            stream.refuse(str(e))
            return None
        return self._hand_out(shared, stream)

    def _hand_out(self, shared: Shared, stream: RemoteStream) -> Held:
        skipped = max(0, shared.version - self._last - 1) if self._last else 0
        self._last = max(self._last, shared.version)
        self.skipped += skipped
        self._came = shared.version, shared.time_ns / 1e9
        self._told = 0, 0.0
        seen[self.name] = shared.version, shared.time_ns, stream.run.id
        seen.move_to_end(self.name)
        while len(seen) > _REMEMBERED:
            seen.popitem(last=False)
        self._current = Held(shared, skipped, stream.run.id)
        return self._current

    def _nap(self, now: float) -> float:
        if len(self._pending) >= _PENDING:
            return while_busy(0.0)
        stream = self.stream
        if stream is None or not stream.opened:
            return self._poll_pause(now)
        if self._told[0] > self._last:
            return while_busy(now - self._told[1])
        return min(self._naps.nap(time.time()), max(self._polled + _POLL - now, 0.0) + 1e-4)

    def _poll_pause(self, now: float) -> float:
        """Seconds between two looks at what runs say."""
        stream = self.stream
        if stream is not None and stream.opened and stream.run.alive:
            if self._told[0] <= self._last:
                return _POLL
            return min(max(0.1 * (now - self._told[1]), _POLL_SOON), _POLL)  # perhaps it lies somewhere else now
        return min(max(0.1 * (now - self._news), _POLL_SOON), _POLL)

    def _look(self, now: float) -> None:
        """Take in what runs say, and find the stream."""
        if self._subscriber is None:
            self._subscriber = Subscriber(self._run, client="frames")
        if self._subscriber.poll():
            self._news = now
        self._polled = now
        found = [s for run in self._subscriber.runs if run.alive for s in run.streams.values() if s.name == self.name]
        newest = max(found, key=lambda s: (s.run.folder.description.started, s.run.id), default=None)
        self._other = newest if newest is not self.stream else None

    def _change(self) -> None:
        """Go over to another run's stream."""
        before, self.stream, self._other = self.stream, self._other, None
        assert self.stream is not None
        if before is not None:
            before.release()
        self._last, self._naps, self._came, self._told = 0, Naps(), None, (0, 0.0)
        self._check_in_place(self.stream)
        self.stream.order, self.stream.holds, self.stream.writable = self._order, 1 + _PENDING, True
        self.stream.open()

    def _order(self, info: StreamInfo) -> tuple[str, ...]:
        """The ways that a stream is offered in, the one that suits us best first."""
        in_place = self._in_place if self._in_place is not None or info.kind != "gaussians" else True
        if in_place is True and self._in_place is None:
            return tuple(info.transports)
        if in_place:
            return tuple(w for w in info.transports if w == "in-place")
        ring = tuple(w for w in info.transports if w in ("ring", "device-ring"))
        place = tuple(w for w in info.transports if w == "in-place") if self._in_place is None else ()
        return ring + place + tuple(w for w in info.transports if w == "host")

    def _check_in_place(self, stream: RemoteStream) -> None:
        if self._in_place and "in-place" not in stream.info.transports:
            where = "copied on its GPU at each publish" if stream.gpu else "on the CPU, and always copied"
            raise ValueError(f"in_place=True: stream {self.name!r} of run {stream.run.id} is {where}"
                             f"{': ' + stream.info.why if stream.info.why else ''}; leave in_place out")

    def _why(self, waited: float) -> str:
        """What is known of why no frame comes, for people."""
        begin = f"no new frame of {self.name!r} within {waited:.1f} s: "
        subscriber, stream = self._subscriber, self.stream
        if subscriber is None:
            return begin + "nothing was looked at yet"
        if subscriber.fault is not None:
            return begin + subscriber.fault
        if stream is not None:
            run = f"run {stream.run.id}"
            if not stream.run.alive:
                return begin + f"{run} has ended, and no other publishes it"
            if stream.fault:
                return begin + f"{run} has it, but it cannot be read: {stream.fault}"
            if self._last == 0:
                return begin + f"{run} has it, but no frame has come yet that can be read"
            if len(self._pending) >= _PENDING:
                return begin + "the GPU has not ended the work that was queued here on the frames before"
            return begin + f"{run} has published nothing since version {stream.version}"
        alive = [run for run in subscriber.runs if run.alive]
        which = f" that {self._run!r} names" if self._run is not None else ""
        if not alive:
            from splatview_ipc.control.run_folder import runtime_folder

            return begin + (f"no run{which} is there, in {runtime_folder()}: start the program that publishes, as the "
                            "same user")
        refused = [f"run {run.id}: {run.refused}" for run in alive if run.refused]
        names = [f"{s.name!r} ({s.kind}, run {s.run.id})" for s in subscriber.streams if s.run.alive]
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        there = f"there are {', '.join(names[:10])}{more}" if names else f"no run{which} has published anything yet"
        return begin + "; ".join([f"no such stream; {there}", *refused])

    def _after_fork(self) -> None:
        """In a forked child: what is open is the parent's, and stays as it is. It begins anew."""
        _inherited.append((self._subscriber, self._pending))
        self._pending = []
        if self._current is not None:
            self._current.end()
            self._current = None
        self._restart()

    def close(self) -> None:
        """Give everything back. Idempotent; never raises."""
        if self.closed or self._pid != os.getpid():
            return
        self.closed = True
        with contextlib.suppress(Exception):
            self.give_back()
        for shared, events in self._pending:
            with contextlib.suppress(Exception):
                for event in events:
                    event.synchronize()
                shared.close()
        self._pending.clear()
        if self._subscriber is not None:
            with contextlib.suppress(Exception):
                self._subscriber.close()
            self._subscriber = None


_inherited: list[Any] = []
"""Of the parent's, in a forked child: kept from being torn down."""
