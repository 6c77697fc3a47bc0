"""ZeroMQ's context, made only where there is room for it.

libzmq ends the whole process (abort) when it gets no thread or no descriptor at the wrong moment, which no training may
die of. So both are tried first.
"""

from __future__ import annotations

import os
import threading

import zmq

from ipc import limits
from ipc.errors import SharingError

_DESCRIPTORS = 24
"""What a context with a socket takes, 9, and a viewer or two; the rest is room for other threads."""
_THREADS = 3
"""What it takes, and the one that answers viewers."""


def open_context() -> zmq.Context:
    """Raises SharingError where this process may have no more open files or threads."""
    _try_descriptors()
    _try_threads()
    return zmq.Context()


def socket_options(socket: zmq.Socket) -> None:
    """What every socket here needs: no lingering at exit, short queues, no large messages."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 64)
    socket.setsockopt(zmq.RCVHWM, 256)
    socket.setsockopt(zmq.MAXMSGSIZE, limits.MAX_MESSAGE)


def _try_descriptors() -> None:
    fds: list[int] = []
    try:
        fds.append(os.open("/", os.O_PATH | os.O_CLOEXEC))
        fds.extend(os.dup(fds[0]) for _ in range(_DESCRIPTORS - 1))
    except OSError as e:
        raise SharingError(f"no more open files ({e.strerror}): viewers need {_DESCRIPTORS}; raise the limit "
                           "(ulimit -n)") from None
    finally:
        for fd in fds:
            os.close(fd)


def _try_threads() -> None:
    over = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(_THREADS):
            thread = threading.Thread(target=over.wait, name="splatview", daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as e:
        raise SharingError(f"no more threads ({e}): raise the limit (ulimit -u), or have other programs use fewer "
                           "of them") from None
    finally:
        over.set()
        for thread in started:
            thread.join()
