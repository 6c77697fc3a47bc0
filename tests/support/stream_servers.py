"""Videos, and small servers of them: MJPEG over HTTP, as network cameras have it."""

from __future__ import annotations

import contextlib
import io
import itertools
import socket
import socketserver
import threading
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from splatview.camera.pattern import draw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

av = pytest.importorskip("av")  # the extra `camera`
W, H = 320, 240


def pattern(number: int, width: int = W, height: int = H) -> NDArray[np.uint8]:
    """The test picture of this number, (height, width, 3) RGB, its right third red: so that colours are told apart."""
    image = draw(number, width, height)
    image[height // 8 :, 2 * width // 3 :] = 200, 30, 40
    return image


def video(path: Path, pictures: int = 12, rate: int = 30, times: list[float] | None = None) -> Path:
    """A file of `pattern`s in H.264; `times` in seconds, where they do not come evenly."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"crf": "8", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        for i in range(pictures):
            frame = av.VideoFrame.from_ndarray(pattern(i), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = round(times[i] * 90000), Fraction(1, 90000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


class StreamServer:
    """A server on a port of its own; `serve` says what one connection gets."""

    def __init__(self, serve: Callable[[socket.socket], None], port: int = 0):
        self._open: set[socket.socket] = set()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer._open.add(self.request)
                with contextlib.suppress(OSError):  # who listens goes away at any time
                    serve(self.request)
                outer._open.discard(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """As when a camera loses its network: nobody listens, and what is open breaks."""
        self._server.shutdown()
        self._thread.join()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def __enter__(self) -> StreamServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def mjpeg(rate: float = 30.0, pictures: int | None = None, then_wait: bool = False) -> Callable[[socket.socket], None]:
    """Serve numbered pictures as JPEG; after so many, end, or say nothing any more."""

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as request:
            while request.readline().strip():
                pass
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=picture\r\n\r\n")
        for number in itertools.count() if pictures is None else range(pictures):
            file = io.BytesIO()
            Image.fromarray(pattern(number)).save(file, "JPEG", quality=95)
            data = file.getvalue()
            connection.sendall(b"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n"
                               % (len(data), data))
            time.sleep(1 / rate)
        if then_wait:
            connection.recv(1)

    return serve
