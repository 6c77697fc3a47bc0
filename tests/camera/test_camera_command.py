"""`splatview camera` as a user runs it: three programs, what they say, and what happens when one of them fails."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.repetitions import exhaustive
from support.stream_servers import H, StreamServer, W, mjpeg, pattern, video
from support.wait import PATIENCE

import splatview
from splatview.camera import launcher
from splatview.camera.launcher import _free_name, _how, _short
from splatview.camera.pattern import number_of, square
from splatview.camera.sources import SourceSettings
from splatview.commands.camera import main
from splatview.ipc.runs import list_runs, runtime_folder

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from support.programs import Programs

    from splatview.frame import Frame

FIND = """
import os, numpy as np
def square(image):
    if os.path.exists("die"):
        os._exit(3)
    ys, xs = np.where((image == 255).all(2))
    return {"boxes": [[xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]], "labels": ["square"], "motion": False}
"""


class Camera:
    """A running command, and what it says."""

    def __init__(self, process: subprocess.Popen[str], programs: Programs):
        self.process = process
        self.processes = processes
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def said(self, words: str) -> bool:
        return any(words in line for line in self.lines)

    def child(self, words: str) -> int | None:
        """The process id of the child whose command line has these words."""
        return next((pid for pid, line in self.children().items() if words in line), None)

    def children(self) -> dict[int, str]:
        return self.programs.children(self.process.pid)

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def camera(programs: Programs) -> Iterator[Callable[..., Camera]]:
    started = []

    def start(*args: str, forked: bool = True, **env: str) -> Camera:
        """`forked`: what it starts is forked, too."""
        start = programs.splatview if forked else programs.splatview
        started.append(Camera(start("camera", *args, **env), programs))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(signal.SIGTERM)


def first(frames: Any, wanted: Callable[[Frame], Any]) -> Frame:
    """The first frame that is wanted, of at most some thousand."""
    for i, frame in enumerate(frames):
        if wanted(frame):
            return frame
        assert i < 10_000, f"none of so many: {frame.meta}"
    raise AssertionError("they ended")


@pytest.mark.parametrize(("width", "height", "window", "forked"), [
    (160, 120, "320x240", True), exhaustive(640, 360, "1000x600", False)])
def test_capture_detection_and_viewer(camera: Callable[..., Camera], tmp_path: Path, wait_until: Callable[..., Any],
                                      width: int, height: int, window: str, forked: bool) -> None:
    """Boxes that a function found lie where the square was in the very picture that they belong to, and on the
    picture of the viewer."""
    (tmp_path / "find.py").write_text(FIND)
    out = tmp_path / "out.png"
    running = camera("test", "--size", f"{width}x{height}", "--detect", "find:square", "--offscreen", "--out",
                     str(out), "--window-size", window, forked=forked)
    numbers = {}
    with splatview.frames("camera", timeout=PATIENCE) as pictures, \
            splatview.frames("camera overlay", timeout=PATIENCE) as overlays:
        for _ in range(1000):
            frame = next(pictures)
            numbers[frame.version] = number_of(frame.numpy())
            assert frame.numpy().shape == (height, width, 3)
            found = overlays.latest()
            if found.meta["version"] in numbers and not found.meta.get("trouble"):
                break
        else:
            raise AssertionError("no detections of a picture that was seen")
        box = found.tensors["boxes"].numpy()[0]
        assert tuple(box) == square(numbers[found.meta["version"]], width, height)
        assert found.meta["by"] == "find:square"
        steady = first(pictures, lambda frame: frame.meta["camera_hz"] > 0 and not frame.meta.get("trouble"))
        assert steady.meta["dropped"] >= 0
    assert running.said(f"camera: a test picture, {width} x {height} at 30/s")
    wait_until(out.exists)
    wait_until(lambda: (np.asarray(Image.open(out).convert("RGB")) == 255).all(2).sum() > 1000)
    names = {folder.description.name for folder in list_runs(runtime_folder())}
    assert names == {"camera test"}
    started = running.children()
    assert len(started) == 3
    assert running.end() == 0
    assert not any(map(alive, started))
    assert not list_runs(runtime_folder())


def test_a_file_is_played_once(camera: Callable[..., Camera], tmp_path: Path) -> None:
    path = video(tmp_path / "a.mp4", 20)
    running = camera(str(path), "--once", "--name", "street", "--offscreen", "--out", str(tmp_path / "a.png"))
    assert running.process.wait(PATIENCE) == 0
    assert running.said("320 x 240 at 30/s h264") and running.said(": the end")
    picture = np.asarray(Image.open(tmp_path / "a.png").convert("RGB"))
    assert picture.shape == (720, 1280, 3)


def test_a_file_that_was_played_waits_for_its_picture_and_not_for_ever(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "a.png"
    viewer = launcher.ViewerOptions((), offscreen=True, out=out)
    source = SourceSettings(source="test")
    session = launcher._Session(launcher.Plan(source, "camera", loop=False, detector=None, viewer=viewer))
    assert not session._is_over()
    session.played_at = time.monotonic()
    assert not session._is_over()
    out.write_bytes(b"a picture")
    assert session._is_over()
    out.unlink()
    assert not session._is_over()
    monkeypatch.setattr(launcher, "_PICTURE_PATIENCE", -1.0)
    assert session._is_over()


_SIGNALLED = """
import signal, threading
from splatview.camera import launcher
from splatview.camera.sources import SourceSettings

class Interrupted(threading.Condition):
    def __enter__(self):
        taken = super().__enter__()
        signal.raise_signal(signal.SIGTERM)
        return taken

session = launcher._Session(launcher.Plan(SourceSettings(source="test"), "camera", False, None, None))
session.said.not_empty = Interrupted(session.said.mutex)
print(session.run(), session.capture.process)
"""
"""SIGTERM comes when the lock of what was said has just been taken."""


def test_it_ends_whenever_the_signal_comes(programs: Programs) -> None:
    process = programs.python("-c", _SIGNALLED)
    said, told = process.communicate(timeout=PATIENCE)
    assert said == "0 None\n", told


def test_a_server_that_is_lost_and_comes_back(camera: Callable[..., Camera], wait_until: Callable[..., Any]) -> None:
    with StreamServer(mjpeg(50)) as server:
        port = server.port
        running = camera(f"http://127.0.0.1:{port}/a", "--no-viewer", "--patience", "2")
        frames = splatview.frames("camera", timeout=PATIENCE)
        frame = first(frames, lambda frame: not frame.meta.get("trouble"))
        assert np.abs(frame.numpy().astype(int) - pattern(number_of(frame.numpy()))).mean() < 6
        last = number_of(frame.numpy())
    try:
        for frame in frames:
            if frame.meta.get("trouble"):
                assert frame.numpy().shape == (H, W, 3) and number_of(frame.numpy()) >= last  # the last that came
                assert "trying again" in frame.meta["trouble"]
                break
            last = number_of(frame.numpy())
        first(frames, lambda frame: "refused" in frame.meta.get("trouble", ""))
        wait_until(lambda: running.said("Connection refused; trying again"))
        with StreamServer(mjpeg(50), port):
            frame = first(frames, lambda frame: not frame.meta.get("trouble"))
            wait_until(lambda: running.said("it goes on"))
    finally:
        frames.close()
    assert running.end() == 0


def test_a_silent_server_is_told(camera: Callable[..., Camera]) -> None:
    """Before there is any picture, trouble is said over a dark one."""
    with StreamServer(mjpeg(pictures=0, then_wait=True)) as server:
        running = camera(f"http://127.0.0.1:{server.port}/a", "--no-viewer", "--patience", "1", "--size", "64x32")
        with splatview.frames("camera", timeout=PATIENCE) as frames:
            frame = next(frames)
            assert f"http://127.0.0.1:{server.port}/a cannot be opened" in frame.meta["trouble"]
            assert frame.numpy().shape == (32, 64, 3) and frame.numpy().max() < 60
    assert running.end(signal.SIGTERM) == 0


def test_processes_that_die_are_started_again(camera: Callable[..., Camera], tmp_path: Path,
                                              wait_until: Callable[..., Any]) -> None:
    (tmp_path / "find.py").write_text(FIND)
    running = camera("test", "--detect", "find:square", "--no-viewer", "--size", "160x120")
    with splatview.frames("camera", run="camera test", timeout=PATIENCE) as frames, \
            splatview.frames("camera overlay", run="camera test", timeout=PATIENCE) as overlays:
        next(overlays)
        (tmp_path / "die").touch()
        wait_until(lambda: running.said("detector: it ended with code 3; it is started again in 1 s"))
        next(frames)  # the pictures go on
        (tmp_path / "die").unlink()
        run = overlays.run
        first(overlays, lambda frame: overlays.run != run)
        capture = running.child("camera capture")
        assert capture is not None
        run = frames.run
        os.kill(capture, signal.SIGKILL)
        wait_until(lambda: running.said("capturing ended by SIGKILL; it is started again in 1 s"))
        first(frames, lambda frame: frames.run != run)
        first(overlays, lambda frame: frame.meta["time_ns"] > 0)
    assert running.end() == 0


def test_pictures_go_on_without_a_detector_that_cannot_run(camera: Callable[..., Camera],
                                                           wait_until: Callable[..., Any]) -> None:
    running = camera("test", "--detect", "no_such_module:find", "--no-viewer", "--size", "160x120")
    wait_until(lambda: running.said("detector: it cannot run; pictures go on without it"))
    with splatview.frames("camera", timeout=PATIENCE) as frames:
        number = next(frames).version
        assert first(frames, lambda frame: frame.version > number + 5)
    assert len(running.children()) == 1
    assert running.end() == 0


def test_closing_the_viewer_ends_all(camera: Callable[..., Camera], wait_until: Callable[..., Any]) -> None:
    running = camera("test", "--offscreen", "--size", "160x120")
    viewer = wait_until(lambda: running.child("splatview.viewer_app"))
    with splatview.frames("camera", timeout=PATIENCE) as frames:
        next(frames)
    started = running.children()
    os.kill(viewer, signal.SIGTERM)
    running.process.wait(PATIENCE)
    assert not any(map(alive, started))


@pytest.mark.exhaustive  # quick: closing the viewer, and the end of demo
def test_the_programs_end_with_the_command_however_it_ends(camera: Callable[..., Camera],
                                                           wait_until: Callable[..., Any]) -> None:
    running = camera("test", "--offscreen", "--size", "160x120", forked=False)
    wait_until(lambda: running.child("splatview.viewer_app"))
    started = running.children()
    running.process.kill()
    running.process.wait()
    wait_until(lambda: not any(map(alive, started)))
    wait_until(lambda: not list_runs(runtime_folder()))


@pytest.mark.exhaustive
def test_two_cameras_do_not_mix(camera: Callable[..., Camera], wait_until: Callable[..., Any]) -> None:
    camera("test", "--no-viewer", "--size", "160x120")
    with splatview.frames("camera", run="camera test", timeout=PATIENCE) as frames:
        next(frames)
    camera("test", "--no-viewer", "--size", "80x60")
    with splatview.frames("camera", run="2. camera test", timeout=PATIENCE) as frames:
        assert next(frames).numpy().shape == (60, 80, 3)
    with splatview.frames("camera", run="camera test", timeout=PATIENCE) as frames:
        assert next(frames).numpy().shape == (120, 160, 3)


@pytest.mark.exhaustive  # quick: test_pausing.py
def test_the_pause_button_holds_the_picture(camera: Callable[..., Camera], wait_until: Callable[..., Any]) -> None:
    from splatview.ipc import Subscriber

    camera("test", "--no-viewer", "--size", "160x120")
    with Subscriber("camera test", client="viewer") as subscriber:
        def stream() -> Any:
            subscriber.poll()
            return next((s for s in subscriber.streams if s.version > 3), None)

        watched = wait_until(stream)

        def stands() -> bool:
            subscriber.poll()
            before = watched.version
            threading.Event().wait(0.5)
            subscriber.poll()
            return watched.version == before

        watched.run.set_paused(True)
        wait_until(stands)
        watched.run.set_paused(False)
        held = watched.version
        wait_until(lambda: (subscriber.poll(), watched.version > held + 3)[1])


@pytest.mark.parametrize(("args", "words"), [
    (["nosuch.mp4"], "there is no file nosuch.mp4"),
    (["/dev/null"], "/dev/null is no V4L2 device"),
    (["gopher://a"], "'gopher' is no protocol"),
    (["test", "--size", "12"], "--size is '12', not a width and a height"),
    (["test", "--fps", "0"], "--fps is 0, not"),
    (["test", "--patience", "0"], "--patience is 0, not"),
    (["test", "--max-fps", "-1"], "--max-fps is -1, not"),
    (["test", "--name", "a/b"], "--name: "),
    (["test", "--once"], "--once is for files, and test has no end"),
    (["test", "--window", "--web"], "--window and --web exclude each other"),
    (["test", "--no-viewer", "--out", "a.png"], "--no-viewer and --out exclude each other"),
    (["test", "--out", "/no/such/folder/a.png"], "there is no folder '/no/such/folder'"),
    (["test", "--host", "0.0.0.0", "--window"], "--host is for --web, and --window was named"),
    (["test", "--threshold", "0.5"], "--threshold is for --detect"),
    (["test", "--every", "3"], "--every is for --detect"),
    (["test", "--detect", "people", "--every", "0"], "--every is '0', not auto or a number"),
    (["test", "--detect", "people", "--nms", "2"], "--nms is 2, not from 0 to 1"),
    (["test", "--detect", "nosuch.onnx"], "--detect: there is no file nosuch.onnx"),
    (["test", "--detect", "cats"], "--detect is 'cats'; legal are a file MODEL.onnx, people, or module:function"),
    (["test", "--detect", "people", "--labels", "nosuch.txt"], "--labels: there is no file nosuch.txt"),
])
def test_what_cannot_be_done_is_said_before_anything_is_started(args: list[str], words: str,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    said = capsys.readouterr().err
    assert said.startswith("splatview camera: ") and words in said


def test_a_file_that_is_no_video_ends_it(camera: Callable[..., Camera], tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_text("no video")
    running = camera(str(tmp_path / "a.mp4"), "--offscreen")
    assert running.process.wait(PATIENCE) == 2
    assert running.lines == [f"camera: {tmp_path}/a.mp4 is no video that FFmpeg reads: "
                             "Invalid data found when processing input"]


def test_how_an_end_is_called() -> None:
    assert _how(3) == "with code 3" and _how(-9) == "by SIGKILL" and _how(-250) == "by signal 250"


def test_the_run_of_a_camera_is_called_after_it() -> None:
    assert _free_name("camera") == "camera"
    for source, words in (("0", "/dev/video0"), ("/a/street.mp4", "street.mp4"), ("test", "test"),
                          ("rtsp://me:secret@porch:554/a?token=b", "porch"), ("a ! b", "pipeline")):
        assert _short(source) == words
