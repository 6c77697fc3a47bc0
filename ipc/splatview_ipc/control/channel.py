"""The socket of a run: packets from viewers to a trainer, one message each. What the trainer answers goes over ZeroMQ
(`splatview_ipc.control.mail`) wherever that is to be had, else by the same connection.

Sequenced packets of the kernel's own: a packet comes whole or not at all, its size is known before it is read, and what
is on its way is bounded by the socket's buffers, whatever a peer does. So are the descriptors that peers can make a
trainer use: as many as there may be connections. The other end of a connection that dies is known at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import time
from typing import TYPE_CHECKING

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.run_folder import SOCKET_NAME, SOCKET_PATH_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from splatview_ipc.control.mail import Inbox, Mailroom, Outbox

_UNKNOWN = 8
"""Connections beside those of all viewers that there may be, of those that have not said who they are."""
_INTRODUCTION = 2.0
"""Seconds within which a connection says who it is."""
_MOMENT = 0.05
"""Seconds that it has for it, whoever waits."""
_BACKLOG = 64
_BURST, _BURST_SECONDS = 64, 0.002
"""Packets taken in one go, beside the first of each connection, and how long that may take."""
_BUFFER = 1 << 19
"""Bytes that may be on their way in one direction, if the system allows them: two of the longest messages."""
_WINDOW, _TURNS, _REST = 0.1, 20, 0.01
"""Whoever is woken more than so often within so many seconds rests so long each time."""
_QUEUE_FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM)


class EndedError(Exception):
    """The other end is gone, or has sent what nobody of ours sends."""


class Connection:
    """One end. Nothing here waits."""

    def __init__(self, connected: socket.socket):
        self._socket = connected
        self.known = False
        """Whether it is a viewer's that was welcomed; to be set."""
        self.until = time.monotonic() + _INTRODUCTION
        """Until when (time.monotonic) it may be unknown."""
        self.outbox: Outbox | None = None
        """By which packets go to a viewer that has said where it takes them; to be set."""
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, packet: bytes) -> bool:
        """False: too much is on its way already. Raises EndedError."""
        if self.outbox is not None:
            return self.outbox.send(packet)
        try:
            self._socket.send(packet, socket.MSG_NOSIGNAL)
            return True
        except OSError as e:
            if e.errno in _QUEUE_FULL:
                return False
            raise EndedError from None

    def receive(self) -> bytes | None:
        """The next packet; None: there is none yet; b"": one that was too long to be read. Raises EndedError."""
        try:
            packet, flags = self._packet()
        except BlockingIOError:
            return None
        except OSError:
            raise EndedError from None
        if not packet:
            raise EndedError
        return b"" if flags & socket.MSG_TRUNC else packet

    def _packet(self) -> tuple[bytes, int]:
        # Descriptors that come with it are closed by the kernel: there is no room for them.
        try:
            packet, _, flags, _ = self._socket.recvmsg(limits.MAX_MESSAGE)
        except ConnectionResetError:  # the other end was closed before it had read all; what it sent is still there
            packet, _, flags, _ = self._socket.recvmsg(limits.MAX_MESSAGE)
        return packet, flags

    def unknown(self) -> None:
        """It is nobody's any more."""
        self.known, self.until = False, time.monotonic() + _INTRODUCTION

    def shut(self) -> None:
        """End it for all processes that have it. What was sent arrives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Idempotent."""
        if self.outbox is not None:
            self.outbox.close()
            self.outbox = None
        self._socket.close()


class Listener:
    """The trainer's end, for its helper thread."""

    def __init__(self, folder: Path):
        """Raises OSError when the socket cannot be made."""
        self._socket = listening(folder / SOCKET_NAME, _BACKLOG)
        self._connections: dict[int, Connection] = {}
        self._lacking = False
        """Whether there was no room for another open file of late."""

    def move(self, folder: Path) -> None:
        """Have connections come in in another folder; those that are there stay. Raises OSError."""
        before, self._socket = self._socket, listening(folder / SOCKET_NAME, _BACKLOG)
        before.close()

    def fds(self) -> list[int]:
        """What to wait for, to read."""
        return [self._socket.fileno(), *self._connections]

    def due(self) -> float | None:
        """When (time.monotonic) to call `tidy` although nothing is ready; None: never."""
        return min((c.until for c in self._connections.values() if not c.known), default=None)

    def accept(self) -> list[int]:
        """Take in a few new connections; their descriptors. Who has not said who it is makes room for who comes after
        it: what has come is to be read before. Raises SharingError, once, where there is no room for another."""
        taken: list[int] = []
        while self._room_for_another():
            try:
                found, _ = self._socket.accept()
            except OSError as e:  # none, or no more descriptors: those that wait are taken in later
                lacking, self._lacking = self._lacking, e.errno in (errno.EMFILE, errno.ENFILE)
                if self._lacking and not lacking:
                    raise SharingError("no open file is left to answer a viewer with: raise the limit (ulimit -n), or "
                                       "have the training open fewer") from None
                break
            self._lacking = False
            found.setblocking(False)
            if not same_user(found):
                found.close()
                continue
            self._connections[found.fileno()] = Connection(found)
            taken.append(found.fileno())
        return taken

    def _room_for_another(self) -> bool:
        unknown = [c for c in self._connections.values() if not c.known]
        if len(unknown) < _UNKNOWN:
            return True
        if unknown[0].until - _INTRODUCTION + _MOMENT > time.monotonic():
            return False  # it may be about to say who it is
        self.close_one(unknown[0])
        return True

    def in_turn(self, fds: list[int], take: Callable[[Connection], bool]) -> None:
        """Have packets taken of connections, one of each at a time and of each one at least, so that none has to wait
        for another's flood; `take` tells whether there was one. What is left over is ready again."""
        waiting = [c for fd in fds if (c := self._connections.get(fd)) is not None]
        left, end = _BURST, time.monotonic() + _BURST_SECONDS
        while waiting:
            waiting = [connection for connection in waiting if take(connection)]
            left -= len(waiting)
            if left < 0 or time.monotonic() > end:
                return

    def tidy(self) -> None:
        """Close what has not said in time who it is."""
        now = time.monotonic()
        for connection in list(self._connections.values()):
            if not connection.known and now > connection.until:
                self.close_one(connection)

    def connection(self, fd: int) -> Connection | None:
        return self._connections.get(fd)

    def close_one(self, connection: Connection) -> None:
        """Idempotent. The other end is told, even if a process that was forked meanwhile has the connection as well."""
        if connection.fileno() >= 0 and self._connections.get(connection.fileno()) is connection:
            del self._connections[connection.fileno()]
            connection.shut()
        connection.close()

    def close(self) -> None:
        """Idempotent."""
        for connection in list(self._connections.values()):
            self.close_one(connection)
        self._socket.close()


class Link:
    """A viewer's end, which comes back when it was cut."""

    def __init__(self, folder: Path, mailroom: Mailroom | None = None):
        """Makes no connection yet. Without a `mailroom` packets come in by the connection."""
        self._folder = folder
        self._mailroom = mailroom
        self._connection: Connection | None = None
        self._inbox: Inbox | None = None

    @property
    def up(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._connection is not None

    @property
    def inbox(self) -> str:
        """Where packets are taken: what the hello names. "": here."""
        return self._inbox.name if self._inbox is not None else ""

    def connect(self) -> bool:
        """Make the connection, if there is none. False: not now."""
        if self._connection is None:
            try:
                found = packets()
            except OSError:  # no more descriptors
                return False
            try:
                with short_path(self._folder / SOCKET_NAME) as path:
                    found.connect(path)
            except OSError:
                found.close()
                return False
            self._connection = Connection(found)
            self._inbox = self._mailroom.inbox(self._folder) if self._mailroom is not None else None
        return True

    def send(self, packet: bytes) -> bool:
        """False: it did not get through."""
        if self._connection is None:
            return False
        try:
            return self._connection.send(packet)
        except EndedError:  # what came before it was cut may still be read
            return False

    def receive(self) -> bytes | None:
        """The next packet, or None. b"": one that was too long to be read."""
        if self._inbox is not None and (packet := self._inbox.receive()) is not None:
            return packet
        if self._connection is None:
            return None
        try:
            return self._connection.receive()
        except EndedError:
            self.close()
            return None

    def close(self) -> None:
        """Idempotent. What was sent arrives."""
        if self._inbox is not None:
            self._inbox.close()
            self._inbox = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def listening(path: Path, backlog: int) -> socket.socket:
    """A socket for packets in which connections come in. Raises OSError."""
    made = packets()
    try:
        with short_path(path) as address:
            made.bind(address)
        made.listen(backlog)
    except OSError:
        made.close()
        raise
    return made


def packets() -> socket.socket:
    """A socket for packets that waits for nothing. Raises OSError."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def same_user(connection: socket.socket) -> bool:
    """Whether a process of our own user is at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", raw)[1] == os.getuid()


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A path that fits a socket's address: long ones go through a descriptor of their folder."""
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def wait_for(fds: list[int], milliseconds: int | None) -> set[int]:
    """Wait until some of these can be read from, have ended or are in error; which those are."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(milliseconds)}


class Calm:
    """Rests a moment when others wake us all the time: no flood, of whatever, may keep the GIL busy."""

    def __init__(self) -> None:
        self._since = 0.0
        self._turns = 0

    def turn(self) -> None:
        """To be called each time that others have woken us."""
        now = time.monotonic()
        if now > self._since + _WINDOW:
            self._since, self._turns = now, 0
        self._turns += 1
        if self._turns > _TURNS:
            time.sleep(_REST)


def pid_namespace() -> int:
    """In which PID namespace this process's number is its own; 0 where that cannot be told."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
