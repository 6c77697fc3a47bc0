"""Small servers of pictures: files over HTTP, and MJPEG as network cameras send it."""

from __future__ import annotations

import contextlib
import functools
import http.server
import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support.videos import jpeg

_POLL_SECONDS = 0.01
"""Seconds after which a server notices that it is to end."""


@contextlib.contextmanager
def served_folder(folder: Path) -> Iterator[str]:
    """Serve the files of a folder by HTTP; yields the address of the folder."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class StreamServer(socketserver.ThreadingTCPServer):
    """A TCP server that runs a handler for each connection, in threads of its own."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, handle: Callable[[socket.socket], None], port: int = 0):
        """Start to serve.

        Args:
            handle: Sends what a connection gets.
            port: 0: any free one.
        """
        super().__init__(("127.0.0.1", port), socketserver.BaseRequestHandler)
        self.port: int = self.server_address[1]
        self._handle = handle
        self._connections = set[socket.socket]()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_POLL_SECONDS,), daemon=True
        )
        self._thread.start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        # The client may close the connection at any time.
        with contextlib.suppress(OSError):
            self._handle(request)
        self._connections.discard(request)

    def server_close(self) -> None:
        """Refuse connections and break open ones, as a camera that loses its network.

        It may be called twice.
        """
        self.shutdown()
        self._thread.join()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()


def mjpeg_handler(
    rate: float,
    pictures: int | None = None,
    encode: Callable[[int], bytes] = jpeg,
) -> Callable[[socket.socket], None]:
    """Return a handler for `StreamServer` that sends numbered pictures as MJPEG.

    Args:
        rate: Pictures a second.
        pictures: The number of pictures, after which the server falls silent; None: it
            never does.
        encode: Makes the bytes of a picture from its number.
    """

    def handle(connection: socket.socket) -> None:
        _read_request(connection)
        indices = itertools.count() if pictures is None else range(pictures)
        connection.sendall(
            b"HTTP/1.0 200 OK\r\n"
            b"Content-Type: multipart/x-mixed-replace; boundary=picture\r\n\r\n"
        )
        for index in indices:
            data = encode(index)
            connection.sendall(
                b"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: "
                b"%d\r\n\r\n%s\r\n" % (len(data), data)
            )
            time.sleep(1 / rate)
        # Silent, but connected, until the client goes.
        connection.recv(1)

    return handle


def _read_request(connection: socket.socket) -> None:
    """Read a request up to the empty line that ends it."""
    with connection.makefile("rb") as request:
        while request.readline().strip():
            pass
