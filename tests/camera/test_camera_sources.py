"""Sources of pictures: one suite over all of them, and what each has of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.stream_servers import H, StreamServer, W, mjpeg, pattern, video
from support.wait import PATIENCE, turns

import splatview
from splatview.api.frames import Frame
from splatview.camera.capture import main
from splatview.camera.pattern import number_of
from splatview.camera.sources import CameraError, CaptureSettings, check, source_for
from splatview.cli import doctor
from splatview_ipc.system import optional_packages as extras

CLOSE_TO = 6.0
"""Mean difference of levels that compression may make; swapped colours make 50."""


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A SOURCE."""
    if request.param == "file":
        yield str(video(tmp_path / "a video.mp4"))
    else:
        with StreamServer(mjpeg(100)) as server:
            yield f"http://127.0.0.1:{server.port}/camera"


def test_pictures(address: str) -> None:
    """They are what was sent, upright, in RGB, in order, with times that grow, in memory that is the caller's."""
    source = source_for(CaptureSettings(source=address, patience=PATIENCE))
    kept, times = [], []
    source.open()
    for _ in range(10):
        times.append(source.grab())
        kept.append(np.asarray(source.retrieve()))
    source.close()
    assert address in source.words
    numbers = [number_of(image) for image in kept]
    assert numbers == list(range(numbers[0], numbers[0] + 10))
    assert len(set(times)) == (10 if source.recorded else 1) and times == sorted(times)  # type: ignore[type-var]
    for image, number in zip(kept, numbers, strict=True):
        assert (
            image.dtype == np.uint8
            and image.flags.c_contiguous
            and image.flags.writeable
        )
        assert (
            image.shape == (H, W, 3)
            and np.abs(image.astype(int) - pattern(number)).mean() < CLOSE_TO
        )


def test_a_source_is_opened_again_in_half_its_size(address: str) -> None:
    source = source_for(
        CaptureSettings(source=address, width=W // 2, patience=PATIENCE)
    )
    for _ in range(3):
        source.open()
        source.grab()
        image = np.asarray(source.retrieve())
        assert image.shape == (H // 2, W // 2, 3)
        assert (
            np.abs(image[2 * H // 5 :, -W // 8 :].astype(int) - (200, 30, 40)).mean()
            < CLOSE_TO
        )
        source.close()
        source.close()


def test_a_file_ends_and_its_times_are_its_own(tmp_path: Path) -> None:
    times = [0.0, 0.1, 0.2, 0.5, 1.2, 1.3]
    source = source_for(CaptureSettings(source=str(video(tmp_path / "a.mp4", times))))
    source.open()
    assert source.recorded
    read = []
    while (at := source.grab()) is not None:
        read.append((round(at, 2), number_of(np.asarray(source.retrieve()))))
    assert read == [(at, i) for i, at in enumerate(times)]
    assert source.grab() is None
    source.close()


def test_what_can_never_be_read_is_found_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no video")
    for source, words in (
        ("", "SOURCE is empty"),
        ("nosuch.mp4", "no file nosuch.mp4"),
        ("ftp://a/b", r"'ftp' is no protocol.*rtsp"),
        ("/dev/null", "/dev/null is no camera"),
    ):
        with pytest.raises(CameraError, match=words):
            check(CaptureSettings(source=source))
    with pytest.raises(CameraError, match="no video that"):
        source_for(CaptureSettings(source=str(tmp_path / "a.mp4"))).open()
    with pytest.raises(CameraError, match="PyPI's has no GStreamer"):
        source_for(CaptureSettings(source="a ! b")).open()
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    check(CaptureSettings(source="test"))
    for name, needed in (
        (str(tmp_path / "a.mp4"), r"PyAV.*splatview\[video\]"),
        (
            "rtsp://me:secret@porch/a",
            r"^rtsp://me:\.\.\.@porch/a.*OpenCV.*splatview\[camera\]",
        ),
    ):
        with pytest.raises(CameraError, match=needed):
            check(CaptureSettings(source=name))


def test_a_server_that_falls_silent_is_not_waited_for_for_ever() -> None:
    with StreamServer(mjpeg(100, pictures=60)) as server:
        source = source_for(
            CaptureSettings(source=f"http://127.0.0.1:{server.port}/x", patience=1)
        )
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


def test_trouble_is_published_over_the_last_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("splatview.camera.capture.RETRY_S", 0.01)
    seen: list[Frame] = []

    def watch() -> None:
        def first(troubled: bool) -> None:
            seen.append(
                next(
                    frame
                    for frame in frames
                    if bool(frame.meta.get("trouble")) == troubled
                )
            )

        try:
            with splatview.frames("camera", timeout=PATIENCE) as frames:
                first(False)
                server.server_close()
                first(True)
                with StreamServer(mjpeg(100), server.port):
                    first(False)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    with StreamServer(mjpeg(100)) as server:
        thread = threading.Thread(target=watch)
        thread.start()
        source = f"http://127.0.0.1:{server.port}/a"
        assert main(json.dumps({"source": source, "patience": PATIENCE})) == 0
        thread.join()
    signal.signal(signal.SIGTERM, before)
    sent, troubled, _ = seen
    number = number_of(sent.numpy())
    assert np.abs(sent.numpy().astype(int) - pattern(number)).mean() < CLOSE_TO
    assert troubled.numpy().shape == (H, W, 3) and number_of(troubled.numpy()) >= number
    assert "trying again" in troubled.meta["trouble"]
    words = capsys.readouterr().err.splitlines()
    assert "trying again" in words[1] and "the pictures go on" in words


def test_doctor_finds_what_cameras_need(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = doctor.check_camera()
    assert (
        whole.state == "ok"
        and "OpenCV 4." in whole.detail
        and " GStreamer" in whole.detail
    )
    monkeypatch.setitem(sys.modules, "av", None)
    less = doctor.check_camera()
    assert (
        less.state == "absent"
        and "no PyAV" in less.detail
        and "OpenCV 4." in less.detail
    )
    assert less.mend == "pip install 'splatview[camera]'"
