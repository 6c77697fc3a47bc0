"""The Unix socket of a run: packets from viewers to a trainer, one message each, and descriptors back.

The kernel delivers each packet whole, bounds what is queued, and reports the end of the other side at once. Nothing
here waits but `wait_for`.
"""

from __future__ import annotations

import array
import contextlib
import errno
import math
import os
import select
import socket
import struct
from typing import TYPE_CHECKING

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DESCRIPTORS_PER_PACKET = 200
"""At most 253 (Linux)."""
MAX_CONNECTIONS = 64
_INTRODUCTION_S = 2.0
"""A connection whose viewer was not welcomed by then is closed."""
_NO_FILES_S = 1.0
"""Pause of accepting while this process may open no more files."""
_BUFFER = 1 << 19
"""Bytes queued in one direction, if the system allows them: two of the longest messages."""
_QUEUE_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)


class EndedError(Exception):
    """The other end is gone."""


class Connection:
    """One end of a connection."""

    def __init__(self, connected: socket.socket, until: float = math.inf):
        self._socket = connected
        self.closes_at = until
        """Clock time at which the server closes it; infinity once its viewer is welcomed."""
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, packet: bytes, fds: Sequence[int] = ()) -> bool:
        """Send a packet and descriptors, which stay the caller's. False: too much is queued. Raises EndedError."""
        if fds:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        else:
            rights = []
        try:
            self._socket.sendmsg([packet], rights, socket.MSG_NOSIGNAL)
            return True
        except OSError as e:
            if e.errno in _QUEUE_FULL:
                return False
            raise EndedError from None

    def receive(self, descriptors: int = 0) -> tuple[bytes, list[int]] | None:
        """Return the next packet, empty if it was too long, and its descriptors, the caller's: none if there were more
        than `descriptors`. None: there is no packet yet. Raises EndedError.
        """
        asked = (
            limits.MAX_MESSAGE,
            socket.CMSG_SPACE(4 * descriptors) if descriptors else 0,
            socket.MSG_CMSG_CLOEXEC,
        )
        try:
            try:
                data, control, flags, _ = self._socket.recvmsg(*asked)
            except ConnectionResetError:  # the other end was closed with packets unread; what it sent is still there
                data, control, flags, _ = self._socket.recvmsg(*asked)
        except BlockingIOError:
            return None
        except OSError:
            raise EndedError from None
        fds = array.array("i")
        for level, kind, payload in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if flags & socket.MSG_CTRUNC or not data:
            close_all(fds)
            fds = fds[:0]
        if not data:
            raise EndedError
        return b"" if flags & socket.MSG_TRUNC else data, list(fds)

    def close(self) -> None:
        """End the connection, also for forked processes that have it. What was sent arrives. Idempotent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Server:
    """The trainer's end: at most MAX_CONNECTIONS of this user's processes."""

    def __init__(self, path: Path):
        """Listen. Raises OSError."""
        self.connections: dict[int, Connection] = {}
        """By descriptor."""
        self._resting_until = 0.0
        self._socket = _packets()
        try:
            self._socket.bind(str(path))
            self._socket.listen(MAX_CONNECTIONS)
        except OSError:
            self._socket.close()
            raise

    def fds(self) -> list[int]:
        """Return the descriptors to wait for."""
        accepting = len(self.connections) < MAX_CONNECTIONS and not self._resting_until
        return [*([self._socket.fileno()] if accepting else []), *self.connections]

    def next_accept_at(self) -> float:
        """Return when to call `accept` although nothing is ready; infinity: never."""
        return min(
            [
                self._resting_until or math.inf,
                *(c.closes_at for c in self.connections.values()),
            ]
        )

    def accept(self, now: float) -> None:
        """Close connections that did not introduce themselves, and take in new ones. Raises SharingError once while
        there is no file left for them: they wait, and are taken in later.
        """
        for connection in [c for c in self.connections.values() if now >= c.closes_at]:
            self.close_connection(connection)
        while len(self.connections) < MAX_CONNECTIONS and now >= self._resting_until:
            rested = self._resting_until
            self._resting_until = 0.0
            try:
                found, _ = self._socket.accept()
            except OSError as e:
                if e.errno in (errno.EMFILE, errno.ENFILE):
                    self._resting_until = now + _NO_FILES_S
                    if not rested:
                        raise SharingError(
                            "no open file is left to answer a viewer with: raise the limit (ulimit -n), "
                            "or have the training open fewer"
                        ) from None
                return
            found.setblocking(False)
            credentials = found.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
            )
            if struct.unpack("3i", credentials)[1] == os.getuid():
                self.connections[found.fileno()] = Connection(
                    found, now + _INTRODUCTION_S
                )
            else:
                found.close()

    def close_connection(self, connection: Connection) -> None:
        """Idempotent."""
        self.connections.pop(connection.fileno(), None)
        connection.close()

    def close(self) -> None:
        """Idempotent."""
        for connection in list(self.connections.values()):
            self.close_connection(connection)
        self._socket.close()


def connect(path: Path) -> Connection:
    """Connect to a server. Raises OSError, also while too many others wait there."""
    made = _packets()
    try:
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return Connection(made)


def _packets() -> socket.socket:
    return socket.socket(
        socket.AF_UNIX,
        socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
    )


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def wait_readable(fds: list[int], milliseconds: int | None) -> set[int]:
    """Wait until some of these can be read from, have ended or are in error, and return them."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(milliseconds)}


def pid_namespace() -> int:
    """Return the PID namespace of this process; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
