"""The program that captures, run in this process, and what `doctor` finds of cameras."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.stream_servers import H, StreamServer, W, mjpeg, pattern, video
from support.wait import PATIENCE

import splatview
from splatview.camera.capture import PLAYED, main
from splatview.camera.pattern import number_of
from splatview.cli import doctor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview.api.frames import Frame, Frames


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Capture while a function of the pictures runs in a thread. What it says."""
    monkeypatch.setattr("splatview.camera.capture.PARTING_S", PATIENCE)
    monkeypatch.setattr("splatview.camera.capture.RETRY_S", 0.01)

    def run(watch: Callable[[Frames], None], source: str, **settings: Any) -> list[str]:
        failed: list[BaseException] = []

        def watching() -> None:
            try:
                with splatview.frames("camera", timeout=PATIENCE) as frames:
                    watch(frames)
            except BaseException as e:
                failed.append(e)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        before = signal.signal(signal.SIGTERM, lambda *_: None)
        thread = threading.Thread(target=watching)
        thread.start()
        try:
            assert main(json.dumps({"source": source, **settings})) == 0
        finally:
            thread.join()
            signal.signal(signal.SIGTERM, before)
        if failed:
            raise failed[0]
        return capsys.readouterr().err.splitlines()

    return run


def first(frames: Frames, wanted: Callable[[Frame], Any]) -> Frame:
    return next(frame for frame in frames if wanted(frame))


def test_it_publishes_in_order_until_a_signal(capture: Callable[..., list[str]]) -> None:
    def watch(frames: Frames) -> None:
        numbers = []
        for _ in range(5):
            frame = next(frames)
            assert frame.numpy().shape == (48, 64, 3) and "trouble" not in frame.meta and frame.meta["dropped"] >= 0
            numbers.append(number_of(frame.numpy()))
        assert numbers == sorted(set(numbers))

    assert len(capture(watch, "test", width=64, height=48, fps=60)) == 1


def test_trouble_is_published_over_the_last_picture(capture: Callable[..., list[str]]) -> None:
    with StreamServer(mjpeg(100)) as server:
        port = server.port

        def watch(frames: Frames) -> None:
            frame = first(frames, lambda frame: not frame.meta.get("trouble"))
            number = number_of(frame.numpy())
            assert np.abs(frame.numpy().astype(int) - pattern(number)).mean() < 6
            server.close()
            frame = first(frames, lambda frame: frame.meta.get("trouble"))
            assert frame.numpy().shape == (H, W, 3) and number_of(frame.numpy()) >= number
            assert "trying again" in frame.meta["trouble"]
            with StreamServer(mjpeg(100), port):
                first(frames, lambda frame: not frame.meta.get("trouble"))

        words = capture(watch, f"http://127.0.0.1:{port}/a", patience=PATIENCE)
    assert "trying again" in words[1] and "the pictures go on" in words


def test_a_recording_ends_with_its_last_picture(capture: Callable[..., list[str]], tmp_path: Path) -> None:
    def watch(frames: Frames) -> None:
        frame = first(frames, lambda frame: frame.meta.get("trouble"))
        assert frame.meta["trouble"].endswith(": the end") and number_of(frame.numpy()) == 5

    assert capture(watch, str(video(tmp_path / "a.mp4", 6)), loop=False)[-1] == PLAYED


def test_doctor_finds_what_cameras_need(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = doctor.check_camera()
    assert whole.state == "ok" and "OpenCV 4." in whole.detail and " GStreamer" in whole.detail
    monkeypatch.setitem(sys.modules, "av", None)
    less = doctor.check_camera()
    assert less.state == "absent" and "no PyAV" in less.detail and "OpenCV 4." in less.detail
    assert less.mend == "pip install 'splatview[camera]'"
