"""Who comes to the web server, before anything is known of them: how many, how fast, and what of theirs is read.

Nobody here has shown a token yet, so every bound holds whatever is sent. What belongs to a page that has said hello, or
to a file that such a page sends or fetches, is `settled`: it is never dropped to make room.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

MAX_SOCKETS = 256
"""Connections of any kind at a time. For one more the oldest that is not settled is dropped, so that who sends nothing
keeps nobody out."""
AT_ONCE, PER_SECOND = 256, 150
"""New connections: so many in no time, and so many a second for long. Others wait in the kernel."""
WITHIN = 30.0
"""Seconds for a request and its answer, both ways, of who is not settled."""
READ_AT_ONCE, READ_PER_SECOND, READ_IN_ALL = 64 * 1024, 128 * 1024, 2 * 1024**2
"""Bytes of one connection in no time and a second, and of all a second. What comes faster waits in the kernel: reading
it costs the processor that draws. A page at its busiest sends 20 kB a second; files are not metered."""
READ_AT_LEAST = 16 * 1024
READ_AT_FIRST = 8 * 1024
"""In no time of who has just come: a request's head."""
LATE_FOR = 5.0
"""Seconds for which more may come than is read; nobody needs that long, and what waits may be megabytes."""
FIRST = 4
"""Requests of a connection that are answered at once."""
ANSWERED_AT_ONCE, ANSWERED_PER_SECOND = 200, 100
"""All others: so many in no time, and so many a second for long."""
MOST_WAITING = 16
"""Requests that may wait on one connection. No browser sends a second one before the answer to the first."""
_PIECE = 4096
"""Bytes that are looked at before it is asked again how much may be, and how many requests wait."""
_NO_DESCRIPTOR = errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM
_AFTER_A_FAULT = 1.0

_log = logging.getLogger("splatview")


class Turns:
    """Turns that are given out `at_once`, and then `per_second`. Belongs to one thread."""

    def __init__(self, at_once: int, per_second: float) -> None:
        self._room, self._every = at_once / per_second, 1 / per_second
        self._next = -math.inf

    def due(self, now: float, most: float = math.inf) -> float | None:
        """Take a turn; the seconds until it comes, 0 for now. None, and no turn, where that would be more than `most`.
        `now` by any clock that does not go back."""
        turn = max(self._next, now - self._room) + self._every
        if turn - now > most:
            return None
        self._next = turn
        return max(turn - now, 0.0)

    async def taken(self, most: float = math.inf) -> bool:
        """Take a turn, and sleep until it comes; False at once where that would take more than `most` seconds."""
        wait = self.due(asyncio.get_running_loop().time(), most)
        if wait:
            await asyncio.sleep(wait)
        return wait is not None


class _Gate:
    """A transport that is read only while neither aiohttp nor `hold` says no: each knows nothing of the other."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._full = self._held = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        self._full = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._full = False
        if not self._held:
            self._transport.resume_reading()

    def hold(self, held: bool) -> None:
        self._held = held
        if held:
            self._transport.pause_reading()
        elif not self._full:
            self._transport.resume_reading()


class Visit(web.RequestHandler):
    """One TCP connection: reads no faster than it may."""

    def __init__(self, door: Door, **options: Any) -> None:
        super().__init__(door, **options)
        self._door = door
        self._clock = asyncio.get_running_loop()
        self.since = self._clock.time()
        """When it came, or its last request was answered."""
        self.settled = False
        self.requests = 0
        self._metered = True
        self._left, self._at = float(READ_AT_FIRST), self.since
        self._late_since = 0.0
        self._kept = bytearray()
        """What came and is not looked at yet: no more than the kernel hands over at a time."""
        self._held: asyncio.TimerHandle | None = None

    def unmetered(self, free: bool) -> None:
        """Whether to read as fast as it comes: a file of a page that may send one."""
        self._metered = not free
        self._late_since = 0.0
        if free and self._held is not None:
            self._held.cancel()
            self._feed()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._gate = _Gate(transport)  # type: ignore[arg-type]
        super().connection_made(self._gate)  # type: ignore[arg-type]

    def drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._held is not None:
            self._held.cancel()
            self._held = None
        self._kept.clear()  # who was here may be looked at by the garbage collector much later
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if data and self._metered:
            self._kept += data
            if self._held is None:
                self._feed()
        else:  # nothing: aiohttp looks again at what it has kept itself
            super().data_received(data)

    def _feed(self) -> None:
        """Hand on what came, as much as may be read by now, and see to it that the rest follows."""
        self._held = None
        now, rate = self._clock.time(), self._door.read_rate
        self._left, self._at = min(self._left + (now - self._at) * rate, READ_AT_ONCE), now
        if self._left > READ_AT_ONCE / 2:  # it was quiet for a while
            self._late_since = 0.0
        while self._kept and (self._left > 0 or not self._metered):
            if self.transport is None or self.transport.is_closing():
                self._kept.clear()
                return
            piece = bytes(self._kept[:_PIECE])
            del self._kept[:_PIECE]
            self._left -= len(piece)
            super().data_received(piece)
            if len(getattr(self, "_messages", ())) > MOST_WAITING:
                self.drop()
        late = self._metered and self._left <= 0
        self._gate.hold(late)
        if late and self._late_since and now - self._late_since > LATE_FOR:
            self.drop()
        elif late:
            self._late_since = self._late_since or now
            self._held = self._clock.call_later((_PIECE - self._left) / rate, self._feed)

    def log_exception(self, *args: Any, **options: Any) -> None:
        """Who sends no HTTP, or goes away before the answer, shall not fill the user's terminal."""
        if not isinstance(options.get("exc_info"), (HttpProcessingError, ConnectionError)):
            super().log_exception(*args, **options)


class Door(web.Server):
    """Lets connections in and has their requests answered."""

    def __init__(self, answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], **options: Any) -> None:
        """`options`: those of aiohttp's RequestHandler. Made in the thread that serves."""
        super().__init__(self._answered)  # type: ignore[arg-type]
        self._answer, self._options = answer, options
        self._clock = asyncio.get_running_loop()
        self._visits: dict[Visit, None] = {}
        self._coming = Turns(AT_ONCE, PER_SECOND)
        self._again = Turns(ANSWERED_AT_ONCE, ANSWERED_PER_SECOND)

    def __call__(self) -> Visit:
        return Visit(self, loop=self._clock, **self._options)

    @property
    def read_rate(self) -> float:
        """Bytes a second that are read of each connection."""
        return max(min(READ_PER_SECOND, READ_IN_ALL / max(len(self._visits), 1)), READ_AT_LEAST)

    async def serve(self, bound: socket.socket) -> None:
        """Let in whoever comes to a socket that listens and does not block, until cancelled."""
        watch = asyncio.ensure_future(self._watch())
        said = False
        try:
            while True:
                await self._coming.taken()
                try:
                    came, _ = await self._clock.sock_accept(bound)
                except OSError as e:
                    if e.errno in _NO_DESCRIPTOR:
                        if not said:
                            _log.warning("No browser can connect for now: %s", e.strerror)
                        said = True
                        await asyncio.sleep(_AFTER_A_FAULT)
                    elif bound.fileno() < 0:
                        return
                    continue  # or who came has gone
                said = False
                await self._enter(came)
        finally:
            watch.cancel()

    async def _enter(self, came: socket.socket) -> None:
        try:
            came.setblocking(False)
            await self._clock.connect_accepted_socket(self, came)
        except OSError:  # it has gone
            came.close()
        except BaseException:
            came.close()
            raise

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        assert isinstance(handler, Visit)
        self._visits[handler] = None
        if len(self._visits) > MAX_SOCKETS:
            one = min((v for v in self._visits if not v.settled), key=lambda v: v.since)  # this one, at worst
            one.drop()
            self._visits.pop(one)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        self._visits.pop(handler, None)  # type: ignore[call-overload]
        super().connection_lost(handler, exc)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        visit = visit_of(request)
        visit.requests += 1
        if request.body_exists and request.method != "POST":  # no browser does that
            visit.drop()
            raise ConnectionResetError
        if visit.requests > FIRST:
            await self._again.taken()
        try:
            return await self._answer(request)
        finally:
            visit.since = self._clock.time()

    async def _watch(self) -> None:
        """Drop who takes too long."""
        while True:
            await asyncio.sleep(WITHIN / 6)
            late = self._clock.time() - WITHIN
            for visit in [v for v in self._visits if not v.settled and v.since < late]:
                visit.drop()


def visit_of(request: web.BaseRequest) -> Visit:
    """The connection that a request came by."""
    visit = request.protocol
    assert isinstance(visit, Visit)
    return visit
