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
from support.stream_servers import H, StreamServer, W, mjpeg, pattern
from support.wait import PATIENCE

import splatview
from splatview.camera.__main__ import main
from splatview.camera.pattern import number_of
from splatview.cli import doctor

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.api.frame import Frame
    from splatview.api.frames import Frames


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[Any]]:
    """Capture while a function of the pictures runs in a thread. The events that were told."""
    monkeypatch.setattr("splatview.camera.capture._PARTING", PATIENCE)
    monkeypatch.setattr("splatview.camera.reading._PAUSES", (0.01,))

    def run(watch: Callable[[Frames], None], source: str, **settings: Any) -> list[Any]:
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
            assert main(["capture", json.dumps({"source": source, **settings})]) == 0
        finally:
            thread.join()
            signal.signal(signal.SIGTERM, before)
        if failed:
            raise failed[0]
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def first(frames: Frames, wanted: Callable[[Frame], Any]) -> Frame:
    return next(frame for frame in frames if wanted(frame))


def test_it_publishes_in_order_until_a_signal(capture: Callable[..., list[Any]]) -> None:
    def watch(frames: Frames) -> None:
        numbers = []
        for _ in range(5):
            frame = next(frames)
            assert frame.numpy().shape == (48, 64, 3) and "trouble" not in frame.meta and frame.meta["dropped"] >= 0
            numbers.append(number_of(frame.numpy()))
        assert numbers == sorted(set(numbers))

    assert capture(watch, "test", width=64, height=48, fps=60) == [
        {"event": "open", "text": "a test picture, 64 x 48 at 60/s"}]


def test_trouble_is_published_over_the_last_picture(capture: Callable[..., list[Any]]) -> None:
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

        events = capture(watch, f"http://127.0.0.1:{port}/a", patience=PATIENCE)
    assert [event["event"] for event in events[:2]] == ["open", "trouble"]
    assert any(event["event"] == "open" and event["text"].endswith("it goes on") for event in events[2:])


def test_what_it_cannot_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", json.dumps({"source": "nosuch.mp4"})]) == 2
    assert "there is no file nosuch.mp4" in capsys.readouterr().err
    assert main(["dream"]) == 2


def test_doctor_finds_what_cameras_need(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = doctor.check_camera()
    assert whole.state == "ok" and "OpenCV 4." in whole.detail and " GStreamer" in whole.detail
    monkeypatch.setitem(sys.modules, "av", None)
    less = doctor.check_camera()
    assert less.state == "absent" and "no PyAV" in less.detail and "OpenCV 4." in less.detail
    assert less.mend == "pip install 'splatview[camera]'"
