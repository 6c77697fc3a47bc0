"""Videos, and small servers of them, as network cameras are: MJPEG over HTTP, H.264 over RTSP."""

from __future__ import annotations

import base64
import contextlib
import io
import socket
import socketserver
import struct
import threading
import time
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from splatview.camera.pattern import PatternSource
from splatview.camera.sources import Buffers, SourceSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

av = pytest.importorskip("av")  # the extra `camera`
W, H = 320, 240


def pattern(number: int, width: int = W, height: int = H) -> NDArray[np.uint8]:
    """The test picture of this number, (height, width, 3) RGB, its right third red: so that colours are told apart."""
    source = PatternSource(SourceSettings(source="test", width=width, height=height))
    source.open()
    source._number = number
    image = source.retrieve(Buffers())
    image[height // 8 :, 2 * width // 3 :] = 200, 30, 40
    return image


def video(path: Path, pictures: int = 12, rate: int = 30, times: list[float] | None = None, **metadata: str) -> Path:
    """A file of `pattern`s in H.264; `times` in seconds, where they do not come evenly."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=rate, options={"crf": "8", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = W, H, "yuv420p"
        stream.metadata.update(metadata)
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
        self.accepted = 0
        self._open: set[socket.socket] = set()
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer.accepted += 1
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


def _until_blank_line(connection: socket.socket) -> bytes:
    request = b""
    while b"\r\n\r\n" not in request:
        part = connection.recv(4096)
        if not part:
            raise ConnectionResetError
        request += part
    return request


def mjpeg(rate: float = 30.0, pictures: int | None = None, then_wait: bool = False) -> Callable[[socket.socket], None]:
    """Serve numbered pictures as JPEG; after so many, end, or say nothing any more."""

    def serve(connection: socket.socket) -> None:
        _until_blank_line(connection)
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=picture\r\n\r\n")
        for number in _numbers(pictures, rate):
            file = io.BytesIO()
            Image.fromarray(pattern(number)).save(file, "JPEG", quality=95)
            data = file.getvalue()
            connection.sendall(b"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n%s\r\n"
                               % (len(data), data))
        if then_wait:
            connection.recv(1)

    return serve


def _numbers(pictures: int | None, rate: float) -> Iterator[int]:
    number = 0
    while pictures is None or number < pictures:
        yield number
        number += 1
        time.sleep(1 / rate)


def rtsp(rate: float = 30.0, pictures: int | None = None, password: str = "") -> Callable[[socket.socket], None]:
    """Serve numbered pictures in H.264 by RTSP, interleaved in its connection as RTP."""

    def serve(connection: socket.socket) -> None:
        while True:
            text = _until_blank_line(connection).decode()
            method, url = text.split()[:2]
            number = next(line for line in text.splitlines() if line.lower().startswith("cseq")).split(":")[1].strip()
            head, body = f"RTSP/1.0 200 OK\r\nCSeq: {number}\r\n", ""
            wanted = f"Authorization: Basic {base64.b64encode(password.encode()).decode()}"
            if method == "OPTIONS":
                head += "Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n"
            elif password and wanted not in text:
                head = f'RTSP/1.0 401 Unauthorized\r\nCSeq: {number}\r\nWWW-Authenticate: Basic realm="camera"\r\n'
            elif method == "DESCRIBE":
                body = ("v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n"
                        "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\n"
                        "a=control:track\r\n")
                head += f"Content-Base: {url}/\r\nContent-Type: application/sdp\r\nContent-Length: {len(body)}\r\n"
            elif method == "SETUP":
                head += "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nSession: 7;timeout=60\r\n"
            elif method == "PLAY":
                head += "Session: 7\r\nRange: npt=0.000-\r\n"
            connection.sendall((head + "\r\n" + body).encode())
            if method == "PLAY":
                for packet in _rtp(_numbers(pictures, rate), rate):
                    connection.sendall(b"$\0" + struct.pack(">H", len(packet)) + packet)
                return
            if method == "TEARDOWN":
                return

    return serve


def _rtp(numbers: Iterator[int], rate: float) -> Iterator[bytes]:
    """RTP packets (RFC 6184) of the pictures of these numbers."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt = W, H, "yuv420p"
    encoder.time_base = Fraction(1, 90000)
    encoder.options = {"crf": "8", "preset": "ultrafast", "tune": "zerolatency", "g": "10"}
    sequence = 0
    for number in numbers:
        frame = av.VideoFrame.from_ndarray(pattern(number), format="rgb24")
        frame.pts, frame.time_base = round(number * 90000 / rate), encoder.time_base
        for packet in encoder.encode(frame):
            units = [u for u in bytes(packet).replace(b"\0\0\0\1", b"\0\0\1").split(b"\0\0\1") if u]
            for i, unit in enumerate(units):
                for part, last in _parts(unit):
                    mark = 0x80 if last and i == len(units) - 1 else 0
                    yield struct.pack(">BBHII", 0x80, 96 | mark, sequence & 0xFFFF, frame.pts & 0xFFFFFFFF, 1) + part
                    sequence += 1


def _parts(unit: bytes, most: int = 1400) -> Iterator[tuple[bytes, bool]]:
    if len(unit) <= most:
        yield unit, True
        return
    pieces = [unit[i : i + most] for i in range(1, len(unit), most)]
    for i, piece in enumerate(pieces):
        ends = (0x80 if i == 0 else 0) | (0x40 if i == len(pieces) - 1 else 0)
        yield bytes([unit[0] & 0xE0 | 28, ends | unit[0] & 0x1F]) + piece, i == len(pieces) - 1
