"""Videos, and small servers of them: MJPEG over HTTP, as network cameras have it."""

from __future__ import annotations

import contextlib
import io
import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from splatview.camera.pattern import draw

av = pytest.importorskip("av")  # the extra `camera`
W, H = 320, 240


def pattern(number: int, width: int = W, height: int = H) -> NDArray[np.uint8]:
    """The test picture of this number, (height, width, 3) RGB, its right third red: so that colours are told apart."""
    image = draw(number, width, height)
    image[height // 8 :, 2 * width // 3 :] = 200, 30, 40
    return image


def video(path: Path, times: list[float] | None = None) -> Path:
    """A file of `pattern`s in H.264; `times` in seconds, where they do not come evenly."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx264", rate=30, options={"crf": "8", "preset": "ultrafast"}
        )
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        for i in range(12 if times is None else len(times)):
            frame = av.VideoFrame.from_ndarray(pattern(i), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = round(times[i] * 90000), Fraction(1, 90000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


class StreamServer(socketserver.ThreadingTCPServer):
    """A server on a port of its own; `serve` says what one connection gets."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, serve: Callable[[socket.socket], None], port: int = 0):
        super().__init__(("127.0.0.1", port), socketserver.BaseRequestHandler)
        self.port: int = self.server_address[1]
        self._serve, self._open = serve, set[socket.socket]()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        with contextlib.suppress(OSError):  # the client goes away at any time
            self._serve(request)
        self._open.discard(request)

    def server_close(self) -> None:
        """Refuse connections and break those that are open, as a camera does that loses its network. Idempotent."""
        self.shutdown()
        self._thread.join()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()


def mjpeg(rate: float, pictures: int | None = None) -> Callable[[socket.socket], None]:
    """Serve numbered pictures as JPEG; after so many, say nothing any more."""

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as request:
            while request.readline().strip():
                pass
        connection.sendall(
            b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=picture\r\n\r\n"
        )
        for number in itertools.count() if pictures is None else range(pictures):
            file = io.BytesIO()
            Image.fromarray(pattern(number)).save(file, "JPEG", quality=95)
            data = file.getvalue()
            connection.sendall(
                b"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n"
                % (len(data), data)
            )
            time.sleep(1 / rate)
        connection.recv(1)

    return serve
