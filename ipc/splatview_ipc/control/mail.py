"""The trainer's announcements, handles of memory among them, over ZeroMQ: PUSH in the trainer, PULL in the viewer.

The viewer binds, in the run's folder, and names its socket in its Hello; the trainer connects. A ZeroMQ socket that
listens would put the training at the mercy of others: libzmq (4.3.5) ends the whole process when a client connects
while no open file is left, and accepts connections without number.

Nothing waits: full queues drop, sockets do not linger. The process's context ends with its last socket; a forked child
has its own.
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

_FILES = 24
"""Open files that a context with a socket takes, 9, and some room for other threads: libzmq aborts without them."""
_QUEUED = 64
"""Messages queued for a viewer that does not read."""


def new_socket_name() -> str:
    """Return the name of a socket in a run's folder."""
    return f"in-{secrets.token_hex(4)}"


def endpoint(folder: Path, name: str) -> str:
    """Return the ZeroMQ address of a socket in a run's folder."""
    return f"ipc://{folder / name}"


class _Process:
    """The context of one process and its open sockets."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.context: zmq.Context[zmq.Socket[bytes]] | None = None
        self.open: set[_End] = set()


_processes = [_Process()]
"""This process's, behind those of its parents, which are never touched, nor collected."""


class _End:
    """One socket of the process's context."""

    _kind: ClassVar[int]

    def __init__(self, address: str):
        """Raises SharingError."""
        if _processes[-1].pid != os.getpid():
            _processes.append(_Process())
        process = _processes[-1]
        self._process = process
        with process.lock:
            try:
                most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                used = len(
                    os.listdir("/proc/self/fd")
                )  # not opened to see: the training may need the rest right now
                if most != resource.RLIM_INFINITY and used + _FILES > most:
                    raise OSError(
                        f"{used} open files of {most}: raise the limit (ulimit -n)"
                    )
                if process.context is None:
                    process.context = zmq.Context()
                self._socket = process.context.socket(self._kind)
                process.open.add(self)
                self._socket.setsockopt(zmq.LINGER, 0)
                self._socket.setsockopt(zmq.SNDHWM, _QUEUED)
                self._socket.setsockopt(zmq.RCVHWM, _QUEUED)
                self._socket.setsockopt(zmq.MAXMSGSIZE, limits.MAX_MESSAGE)
                (self._socket.bind if self._kind == zmq.PULL else self._socket.connect)(
                    address
                )
            except (OSError, zmq.ZMQError) as e:
                self._close()
                raise SharingError(f"no ZeroMQ socket at {address}: {e}") from None

    def close(self) -> None:
        """Idempotent. The sockets of a forked child's parent stay as they are."""
        if self._process.pid == os.getpid():
            with self._process.lock:
                self._close()

    def _close(self) -> None:
        process = self._process
        if self in process.open:
            process.open.discard(self)
            self._socket.close(0)
        if not process.open and process.context is not None:
            process.context.term()  # returns at once: no socket lingers
            process.context = None


class Pull(_End):
    """The viewer's end, bound."""

    _kind = zmq.PULL

    def receive(self) -> bytes | None:
        """Return the next message; None: no message yet; b"": one of several parts, which no trainer sends."""
        try:
            parts = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.ZMQError:
            return None
        return parts[0] if len(parts) == 1 else b""


class Push(_End):
    """The trainer's end, connected sooner or later."""

    _kind = zmq.PUSH

    def send(self, packet: bytes) -> bool:
        """Send a message. False: the queue is full."""
        try:
            self._socket.send(packet, zmq.NOBLOCK)
            return True
        except zmq.ZMQError:
            return False
