"""The trainer's announcements, handles of memory among them, over ZeroMQ.

The sockets are PUSH in the trainer, PULL in the viewer. The viewer binds, in the run's
folder, and names its socket in its Hello; the trainer connects. A ZeroMQ socket that
listens would put the training at the mercy of others: libzmq (4.3.5) ends the whole
process when a client connects while no open file is left, and accepts connections
without number.

Nothing waits: full queues drop, sockets do not linger. The process's context ends with
its last socket; a forked child has its own.
"""

from __future__ import annotations

import os
import resource
import secrets
import threading
from typing import TYPE_CHECKING, ClassVar

import zmq

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError

if TYPE_CHECKING:
    from pathlib import Path

_FILES_NEEDED = 24
"""Open files that a context with a socket takes, 9, and some spare ones for other
threads: libzmq aborts without them."""
_MAX_QUEUED = 64
"""Messages queued for a viewer that does not read."""


def new_socket_name() -> str:
    """Return a new name for a socket in a run's folder."""
    return f"in-{secrets.token_hex(4)}"


def endpoint(folder: Path, name: str) -> str:
    """Return the ZeroMQ address of a socket in a run's folder."""
    return f"ipc://{folder / name}"


class _Process:
    """The ZeroMQ context of one process and its open sockets."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.context: zmq.Context[zmq.Socket[bytes]] | None = None
        self.open_ends: set[_End] = set()


_processes = [_Process()]
"""This process's, after those of its parents, which are never touched, nor
collected."""


class _End:
    """One socket of the process's context."""

    _kind: ClassVar[int]

    def __init__(self, address: str):
        """Open the socket at an address. Raises SharingError."""
        if _processes[-1].pid != os.getpid():
            _processes.append(_Process())
        self._process = _processes[-1]
        with self._process.lock:
            try:
                self._open(address)
            except (OSError, zmq.ZMQError) as e:
                self._close()
                raise SharingError(f"no ZeroMQ socket at {address}: {e}") from None

    def _open(self, address: str) -> None:
        """Open the socket, and bind or connect it. Under the lock."""
        process = self._process
        _check_open_files()
        if process.context is None:
            process.context = zmq.Context()
        self._socket = process.context.socket(self._kind)
        process.open_ends.add(self)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, _MAX_QUEUED)
        self._socket.setsockopt(zmq.RCVHWM, _MAX_QUEUED)
        self._socket.setsockopt(zmq.MAXMSGSIZE, limits.MAX_MESSAGE)
        if self._kind == zmq.PULL:
            self._socket.bind(address)
        else:
            self._socket.connect(address)

    def close(self) -> None:
        """Close the socket. Idempotent.

        The sockets of a forked child's parent stay as they are.
        """
        if self._process.pid == os.getpid():
            with self._process.lock:
                self._close()

    def _close(self) -> None:
        """Close the socket, and the context after the last one. Under the lock."""
        process = self._process
        if self in process.open_ends:
            process.open_ends.discard(self)
            self._socket.close(0)
        if not process.open_ends and process.context is not None:
            # Returns at once: no socket lingers.
            process.context.term()
            process.context = None


def _check_open_files() -> None:
    """Raise OSError unless this process may open the files that a socket needs.

    Nothing is opened to find out: the training may need the rest right now.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    if limit != resource.RLIM_INFINITY and used + _FILES_NEEDED > limit:
        raise OSError(f"{used} open files of {limit}: raise the limit (ulimit -n)")


class Pull(_End):
    """The viewer's end, bound."""

    _kind = zmq.PULL

    def receive(self) -> bytes | None:
        """Return the next message; None if there is none yet.

        A message of several parts, which no trainer sends, is returned as b"".
        """
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.ZMQError:
            return None
        return frames[0] if len(frames) == 1 else b""


class Push(_End):
    """The trainer's end, which connects as soon as it can."""

    _kind = zmq.PUSH

    def send(self, packet: bytes) -> bool:
        """Send a message; return False if the queue is full."""
        try:
            self._socket.send(packet, zmq.NOBLOCK)
            return True
        except zmq.ZMQError:
            return False
