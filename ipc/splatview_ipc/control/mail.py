"""What a trainer tells its viewers, handles of GPU memory among it, goes over ZeroMQ: to sockets that viewers bind.

A viewer makes an inbox in the run's folder and names it in its hello (`ipc.channel`); the trainer connects to it. It is
this way round because a ZeroMQ socket that listens would put the training at others' mercy: libzmq (4.3.5) ends the
whole process when somebody connects while there is no room for another open file, takes connections without number, and
collects the parts of a message without end from whoever comes. From one that connects, it collects the parts that the
other end sends as well: that is left to a process of the same user which greets the trainer as a viewer does and is
written to do harm (SECURITY.md).

Where ZeroMQ is not to be had (no more threads or open files) the same messages go through the channel.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import threading
from typing import TYPE_CHECKING, TypeVar

import zmq

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.run_folder import SOCKET_PATH_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DESCRIPTORS = 24
"""What a context with a socket takes, 9, and some more; the rest is room for other threads."""
_THREADS = 2
"""What a context takes."""
_QUEUED = 64
"""Messages that wait for a viewer which does not read, at most."""


class Mailroom:
    """A process's part in it: a ZeroMQ context, which is there as long as there are boxes. For one thread."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._boxes = 0

    def inbox(self, folder: Path) -> Inbox | None:
        """A new inbox in a run's folder; None where there can be none."""
        return self._box(Inbox, folder)

    def outbox(self, inbox: Path) -> Outbox | None:
        """What brings messages to an inbox; None where there can be none."""
        return self._box(Outbox, inbox)

    def _box(self, kind: type[_Box], path: Path) -> _Box | None:
        try:
            _try_descriptors()
            if self._context is None:
                _try_threads()
                self._context = _made(zmq.Context)
            self._boxes += 1
            try:
                return kind(self, self._context, path)
            except SharingError:
                self.returned()
                raise
        except SharingError:
            return None

    def returned(self) -> None:
        """A box was closed."""
        self._boxes -= 1
        if not self._boxes and self._context is not None:
            self._context.term()  # waits for nothing: no socket lingers
            self._context = None


class Inbox:
    """A viewer's end. It listens until the first message has come: nobody else is to come in."""

    def __init__(self, room: Mailroom, context: zmq.Context[zmq.Socket[bytes]], folder: Path):
        """Raises SharingError."""
        self.name = f"inbox-{secrets.token_hex(8)}"
        self._room = room
        self._path: Path | None = folder / self.name
        self._socket, self._folder_fd = _socket(context, self._path, binds=True)

    def receive(self) -> bytes | None:
        """The next message; None: there is none yet; b"": one that nobody of ours sends. Never waits."""
        try:
            parts = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.ZMQError:
            return None
        self._shut()
        return parts[0] if len(parts) == 1 else b""

    def _shut(self) -> None:
        """Nobody comes in any more. (libzmq's unbind would end the connection as well.)"""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            self._path = None

    def close(self) -> None:
        """Idempotent."""
        if not self._socket.closed:
            self._shut()
            self._socket.close(0)
            _close(self._folder_fd)
            self._room.returned()


class Outbox:
    """The trainer's end."""

    def __init__(self, room: Mailroom, context: zmq.Context[zmq.Socket[bytes]], inbox: Path):
        """Raises SharingError, also when the inbox is not there: ZeroMQ would go on trying, and tell nobody."""
        if not inbox.is_socket():
            raise SharingError(f"{inbox}: no inbox")
        self._room = room
        self._inbox = inbox
        self._socket, self._folder_fd = _socket(context, inbox, binds=False)

    def send(self, message: bytes) -> bool:
        """False: too much is on its way already. Never waits."""
        try:
            self._socket.send(message, zmq.NOBLOCK)
            return True
        except zmq.ZMQError:
            return False

    def close(self) -> None:
        """What a viewer that was killed has left is taken away. Idempotent."""
        if not self._socket.closed:
            self._socket.close(0)
            _close(self._folder_fd)
            with contextlib.suppress(OSError):
                self._inbox.unlink()
            self._room.returned()


_Box = TypeVar("_Box", Inbox, Outbox)
_Made = TypeVar("_Made")


def _socket(context: zmq.Context[zmq.Socket[bytes]], path: Path, *,
            binds: bool) -> tuple[zmq.Socket[bytes], int]:
    """A socket, and a descriptor to close after it, or -1: a path that is too long for a socket is reached through one
    of its folder."""
    fd = -1
    made = _made(context.socket, zmq.PULL if binds else zmq.PUSH)
    try:
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.SNDHWM, _QUEUED)
        made.setsockopt(zmq.RCVHWM, _QUEUED)
        made.setsockopt(zmq.MAXMSGSIZE, limits.MAX_MESSAGE)
        address = f"ipc://{path}"
        if len(os.fsencode(path)) > SOCKET_PATH_MAX:
            fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            address = f"ipc:///proc/self/fd/{fd}/{path.name}"
        (made.bind if binds else made.connect)(address)
    except (OSError, zmq.ZMQError) as e:
        made.close(0)
        _close(fd)
        raise SharingError(f"{path}: {e}") from None
    return made, fd


def _made(make: Callable[..., _Made], *args: int) -> _Made:
    """A context or socket. Raises SharingError."""
    try:
        return make(*args)
    except zmq.ZMQError as e:
        raise SharingError(f"ZeroMQ is not to be had: {e}") from None


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)


def _try_descriptors() -> None:
    """Raises SharingError where libzmq might find no room for an open file, which it may not survive. They are counted,
    not opened: what is left may be what the training opens at this very moment."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        used = len(os.listdir("/proc/self/fd"))
    except OSError as e:
        raise SharingError(f"no more open files ({e.strerror}): raise the limit (ulimit -n)") from None
    if most != resource.RLIM_INFINITY and used + _DESCRIPTORS > most:
        raise SharingError(f"{used} open files of {most}: raise the limit (ulimit -n)")


def _try_threads() -> None:
    """Raises SharingError where libzmq might get no thread, which it does not survive."""
    over = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(_THREADS):
            thread = threading.Thread(target=over.wait, name="splatview", daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as e:
        raise SharingError(f"no more threads ({e}): raise the limit (ulimit -u)") from None
    finally:
        over.set()
        for thread in started:
            thread.join()
