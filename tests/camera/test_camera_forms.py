"""Pictures in the forms in which other programs write them: photographs, odd streams,
unknown codecs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from packaging.version import Version
from PIL import Image, ImageOps
from support.stream_servers import StreamServer
from support.videos import H, W, jpeg, pattern, write_video
from support.wait import PATIENCE_S

from splatview.camera.open_source import source_for
from splatview.camera.pattern import read_index
from splatview.camera.sources import (
    CaptureError,
    CaptureSettings,
    NoPictureError,
    PictureSource,
    display_name,
)

_ORIENTATION = 0x112


def first_picture(path: Path) -> np.ndarray:
    source = source_for(CaptureSettings(source=str(path)))
    source.open()
    source.grab()
    picture = source.retrieve()
    source.close()
    assert picture is not None
    return picture


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_displayed_as_their_exif_says(
    tmp_path: Path, orientation: int
) -> None:
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    path = tmp_path / "photo.png"
    Image.fromarray(pattern(5)).save(path, exif=exif)
    with Image.open(path) as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    displayed = first_picture(path)
    assert displayed.flags.c_contiguous
    assert displayed.flags.writeable
    np.testing.assert_array_equal(displayed, expected)


def test_photographs_with_exif_but_no_orientation_lie_as_they_are(
    tmp_path: Path,
) -> None:
    exif = Image.Exif()
    exif[0x10F] = "a camera's maker"
    Image.fromarray(pattern(5)).save(tmp_path / "photo.png", exif=exif)
    np.testing.assert_array_equal(first_picture(tmp_path / "photo.png"), pattern(5))


def test_unknown_codec_is_a_clear_error(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4")
    path.write_bytes(path.read_bytes().replace(b"avc1", b"zzzz"))
    source = source_for(CaptureSettings(source=str(path)))
    with pytest.raises(CaptureError, match="form that FFmpeg cannot decode"):
        source.open()
    source.close()


def multipart(boundary: bytes, head: bytes) -> Callable[[socket.socket], None]:
    """Serve numbered pictures without end, each after this head."""
    return repeated(boundary, [head + jpeg(index) + b"\r\n" for index in range(4)])


def repeated(boundary: bytes, chunks: list[bytes]) -> Callable[[socket.socket], None]:
    """Serve the same parts again and again."""

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as request:
            while request.readline().strip():
                pass
        connection.sendall(
            b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary="
            + boundary
            + b"\r\n\r\n"
        )
        while True:
            for chunk in chunks:
                connection.sendall(chunk)

    return serve


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"picture\r\nContent-Type: image/jpeg\r\n\r\n", id="no dashes"),
        pytest.param(b"--picture\r\nContent-Type: image/jpg\r\n\r\n", id="image/jpg"),
        pytest.param(b"--picture\r\nX-Timestamp: 1.5\r\n\r\n", id="no type"),
        pytest.param(b"--picture\r\n\r\n", id="no head"),
    ],
)
def test_streams_whose_parts_are_not_as_ffmpeg_wants_them_are_shown(
    head: bytes,
) -> None:
    indices = []
    with StreamServer(multipart(b"picture", head)) as server:
        address = f"http://127.0.0.1:{server.port}/stream"
        source = source_for(CaptureSettings(source=address, patience=PATIENCE_S))
        source.open()
        while len(indices) < 5:
            source.grab()
            picture = source.retrieve()
            if picture is not None:
                assert picture.shape == (H, W, 3)
                indices.append(read_index(picture))
        source.close()
    first = indices[0]
    assert indices == [(first + n) % 4 for n in range(5)]


@pytest.mark.skipif(
    Version(version("opencv-python-headless")) < Version("4.13"),
    reason="OpenCV before 4.13 finds fewer pictures in such streams",
)
@pytest.mark.parametrize(
    ("too_short", "end"), [(0, b"\r\n--picture--\r\n"), (10, b"\r\n")]
)
def test_streams_that_give_one_picture_are_read_otherwise_when_opened_again(
    too_short: int, end: bytes
) -> None:
    """Each part ends the whole, or is longer than it says."""
    data = jpeg(0)
    head = b"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n"
    chunk = head % (len(data) - too_short) + data + end
    with StreamServer(repeated(b"picture", [chunk])) as server:
        address = f"http://127.0.0.1:{server.port}/stream"
        source = source_for(CaptureSettings(source=address, patience=PATIENCE_S))
        counts = [decoded_of(source, 8), decoded_of(source, 8)]
    assert counts[0] <= 1
    assert counts[1] >= 6


def decoded_of(source: PictureSource, tries: int) -> int:
    """Open a source, and count the whole pictures in this many grabs."""
    count = 0
    source.open()
    for _ in range(tries):
        try:
            source.grab()
        except NoPictureError:
            continue
        count += source.retrieve() is not None
    source.close()
    return count


def test_page_in_place_of_a_stream_is_a_clear_error() -> None:
    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as request:
            while request.readline().strip():
                pass
        connection.sendall(
            b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<img src=/stream>"
        )

    with StreamServer(serve) as server:
        address = f"http://127.0.0.1:{server.port}/"
        source = source_for(CaptureSettings(source=address, patience=PATIENCE_S))
        with pytest.raises(CaptureError, match="nothing that OpenCV reads"):
            source.open()
        source.close()


@pytest.mark.parametrize(
    ("head", "text"),
    [
        (b"401 Unauthorized\r\nWWW-Authenticate: Basic", r"401 Unauthorized; user and"),
        (b"404 Not Found", r"404 Not Found"),
        (b"503 \x1b[31mBusy", r"503 \\x1b\[31mBusy$"),
        (b"200 OK", r"nothing that OpenCV reads"),
    ],
)
def test_refusal_of_a_server_is_in_the_error(head: bytes, text: str) -> None:
    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as request:
            while request.readline().strip():
                pass
        connection.sendall(b"HTTP/1.0 " + head + b"\r\n\r\n")

    with StreamServer(serve) as server:
        address = f"http://127.0.0.1:{server.port}/video"
        source = source_for(CaptureSettings(source=address, patience=PATIENCE_S))
        with pytest.raises(CaptureError, match=text):
            source.open()
        source.close()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("rtsp://me:secret@porch:554/a", "rtsp://me:...@porch:554/a"),
        ("http://me:se@cret@porch/a", "http://me:...@porch/a"),
        ("http://porch/v.cgi?user=me&pwd=secret&n=1", "user=me&pwd=...&n=1"),
        ("http://porch/v?accessToken=secret#top", "accessToken=...#top"),
        ("http://porch:8080/me:a@b", "http://porch:8080/me:a@b"),
        (
            "a ! rtspsrc location=rtsp://me:secret@porch/a ! b",
            "rtsp://me:...@porch/a ! b",
        ),
    ],
)
def test_messages_hold_no_passwords(source: str, text: str) -> None:
    assert text in display_name(source)
    assert "cret" not in display_name(source)
