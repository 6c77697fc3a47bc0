"""Sources of pictures: one suite over all of them, and what each has of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import camera_cases
from support.stream_servers import StreamServer, W, mjpeg, video
from support.wait import PATIENCE, turns

from splatview.camera.pattern import PatternSource, number_of, square
from splatview.camera.sources import (
    Buffers,
    CameraError,
    HopelessError,
    SourceSettings,
    check,
    fitted,
    kind_of,
    shown,
    source_for,
)
from splatview_ipc.system import optional_packages as extras

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from splatview.camera import sources

SOURCES = [(kind, reader) for kind in ("file", "http") for reader in ("pyav", "opencv")]


@pytest.fixture(params=SOURCES, ids="-".join)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A SOURCE, and the library that reads it."""
    kind, reader = request.param
    if kind == "file":
        yield str(video(tmp_path / "a video.mp4")), reader
    else:
        with StreamServer(mjpeg(100)) as server:
            yield f"http://127.0.0.1:{server.port}/camera", reader


def test_pictures(address: tuple[str, Any]) -> None:
    camera_cases.check_pictures(source_for(SourceSettings(source=address[0], reader=address[1], patience=PATIENCE)))


def test_life(address: tuple[str, Any]) -> None:
    settings = SourceSettings(source=address[0], reader=address[1], patience=PATIENCE)
    camera_cases.check_life(source_for(settings), shown(address[0]))


def test_size(address: tuple[str, Any]) -> None:
    camera_cases.check_size(source_for(SourceSettings(source=address[0], reader=address[1], width=W // 2, height=1000,
                                                      patience=PATIENCE)))


@pytest.mark.parametrize("reader", ["pyav", "opencv"])
def test_a_file_ends_and_its_times_are_its_own(tmp_path: Path, reader: sources.Reader) -> None:
    times = [0.0, 0.1, 0.2, 0.5, 1.2, 1.3]
    source = source_for(SourceSettings(source=str(video(tmp_path / "a.mp4", 6, 30, times)), reader=reader))
    source.open()
    assert source.recorded
    read = []
    while (at := source.grab()) is not None:
        read.append((round(at, 2), number_of(source.retrieve(Buffers()))))
    assert read == [(at, i) for i, at in enumerate(times)]
    assert source.grab() is None
    source.close()


def test_what_a_test_picture_shows() -> None:
    camera_cases.check_life(source_for(SourceSettings(source="test")), "a test picture")
    source = PatternSource(SourceSettings(source="test", width=640, height=360))
    source.open()
    for number in (0, 1, 2, 77, 2**24 - 1):
        source._number = number
        image = source.retrieve(Buffers())
        assert number_of(image) == number
        x0, y0, x1, y1 = square(number, 640, 360)
        assert (image[y0:y1, x0:x1] == 255).all() and (image == 255).all(2).sum() == (x1 - x0) * (y1 - y0)
    small = PatternSource(SourceSettings(source="test", width=24, height=3))
    small.open()
    small._number = 1000
    assert number_of(small.retrieve(Buffers())) == 1000


def test_what_a_source_names(tmp_path: Path) -> None:
    odd = tmp_path / "a!b.mp4"
    odd.touch()
    for source, kind in (("test", "test"), ("0", "device"), ("/dev/video3", "device"), ("/dev/null", "device"),
                         ("rtsp://a/b", "network"), ("HTTP://a/b", "network"), ("a.mp4", "file"),
                         ("file:///a/b.mp4", "file"), ("videotestsrc ! appsink", "pipeline"), (str(odd), "file")):
        assert kind_of(source) == kind, source


def test_passwords_are_not_shown() -> None:
    for address, words in (("rtsp://me:secret@camera/a", "rtsp://me:...@camera/a"), ("a.mp4", "a.mp4"),
                           ("http://me@camera/a:b@c", "http://me@camera/a:b@c")):
        assert shown(address) == words


def test_what_can_never_be_read_is_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no video")
    for source, words in (("", "SOURCE is empty"), (str(tmp_path), "is a folder"), ("nosuch.mp4", "no file nosuch.mp4"),
                          ("ftp://a/b", r"'ftp' is no protocol.*rtsp"), ("/dev/nosuch", "no camera /dev/nosuch"),
                          ("/dev/null", "/dev/null is no V4L2 device")):
        with pytest.raises(HopelessError, match=words):
            check(SourceSettings(source=source))
    with pytest.raises(HopelessError, match="only OpenCV reads a GStreamer pipeline"):
        check(SourceSettings(source="a ! b", reader="pyav"))
    for reader in ("pyav", "opencv"):
        source = source_for(SourceSettings(source=str(tmp_path / "a.mp4"), reader=reader))  # type: ignore[arg-type]
        with pytest.raises(HopelessError, match="no video that"):
            source.open()
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    check(SourceSettings(source="test"))
    with pytest.raises(HopelessError, match=r"needs PyAV or OpenCV.*pip install 'splatview\[camera\]'"):
        check(SourceSettings(source=str(tmp_path / "a.mp4")))


@pytest.mark.parametrize("reader", ["pyav", "opencv"])
def test_a_server_that_is_not_there_may_come(reader: sources.Reader) -> None:
    with StreamServer(mjpeg()) as server:
        port = server.port
    source = source_for(SourceSettings(source=f"http://127.0.0.1:{port}/x", reader=reader, patience=PATIENCE))
    for _ in range(3):
        with pytest.raises(CameraError, match=f"127.0.0.1:{port}") as caught:
            source.open()
        assert not isinstance(caught.value, HopelessError)
        source.close()


@pytest.mark.parametrize("reader", ["pyav", "opencv"])
def test_a_server_that_falls_silent_is_not_waited_for_for_ever(reader: sources.Reader) -> None:
    with StreamServer(mjpeg(100, pictures=60, then_wait=True)) as server:
        source = source_for(SourceSettings(source=f"http://127.0.0.1:{server.port}/x", reader=reader, patience=1))
        for _ in turns("the source opens within a second"):
            try:
                source.open()
                break
            except CameraError:
                source.close()
        assert not source.recorded
        with pytest.raises(CameraError, match=r"nothing came within 1 s|no picture comes"):
            for _ in range(100):
                source.grab()
        source.close()


def test_the_size_of_what_comes_in_its_own() -> None:
    for own, most, size in (((640, 480), (0, 0), (640, 480)), ((640, 480), (320, 0), (320, 240)),
                            ((640, 480), (320, 100), (133, 100)), ((640, 480), (1000, 1000), (640, 480)),
                            ((10000, 2), (10, 0), (10, 1))):
        assert fitted(*own, SourceSettings(source="x", width=most[0], height=most[1])) == size
