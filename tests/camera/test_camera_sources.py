"""Sources of pictures: one suite over all of them, and what each has of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support import camera_cases
from support.stream_servers import H, StreamServer, W, mjpeg, video
from support.wait import PATIENCE, turns

from splatview.camera.pattern import draw, number_of, square
from splatview.camera.sources import CameraError, CaptureSettings, check, fitted, kind_of, source_for
from splatview_ipc.system import optional_packages as extras

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A SOURCE."""
    if request.param == "file":
        yield str(video(tmp_path / "a video.mp4"))
    else:
        with StreamServer(mjpeg(100)) as server:
            yield f"http://127.0.0.1:{server.port}/camera"


def test_pictures(address: str) -> None:
    camera_cases.check_pictures(source_for(CaptureSettings(source=address, patience=PATIENCE)))


def test_life(address: str) -> None:
    camera_cases.check_life(source_for(CaptureSettings(source=address, patience=PATIENCE)), address)


def test_size(address: str) -> None:
    camera_cases.check_size(source_for(CaptureSettings(source=address, width=W // 2, height=H // 2,
                                                      patience=PATIENCE)))


def test_a_file_ends_and_its_times_are_its_own(tmp_path: Path) -> None:
    times = [0.0, 0.1, 0.2, 0.5, 1.2, 1.3]
    source = source_for(CaptureSettings(source=str(video(tmp_path / "a.mp4", 6, 30, times))))
    source.open()
    assert source.recorded
    read = []
    while (at := source.grab()) is not None:
        read.append((round(at, 2), number_of(np.asarray(source.retrieve()))))
    assert read == [(at, i) for i, at in enumerate(times)]
    assert source.grab() is None
    source.close()


def test_what_a_test_picture_shows() -> None:
    camera_cases.check_life(source_for(CaptureSettings(source="test")), "a test picture")
    for number in (0, 1, 2, 77, 2**24 - 1):
        image = draw(number, 640, 360)
        assert number_of(image) == number
        x0, y0, x1, y1 = square(number, 640, 360)
        assert (image[y0:y1, x0:x1] == 255).all() and (image == 255).all(2).sum() == (x1 - x0) * (y1 - y0)
    assert number_of(draw(1000, 24, 3)) == 1000


def test_what_a_source_names(tmp_path: Path) -> None:
    odd = tmp_path / "a!b.mp4"
    odd.touch()
    for source, kind in (("test", "test"), ("0", "device"), ("/dev/video3", "device"), ("/dev/null", "device"),
                         ("rtsp://a/b", "network"), ("HTTP://a/b", "network"), ("a.mp4", "file"),
                         ("file:///a/b.mp4", "file"), ("videotestsrc ! appsink", "pipeline"), (str(odd), "file")):
        assert kind_of(source) == kind, source


def test_what_can_never_be_read_is_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no video")
    for source, words in (("", "SOURCE is empty"), (str(tmp_path), "no file"), ("nosuch.mp4", "no file nosuch.mp4"),
                          ("ftp://a/b", r"'ftp' is no protocol.*rtsp"), ("/dev/nosuch", "/dev/nosuch is no camera"),
                          ("/dev/null", "/dev/null is no camera")):
        with pytest.raises(CameraError, match=words):
            check(CaptureSettings(source=source))
    with pytest.raises(CameraError, match="no video that"):
        source_for(CaptureSettings(source=str(tmp_path / "a.mp4"))).open()
    with pytest.raises(CameraError, match="PyPI's has no GStreamer"):
        source_for(CaptureSettings(source="a ! b")).open()
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    check(CaptureSettings(source="test"))
    for name, needed in ((str(tmp_path / "a.mp4"), r"PyAV.*splatview\[video\]"),
                         ("rtsp://me:secret@porch/a", r"^rtsp://me:\.\.\.@porch/a.*OpenCV.*splatview\[camera\]")):
        with pytest.raises(CameraError, match=needed):
            check(CaptureSettings(source=name))


def test_a_server_that_is_not_there_may_come() -> None:
    with StreamServer(mjpeg()) as server:
        port = server.port
    source = source_for(CaptureSettings(source=f"http://127.0.0.1:{port}/x", patience=PATIENCE))
    for _ in range(3):
        with pytest.raises(CameraError, match=f"127.0.0.1:{port}"):
            source.open()
        source.close()


def test_a_server_that_falls_silent_is_not_waited_for_for_ever() -> None:
    with StreamServer(mjpeg(100, pictures=60, then_wait=True)) as server:
        source = source_for(CaptureSettings(source=f"http://127.0.0.1:{server.port}/x", patience=1))
        for _ in turns("the source opens within a second"):
            try:
                source.open()
                break
            except CameraError:
                source.close()
        assert not source.recorded
        with pytest.raises(CameraError, match="no picture comes"):
            for _ in range(100):
                source.grab()
        source.close()


def test_the_size_of_what_comes_in_its_own() -> None:
    for own, most, size in (((640, 480), (0, 0), (640, 480)), ((640, 480), (320, 0), (320, 240)),
                            ((640, 480), (320, 100), (133, 100)), ((640, 480), (1000, 1000), (640, 480)),
                            ((10000, 2), (10, 0), (10, 1))):
        assert fitted(*own, CaptureSettings(source="x", width=most[0], height=most[1])) == size
