"""A slow line between a page and its server, for tests."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CHUNK = 2048


class SlowLine:
    """Passes connections on to a port of this machine, downwards at a limited rate."""

    def __init__(self, port: int, bytes_per_second: float) -> None:
        self.bytes_per_second = bytes_per_second
        """The rate of all connections, each for itself."""
        self.passed = 0
        """Bytes that were passed downwards."""
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        """End all connections and threads."""
        for open_socket in self._sockets:
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        for thread in self._threads:
            thread.join()

    def _start(self, function: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=function, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                page, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                # Little waits on the way, as on a line without large buffers.
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
                self._sockets += [page, server]
                self._start(self._pass, page, server, False)
                self._start(self._pass, server, page, True)

    def _pass(self, source: socket.socket, to: socket.socket, is_slow: bool) -> None:
        """Pass bytes on until one side ends."""
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                to.sendall(data)
                if is_slow:
                    self.passed += len(data)
                    time.sleep(len(data) / self.bytes_per_second)
        for open_socket in (source, to):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def slow_line(port: int, bytes_per_second: float) -> Iterator[SlowLine]:
    """Yield a line to a port of this machine."""
    line = SlowLine(port, bytes_per_second)
    try:
        yield line
    finally:
        line.close()
