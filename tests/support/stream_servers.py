"""Videos, and small servers of them: MJPEG over HTTP, as network cameras have it."""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from splatview.camera.pattern import draw

av = pytest.importorskip("av")  # the extra `camera`
W = 320
H = 240


def pattern(index: int, width: int = W, height: int = H) -> NDArray[np.uint8]:
    """Draw the test picture of this number, (height, width, 3) RGB.

    Its right third is red, so that the order of the channels shows.
    """
    image = draw(index, width, height)
    image[height // 8 :, 2 * width // 3 :] = 200, 30, 40
    return image


def video(
    path: Path,
    times: list[float] | None = None,
    size: tuple[int, int] = (W, H),
    first: int = 0,
    **options: Any,
) -> Path:
    """Write a file of `pattern`s in H.264.

    Args:
        path: The file.
        times: Seconds of the pictures, where they do not come evenly.
        size: Width and height.
        first: Number of the first picture.
        options: `pixel_aspect`, a Fraction; `matrix`, of the display.
    """
    muxing = {}
    if path.suffix == ".mp4":
        # A server of whole files alone needs the index first.
        muxing["movflags"] = "faststart"
    count = 12
    if times is not None:
        count = len(times)
    with av.open(str(path), "w", options=muxing) as container:
        stream = container.add_stream(
            "libx264", rate=30, options={"crf": "8", "preset": "ultrafast", "g": "1"}
        )
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        if "pixel_aspect" in options:
            stream.codec_context.sample_aspect_ratio = options["pixel_aspect"]
        if "matrix" in options:
            stream.set_display_matrix(options["matrix"])
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(pattern(first + i, *size), "rgb24")
            if times is not None:
                frame.pts = round(times[i] * 90000)
                frame.time_base = Fraction(1, 90000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def damage(path: Path, *indices: int) -> Path:
    """Overwrite packets of a video file with zeros."""
    with av.open(str(path)) as container:
        packets = [p for p in container.demux(video=0) if p.size]
    raw = bytearray(path.read_bytes())
    for index in indices:
        packet = packets[index]
        raw[packet.pos : packet.pos + packet.size] = bytes(packet.size)
    path.write_bytes(raw)
    return path


@contextlib.contextmanager
def served_folder(folder: Path) -> Iterator[str]:
    """Serve the files of a folder by HTTP; yields the address of the folder."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class StreamServer(socketserver.ThreadingTCPServer):
    """A server on a port of its own; `serve` says what one connection gets."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, serve: Callable[[socket.socket], None], port: int = 0):
        super().__init__(("127.0.0.1", port), socketserver.BaseRequestHandler)
        self.port: int = self.server_address[1]
        self._serve = serve
        self._open = set[socket.socket]()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        # The client may close the connection at any time.
        with contextlib.suppress(OSError):
            self._serve(request)
        self._open.discard(request)

    def server_close(self) -> None:
        """Refuse connections and break open ones, as a camera that loses its network.

        Idempotent.
        """
        self.shutdown()
        self._thread.join()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()


def mjpeg(
    rate: float,
    pictures: int | None = None,
    encoded: Callable[[int], bytes] | None = None,
) -> Callable[[socket.socket], None]:
    """Return a server of numbered pictures as JPEG.

    Args:
        rate: Pictures a second.
        pictures: After so many the server falls silent.
        encoded: Makes other bytes than `jpeg`.
    """
    encode = encoded or jpeg

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as request:
            while request.readline().strip():
                pass
        connection.sendall(
            b"HTTP/1.0 200 OK\r\n"
            b"Content-Type: multipart/x-mixed-replace; boundary=picture\r\n\r\n"
        )
        for index in itertools.islice(itertools.count(), pictures):
            data = encode(index)
            connection.sendall(
                b"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: "
                b"%d\r\n\r\n%s\r\n" % (len(data), data)
            )
            time.sleep(1 / rate)
        connection.recv(1)

    return serve


def jpeg(index: int, width: int = W, height: int = H) -> bytes:
    """Encode the test picture of this number as a JPEG file."""
    file = io.BytesIO()
    Image.fromarray(pattern(index, width, height)).save(file, "JPEG", quality=95)
    return file.getvalue()
