"""The capturing process by itself, and what `doctor` says of cameras."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.repetitions import exhaustive
from support.stream_servers import H, StreamServer, W, video
from support.wait import PATIENCE

import splatview
from splatview.camera.__main__ import main
from splatview.camera.pattern import number_of
from splatview.camera.sources import Buffers, SourceSettings, source_for
from splatview.commands import doctor

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

HUNG = """
import sys, threading
from splatview.camera import capture, reading

class Stuck:
    words, rate, recorded = "a stuck driver", 0.0, False
    def open(self): pass
    def grab(self): threading.Event().wait()
    def retrieve(self, buffers): raise AssertionError
    def close(self): pass

capture._HANGS_AFTER = 0.5
capture.source_for = lambda settings: Stuck()
sys.exit(capture.main('{"source": "test", "patience": 0.2}'))
"""


@pytest.mark.parametrize("start", ["forked", exhaustive("python")])
def test_it_says_what_it_does_and_ends_when_told(start: str, programs: Programs) -> None:
    process = getattr(programs, start)("-m", "splatview.camera", "capture", json.dumps(
        {"source": "test", "width": 64, "height": 48, "fps": 60, "stream": "door"}), SPLATVIEW_NAME="house")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"event": "open", "text": "a test picture, 64 x 48 at 60/s"}
    with splatview.frames("door", run="house", timeout=PATIENCE) as frames:
        seen = [number_of(next(frames).numpy()) for _ in range(5)]
    assert seen == sorted(set(seen))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.exhaustive
def test_it_ends_while_a_library_waits_for_a_picture(programs: Programs, wait_until: Callable[..., Any]) -> None:
    """Neither waits for it, nor breaks down over it."""
    def silent(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.recv(1)

    for reader in ("pyav", "opencv"):
        with StreamServer(silent) as server:
            process = programs.python("-m", "splatview.camera", "capture", json.dumps(
                {"source": f"http://127.0.0.1:{server.port}/", "reader": reader, "patience": 100}))
            wait_until(lambda server=server: server.accepted)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, out, err) == (0, "", "")


def test_a_source_that_never_comes_back_costs_the_process(programs: Programs) -> None:
    """Which its parent starts anew: a thread inside a driver cannot be ended."""
    process = programs.code(HUNG)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 75, err
    assert "a stuck driver: it does not come back from a call" in err
    events = [json.loads(line) for line in out.splitlines()]
    assert events[0] == {"event": "open", "text": "a stuck driver"}
    assert {"event": "trouble", "text": "a stuck driver: no picture for 0.2 s"} in events[1:]


@pytest.mark.parametrize("reader", ["pyav", "opencv"])
def test_a_recording_on_a_server_is_played_as_a_file_is(tmp_path: Path, reader: Any) -> None:
    data = video(tmp_path / "a.mkv", 10).read_bytes()

    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: video/x-matroska\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(data), data))

    with StreamServer(serve) as server:
        source = source_for(SourceSettings(source=f"http://127.0.0.1:{server.port}/a.mkv", reader=reader,
                                           patience=60))
        for _ in range(2):
            source.open()
            assert source.recorded and source.rate == 30
            numbers = []
            while source.grab() is not None:
                image = source.retrieve(Buffers())
                assert image.shape == (H, W, 3)
                numbers.append(number_of(image))
            assert numbers == list(range(10))
            source.close()


def test_what_it_cannot_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", json.dumps({"source": "nosuch.mp4"})]) == 2
    assert "there is no file nosuch.mp4" in capsys.readouterr().err
    assert main(["dream"]) == 2
    assert "capture | infer" in capsys.readouterr().err


def test_doctor_says_what_cameras_need(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = doctor.check_camera()
    assert whole.state == "ok" and "OpenCV 4." in whole.detail and " GStreamer" in whole.detail
    monkeypatch.setitem(sys.modules, "av", None)
    less = doctor.check_camera()
    assert less.state == "absent" and "no PyAV" in less.detail and "OpenCV 4." in less.detail
    assert less.mend == "pip install 'splatview[camera]'"


def test_the_programs_of_the_camera_load_nothing_they_do_not_need(programs: Programs) -> None:
    """The command that watches over them stays small: it loads neither torch nor a library that reads pictures."""
    process = programs.python(
        "-c", "import sys; from splatview.commands.camera import main; code = main(['nosuch.mp4']); "
        "print(code, *[m for m in ('torch', 'numpy', 'cv2', 'av', 'onnxruntime', 'zmq') if m in sys.modules])")
    out, err = process.communicate(timeout=PATIENCE)
    assert out.split() == ["2"], (out, err)
