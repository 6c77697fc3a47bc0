"""Cameras: OpenCV's own V4L2 code, against a camera that a library between it and the kernel plays."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fake_camera import FakeCamera
from patience import PATIENCE

import splatview
from splatview.camera.sources import CameraError, HopelessError
from splatview.camera.v4l2 import cameras, check_device

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Processes

READ = """
import sys, json, os, time
import cv2
from splatview.camera.sources import Buffers, CameraError, DamagedError, SourceSettings, source_for
settings = json.loads(sys.argv[1])
source = source_for(SourceSettings(**settings))
source.open()
print(source.words, source.recorded, source.rate, flush=True)
for line in sys.stdin:
    try:
        if line == "again\\n":
            source.close()
            source.open()
        source.grab()
        image = source.retrieve(Buffers())
        print(image.shape, *image[image.shape[0] // 2, [10, -10]].ravel(), flush=True)
    except CameraError as e:
        print(type(e).__name__, e, flush=True)
source.close()
source.open()
before = sorted(os.listdir("/proc/self/fd"))
for _ in range(5):
    source.close()
    source.open()
    source.grab()
print("left", len(set(os.listdir("/proc/self/fd")) - set(before)))
source.close()
"""


@pytest.fixture
def camera(tmp_path: Path) -> FakeCamera:
    made = FakeCamera(tmp_path / "camera")
    made.show(picture(720, 1280))
    return made


def picture(height: int, width: int) -> np.ndarray:
    """Red on the left, blue on the right."""
    image = np.zeros((height, width, 3), np.uint8)
    image[:, : width // 2] = 230, 20, 10
    image[:, width // 2 :] = 10, 30, 220
    return image


class Reader:
    """A program that reads the camera when told."""

    def __init__(self, processes: Processes, camera: FakeCamera, settings: str):
        self.process = processes.code(READ, settings, **camera.environment)
        assert self.process.stdout is not None and self.process.stdin is not None
        self.words = self.process.stdout.readline().strip()

    def read(self, how: str = "read") -> str:
        assert self.process.stdout is not None and self.process.stdin is not None
        self.process.stdin.write(f"{how}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, err
        return out.strip()


@pytest.mark.exhaustive
def test_it_is_asked_for_a_size_and_rate_and_says_what_it_gives(processes: Processes, camera: FakeCamera) -> None:
    settings = f'{{"source": "{camera.node}", "width": 2000, "height": 720, "fps": 50}}'
    reader = Reader(processes, camera, settings)
    assert reader.words == f"{camera.node} (Fake Camera), 1280 x 720 at 50/s MJPG, by OpenCV (V4L2) False 50.0"
    assert camera.asked == ["1280", "720", "MJPG", "50"]
    shape, *levels = reader.read().rpartition(")")[0] + ")", *reader.read().rpartition(")")[2].split()
    assert shape == "(720, 1280, 3)"
    assert np.allclose([int(v) for v in levels], [230, 20, 10, 10, 30, 220], atol=6)
    assert reader.end() == "left 0"


def test_uncompressed_pictures(processes: Processes, camera: FakeCamera) -> None:
    """Two pixels share their colour: Y U Y V."""
    camera.give(bytes([81, 90, 81, 240]) * (64 * 48 // 2), "YUYV")  # red
    reader = Reader(processes, camera, f'{{"source": "{camera.node}", "width": 64, "height": 48}}')
    assert "64 x 48 at 30/s YUYV" in reader.words
    red = [int(v) for v in reader.read().rpartition(")")[2].split()]
    assert np.allclose(red, [254, 0, 0, 254, 0, 0], atol=6)
    assert reader.end() == "left 0"


def test_damage_silence_and_a_pulled_plug_are_told_apart_and_pass(processes: Processes, camera: FakeCamera) -> None:
    reader = Reader(processes, camera, f'{{"source": "{camera.node}", "patience": 1}}')
    whole = reader.read()
    assert whole.startswith("(720, 1280, 3)")
    camera.give(b"\xff\xd8 no JPEG")
    assert any(reader.read().startswith("DamagedError") for _ in range(8))  # after those already on their way
    camera.show(picture(720, 1280))
    assert any(reader.read() == whole for _ in range(8))
    camera.freeze()
    answers = [reader.read() for _ in range(8)]
    assert any("no picture comes any more" in a for a in answers), answers
    camera.freeze(False)
    assert reader.read("again") == whole
    camera.unplug()
    answers = [reader.read() for _ in range(8)]
    assert "no picture comes any more" in answers[-1]
    assert reader.read("again").startswith(f"HopelessError there is no camera {camera.node}")
    camera.plug()
    assert reader.read("again") == whole
    assert reader.end() == "left 0"


def test_a_node_that_carries_something_else(processes: Processes, camera: FakeCamera) -> None:
    camera.take_no_pictures()
    process = processes.command("camera", str(camera.node), "--no-viewer", **camera.environment)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "gives no pictures (another node of the same camera may)" in err


def test_why_a_node_cannot_be_used(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    for path, words in ((tmp_path / "nosuch", "there is no camera"), (plain, "is no device"),
                        ("/dev/null", "is no V4L2 device")):
        with pytest.raises(HopelessError, match=words):
            check_device(str(path))
    assert all(text.startswith("/dev/") for text in cameras())
    assert issubclass(HopelessError, CameraError)


@pytest.mark.exhaustive  # quick: a pulled plug, by another way
def test_a_camera_that_is_pulled_out_and_put_back(processes: Processes, camera: FakeCamera,
                                                  wait_until: Callable[..., Any]) -> None:
    """The last picture stays, with what is wrong said over it, until there are new ones."""
    shown = picture(120, 160)
    camera.show(shown)
    process = processes.command("camera", str(camera.node), "--no-viewer", "--patience", "3", "--size", "160x120",
                                **camera.environment)
    lines: list[str] = []
    assert process.stderr is not None
    stderr = process.stderr
    threading.Thread(target=lambda: lines.extend(iter(stderr.readline, "")), daemon=True).start()
    with splatview.frames("camera", timeout=PATIENCE) as frames:
        def next_with(words: str) -> np.ndarray:
            for frame in frames:
                if words in frame.meta.get("trouble", "") if words else not frame.meta.get("trouble"):
                    return frame.numpy().copy()
                assert process.poll() is None, lines
            raise AssertionError

        before = next_with("")
        assert np.abs(before.astype(int) - shown).mean() < 6
        camera.unplug()
        after = next_with(f"there is no camera {camera.node}")
        assert (after == before).all()
        camera.show(shown[:, ::-1])
        camera.plug()
        assert np.abs(next_with("").astype(int) - shown[:, ::-1]).mean() < 6
    wait_until(lambda: any("it goes on" in line for line in lines))
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
