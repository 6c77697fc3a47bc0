"""File descriptors handed from a trainer to its viewers, over a socket in the run's folder (SCM_RIGHTS).

It works where /proc/PID/fd does not: for descriptors of GPU memory, under ptrace restrictions, and between PID
namespaces. A request is one packet with an unguessable token; the answer is one or more packets, each with the number
of descriptors in all and some of them.

The trainer's helper thread serves, with bounds on everything; viewers ask and look in at each poll, and never wait.

Invariants
1. What is offered changes under one lock; descriptors that are to be closed are taken out of it first, and what is sent
   are copies made under it: no number that was used again is ever handed out.
2. A token is unguessable, stands for the same thing all its life, and is never used again.
3. Every descriptor that was received belongs to somebody: to `Fetch` until all have come, then to whoever polls.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import secrets
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.control import limits
from splatview_ipc.control.channel import listening, packets, same_user, short_path
from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SOCKET_NAME = "descriptors"
_PACKET = 200
"""Descriptors in one packet; Linux sends 253 at most."""
_MAX_REQUEST = 64
_MAX_CONNECTIONS = 16
_TIMEOUT = 2.0
"""Seconds after which a connection that does not go on is given up, on either side."""
_ANSWER = struct.Struct("=I")


class _Offer(NamedTuple):
    total: int
    fds: tuple[int, ...] = ()
    ours: bool = False
    """Whether they are ours to close."""
    make: Callable[[int, int], list[int]] | None = None
    """As for `offer_made`; there are no `fds` then."""


_offers: dict[str, _Offer] = {}
"""By token."""
_lock = threading.Lock()


def offer(fds: Sequence[int], token: str | None = None) -> str:
    """Let viewers of this process's runs have these descriptors; the token with which they ask for them.

    Without a token the descriptors become ours, to be closed at `withdraw`; with one (a segment's) they stay the
    caller's, who withdraws them before closing them.
    """
    made = token or f"fds-{secrets.token_hex(12)}"
    with _lock:
        _offers[made] = _Offer(len(fds), tuple(fds), token is None)
    return made


def offer_made(count: int, make: Callable[[int, int], list[int]]) -> str:
    """As `offer`, of `count` descriptors that are made anew for each viewer: a trainer, which may have a thousand open
    files at most, keeps none of them.

    `make(start, stop)` gives those from `start` to before `stop`, the caller's; it may raise SharingError. It is called
    on the helper thread, also a moment after `withdraw`.
    """
    token = f"fds-{secrets.token_hex(12)}"
    with _lock:
        _offers[token] = _Offer(count, make=make)
    return token


def withdraw(token: str) -> None:
    """Undo `offer`. What viewers have fetched stays theirs. Idempotent."""
    with _lock:
        withdrawn = _offers.pop(token, None)
    if withdrawn is not None and withdrawn.ours:
        for fd in withdrawn.fds:
            with contextlib.suppress(OSError):
                os.close(fd)


def copies(token: str, start: int = 0, most: int = limits.MAX_PIECES) -> tuple[list[int], int]:
    """Descriptors, the caller's, of what is offered under a token in this very process: at most so many from number
    `start` on; and how many there are in all. Raises SharingError."""
    with _lock:  # not withdrawn and closed while we duplicate
        offered = _offers.get(token)
        if offered is None or not offered.total:
            raise SharingError("what the token stood for is not offered any more")
        stop = min(start + most, offered.total)
        if offered.make is None:
            return duplicates(offered.fds[start:stop]), offered.total
    return offered.make(start, stop), offered.total


def duplicates(fds: Sequence[int]) -> list[int]:
    """Raises SharingError when this process may not have so many."""
    made: list[int] = []
    try:
        made.extend(os.dup(fd) for fd in fds)
    except OSError as e:
        for fd in made:
            os.close(fd)
        raise SharingError(f"no more file descriptors ({e.strerror}): raise the limit (ulimit -n)") from None
    return made


class Server:
    """The trainer's side, on its helper thread: register `fds()` for reading, call `serve` when one is ready."""

    def __init__(self, folder: Path):
        """Raises OSError when the socket cannot be made."""
        self._socket = listening(folder / SOCKET_NAME, _MAX_CONNECTIONS)
        self._connections: dict[int, tuple[socket.socket, float]] = {}

    def fds(self) -> list[int]:
        """What to wait for."""
        return [self._socket.fileno(), *self._connections]

    def due(self) -> float | None:
        """When (time.monotonic) to call `serve` although nothing is ready; None: never."""
        return min((end for _, end in self._connections.values()), default=None)

    def serve(self) -> None:
        """Take new connections, answer requests, drop what takes too long. Never waits, never raises."""
        with contextlib.suppress(OSError):
            for _ in range(_MAX_CONNECTIONS):  # whoever comes again and again must not keep us here
                connection, _ = self._socket.accept()
                connection.setblocking(False)
                if len(self._connections) >= _MAX_CONNECTIONS or not same_user(connection):
                    connection.close()
                    continue
                self._connections[connection.fileno()] = connection, time.monotonic() + _TIMEOUT
        for fd, (connection, end) in list(self._connections.items()):
            if _answered(connection) or time.monotonic() >= end:
                connection.close()
                del self._connections[fd]

    def close(self) -> None:
        for connection, _ in self._connections.values():
            connection.close()
        self._connections.clear()
        self._socket.close()


def _answered(connection: socket.socket) -> bool:
    """Whether a connection is done with."""
    try:
        request = connection.recv(_MAX_REQUEST)
    except BlockingIOError:
        return False
    except OSError:
        return True
    token, sent, count = request.decode("ascii", "replace"), 0, 1
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
        while sent < count:
            sent, count = _send_some(connection, token, sent)
    except OSError:
        pass  # the viewer went away, or does not read: it asks again
    return True


def _send_some(connection: socket.socket, token: str, start: int) -> tuple[int, int]:
    """Send a packet; how many descriptors have been sent by then, and how many are to be. Raises OSError."""
    try:
        fds, count = copies(token, start, _PACKET)  # copies: the trainer may withdraw them meanwhile
    except SharingError:
        fds, count = [], 0
    try:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        connection.sendmsg([_ANSWER.pack(count)], rights)
    finally:
        for fd in fds:
            os.close(fd)
    return start + len(fds), count


class Fetch:
    """A viewer's request: make it, `poll` it until it has an answer."""

    def __init__(self, folder: Path, token: str):
        """Never waits. Raises SharingError when the trainer does not listen."""
        self._fds: list[int] = []
        self._end = time.monotonic() + _TIMEOUT
        try:
            self._socket = packets()
        except OSError as e:
            raise SharingError(f"cannot ask the trainer for its memory ({e.strerror}): raise the limit of open files "
                               "(ulimit -n)") from None
        self._request: bytes | None = token.encode("ascii")[:_MAX_REQUEST]
        self._folder = folder
        try:
            self._ask()
        except SharingError:
            self.close()
            raise

    @property
    def overdue(self) -> bool:
        """Whether it would be given up by now."""
        return time.monotonic() > self._end + _TIMEOUT

    def poll(self) -> list[int] | None:
        """The descriptors, the caller's from then on; None while they have not come. Raises SharingError."""
        try:
            return self._poll()
        except SharingError:
            self.close()
            raise
        except OSError as e:
            self.close()
            raise SharingError(f"the trainer did not hand over its memory: {e.strerror}") from None

    def _ask(self) -> None:
        if self._request is None:
            return
        try:
            with short_path(self._folder / SOCKET_NAME) as path:
                self._socket.connect(path)
            self._socket.send(self._request)
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EINPROGRESS):  # many are waiting: next time
                return
            raise SharingError(f"cannot ask the trainer for its memory: {e.strerror}") from None
        self._request = None

    def _poll(self) -> list[int] | None:
        self._ask()
        while self._request is None:
            try:
                data, control, flags, _ = self._socket.recvmsg(_MAX_REQUEST, socket.CMSG_SPACE(_PACKET * 4))
            except BlockingIOError:
                break
            for level, kind, payload in control:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    got = array.array("i")
                    got.frombytes(payload[: len(payload) - len(payload) % got.itemsize])
                    self._fds.extend(got)
            total = _ANSWER.unpack(data)[0] if len(data) == _ANSWER.size else 0
            if flags & socket.MSG_CTRUNC or not 0 < total <= limits.MAX_PIECES or len(self._fds) > total:
                raise SharingError("the trainer does not offer this memory any more, or this process may not have "
                                   "more open files (ulimit -n)")
            if len(self._fds) == total:
                done, self._fds = self._fds, []
                for fd in done:
                    os.set_inheritable(fd, False)
                self.close()
                return done
        if time.monotonic() >= self._end:
            raise SharingError(f"the trainer did not hand over its memory within {_TIMEOUT:.0f} s: is it stopped?")
        return None

    def close(self) -> None:
        """Give up. Idempotent."""
        self._socket.close()
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def _after_fork_in_child() -> None:
    """What the parent offers is not the child's to give, or to close."""
    global _lock
    _lock = threading.Lock()
    _offers.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
