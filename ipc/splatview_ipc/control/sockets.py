"""The Unix socket of a run: packets from viewers to a trainer, and descriptors back.

A packet is one message. The kernel delivers each packet whole, bounds what is queued,
and reports the end of the other side at once. Nothing here waits but `wait_readable`.
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
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    _Ancillary = Iterable[tuple[int, int, bytes]]
    """Level, type and data of each control message."""

DESCRIPTORS_PER_PACKET = 200
"""At most 253 (Linux)."""
MAX_CONNECTIONS = 64
_INTRODUCTION_S = 2.0
"""A connection whose viewer was not welcomed by then is closed."""
_NO_FILES_S = 1.0
"""Pause of accepting while this process may open no more files."""
_BUFFER = 1 << 19
"""Bytes queued in one direction, if the system allows them: two of the longest
messages."""
_DESCRIPTORS_CUT = int(socket.MSG_CTRUNC)
_PACKET_CUT = int(socket.MSG_TRUNC)
"""Flags of a packet as plain numbers: to mask the module's makes an object each time."""
_QUEUE_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)


class EndedError(Exception):
    """The other end is gone."""


class Connection:
    """One end of a connection."""

    def __init__(self, connected: socket.socket, closes_at: float = math.inf):
        self._socket = connected
        self.closes_at = closes_at
        """Clock time at which the server closes it; infinity once its viewer is
        welcomed."""
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, packet: bytes, fds: Sequence[int] = ()) -> bool:
        """Send a packet and descriptors, which stay the caller's.

        Returns False if too much is queued. Raises EndedError.
        """
        rights = []
        if fds:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        try:
            self._socket.sendmsg([packet], rights, socket.MSG_NOSIGNAL)
            return True
        except OSError as e:
            if e.errno in _QUEUE_FULL:
                return False
            raise EndedError from None

    def receive(self, max_descriptors: int = 0) -> tuple[bytes, list[int]] | None:
        """Return the next packet and its descriptors, the caller's. Raises EndedError.

        Returns None if there is no packet yet, an empty packet for one that was too
        long, and no descriptors if there were more than `max_descriptors`.
        """
        control_size = 0
        if max_descriptors:
            control_size = socket.CMSG_SPACE(4 * max_descriptors)
        arguments = (limits.MAX_MESSAGE, control_size, socket.MSG_CMSG_CLOEXEC)
        try:
            try:
                packet, ancillary, flags, _ = self._socket.recvmsg(*arguments)
            except ConnectionResetError:
                # The other end was closed with packets unread; what it sent is still
                # there.
                packet, ancillary, flags, _ = self._socket.recvmsg(*arguments)
        except BlockingIOError:
            return None
        except OSError:
            raise EndedError from None
        fds = _received_descriptors(ancillary)
        if flags & _DESCRIPTORS_CUT or not packet:
            close_all(fds)
            fds = []
        if not packet:
            raise EndedError
        if flags & _PACKET_CUT:
            packet = b""
        return packet, fds

    def close(self) -> None:
        """End the connection, also for forked processes that have it. Idempotent.

        What was sent arrives.
        """
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _received_descriptors(ancillary: _Ancillary) -> list[int]:
    """Return the descriptors that came with a packet."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole_bytes = len(data) - len(data) % fds.itemsize
            fds.frombytes(data[:whole_bytes])
    return list(fds)


class Server:
    """The trainer's end: at most MAX_CONNECTIONS of this user's processes."""

    def __init__(self, path: Path):
        """Listen. Raises OSError."""
        self.connections: dict[int, Connection] = {}
        """Connections by their descriptors."""
        self._paused_until = 0.0
        """Time until which nothing is accepted, for want of files; 0: they are not
        short."""
        self._socket = _packet_socket()
        try:
            self._socket.bind(str(path))
            self._socket.listen(MAX_CONNECTIONS)
        except OSError:
            self._socket.close()
            raise

    def fds(self) -> list[int]:
        """Return the descriptors to wait for."""
        fds = list(self.connections)
        if len(fds) < MAX_CONNECTIONS and not self._paused_until:
            fds.append(self._socket.fileno())
        return fds

    def next_accept_at(self) -> float:
        """Return when to call `accept` although nothing is ready; infinity: never."""
        times = [connection.closes_at for connection in self.connections.values()]
        if self._paused_until:
            times.append(self._paused_until)
        return min(times, default=math.inf)

    def must_accept(self, now: float, ready: set[int]) -> bool:
        """Return whether to call `accept`, with the descriptors that are readable."""
        return self._socket.fileno() in ready or now >= self.next_accept_at()

    def accept(self, now: float) -> set[int]:
        """Close connections that did not introduce themselves, and accept new ones.

        Returns the descriptors of these. Raises SharingError once while there is no
        file left for them: they wait, and are accepted later.
        """
        accepted_fds: set[int] = set()
        for connection in list(self.connections.values()):
            if now >= connection.closes_at:
                self.close_connection(connection)
        while len(self.connections) < MAX_CONNECTIONS and now >= self._paused_until:
            was_paused = bool(self._paused_until)
            self._paused_until = 0.0
            try:
                accepted, _ = self._socket.accept()
            except OSError as e:
                if e.errno not in (errno.EMFILE, errno.ENFILE):
                    break
                self._paused_until = now + _NO_FILES_S
                if was_paused:
                    break
                raise SharingError(
                    "no open file is left to answer a viewer with: raise the limit "
                    "(ulimit -n), or have the training open fewer"
                ) from None
            accepted.setblocking(False)
            if _peer_user(accepted) == os.getuid():
                connection = Connection(accepted, now + _INTRODUCTION_S)
                self.connections[accepted.fileno()] = connection
                accepted_fds.add(accepted.fileno())
            else:
                accepted.close()
        return accepted_fds

    def close_connection(self, connection: Connection) -> None:
        """Close a connection and forget it. Idempotent."""
        self.connections.pop(connection.fileno(), None)
        connection.close()

    def close(self) -> None:
        """Close all connections and stop listening. Idempotent."""
        for connection in list(self.connections.values()):
            self.close_connection(connection)
        self._socket.close()


def _peer_user(connected: socket.socket) -> int:
    """Return the user id of the process at the other end."""
    size = struct.calcsize("3i")
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, user, _ = struct.unpack("3i", credentials)
    return user


def connect(path: Path) -> Connection:
    """Connect to a server. Raises OSError, also while too many others wait there."""
    connecting = _packet_socket()
    try:
        connecting.connect(str(path))
    except OSError:
        connecting.close()
        raise
    return Connection(connecting)


def _packet_socket() -> socket.socket:
    kind = socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    return socket.socket(socket.AF_UNIX, kind)


def close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def wait_readable(fds: list[int], timeout_ms: int | None) -> set[int]:
    """Wait until some descriptors can be read from, have ended or are in error.

    Returns those; none after the timeout. Without a timeout it waits for ever.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(timeout_ms)}


def pid_namespace() -> int:
    """Return the PID namespace of this process; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
