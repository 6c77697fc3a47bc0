"""The inference process: it looks at the newest picture, says which one, and goes on whatever goes wrong."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import torch
from support.detect_models import bright
from support.repetitions import exhaustive
from support.wait import PATIENCE

import splatview
from splatview.camera.inference import Inference, InferenceSettings, picture

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from support.programs import Programs

CAMERA = """
import sys, time, numpy as np, splatview
gone = int(sys.argv[1])
i = 0
while True:
    i += 1
    image = np.zeros((96, 128, 3), np.uint8)
    x = 4 * (i % 28)
    image[40:56, x:x + 16] = 255
    splatview.publish(image, "camera")
    time.sleep(0.02)
    if i == gone:
        splatview.close()
        i = 0
"""
"""A bright square that stands where the version says. Argument: after how many pictures it starts anew (0: never)."""
FUNCTIONS = r"""
import time
calls = 0

def troubled(image):
    global calls
    calls += 1
    if calls % 2:
        raise OSError("the lamp is broken")
    return [[1, 2, 3, 4]]

def leaving(image):
    raise SystemExit("no more")

def odd(image):
    return {"boxes": [[1, 2, 3]], "colour": "red"}

def keywords(image):
    return {"boxes": [[10, 20, 20, 20]], "format": "xywh", "labels": ["lamp"], "notes": "seen"}

class Mute(Exception):
    def __str__(self):
        raise OSError

def mute(image):
    raise Mute

def wordy(image):
    raise ValueError("\x00\n" + "word " * 10_000 + "\udc80")

def deaf(image):
    while True:
        try:
            print("begun", flush=True)
            while True:
                time.sleep(0.01)
        except Exception:
            pass
"""


@pytest.fixture
def infer(programs: Programs, tmp_path: Path) -> Any:
    """Fork the process: `infer(detect, **settings)`; with `started` it is started as `splatview camera` starts it."""
    (tmp_path / "detect_functions.py").write_text(FUNCTIONS)

    def start(detect: str, started: bool = False, **settings: Any) -> subprocess.Popen[str]:
        start = programs.python if started else programs.python
        return start("-m", "splatview.camera", "infer", json.dumps({"detect": detect, **settings}))

    return start


def results(count: int) -> Iterator[tuple[dict[str, np.ndarray], dict[str, Any]]]:
    """What detectors say over the stream "camera"."""
    with splatview.frames("camera overlay", timeout=PATIENCE) as overlays:
        for overlay in overlays:
            yield {name: tensor.numpy().copy() for name, tensor in overlay.tensors.items()}, dict(overlay.meta)
            count -= 1
            if not count:
                return


def ended(process: subprocess.Popen[str], number: int = signal.SIGTERM) -> str:
    """End it, as it is meant to be ended. What it said on stderr."""
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    return said


def test_boxes_belong_to_the_versions_that_they_name(programs: Programs, infer: Any, tmp_path: Path) -> None:
    programs.code(CAMERA, "0")
    process = infer(bright(tmp_path / "bright.onnx", 128, 96), motion=True, provider="cpu")
    last = skipped = 0
    for tensors, meta in results(20):
        x = 4 * (meta["version"] % 28)
        assert tensors["boxes"].tolist() == [[x, 40, x + 16, 56]]
        assert bytes(tensors["labels"]) == b"light\0"
        assert tensors["scores"].tolist() == [np.float32(0.9)]
        assert meta["version"] > last and meta["time_ns"] > 0
        assert (meta["by"], meta["motion"], meta.get("trouble", "")) == ("bright on CPU", True, "")
        assert meta["work_ms"] > 0 and meta["skipped"] >= skipped
        assert 0 <= meta["rate_hz"] < 1000
        last, skipped = meta["version"], meta["skipped"]
    assert ended(process).strip() == "bright on CPU"


@pytest.mark.exhaustive
def test_a_camera_that_starts_anew_is_gone_on_with(programs: Programs, infer: Any, tmp_path: Path) -> None:
    programs.code(CAMERA, "40")
    process = infer(bright(tmp_path / "bright.onnx", 128, 96))
    times, restarts, last = [], 0, 0
    for tensors, meta in results(1_000_000):
        x = 4 * (meta["version"] % 28)
        assert tensors["boxes"].tolist() == [[x, 40, x + 16, 56]]
        restarts += meta["version"] < last
        last = meta["version"]
        times.append(meta["time_ns"])
        if restarts == 3:
            break
    assert times == sorted(times)
    ended(process, signal.SIGINT)


def test_a_function_that_fails_is_told_about(programs: Programs, infer: Any) -> None:
    programs.code(CAMERA, "0")
    process = infer("detect_functions:troubled")
    seen = []
    for tensors, meta in results(1_000_000):
        seen.append(meta.get("trouble", ""))
        assert tensors["boxes"].tolist() == ([] if seen[-1] else [[1, 2, 3, 4]])
        assert seen[-1] in ("", "detect_functions:troubled: OSError: the lamp is broken")
        if sum(map(bool, seen)) >= 3 and not all(seen):
            break
    said = ended(process)
    assert said.count("the lamp is broken") == 1  # once, with its place
    assert "detect_functions.py:9" in said


@pytest.mark.parametrize(("name", "words"), [
    ("odd", "boxes"), ("leaving", "SystemExit: no more"), ("mute", "Mute"), ("wordy", "word word"),
])
def test_what_cannot_be_drawn_is_told_about(programs: Programs, infer: Any, name: str, words: str) -> None:
    programs.code(CAMERA, "0")
    process = infer(f"detect_functions:{name}")
    for tensors, meta in results(3):
        assert words in meta["trouble"] and meta["trouble"].isprintable()
        assert len(tensors["boxes"]) == 0
    assert words in ended(process)


def test_a_function_may_say_whatever_annotate_takes(programs: Programs, infer: Any) -> None:
    programs.code(CAMERA, "0")
    process = infer("detect_functions:keywords")
    for tensors, meta in results(2):
        assert tensors["boxes"].tolist() == [[10, 20, 30, 40]]
        assert (bytes(tensors["labels"]), bytes(tensors["notes"])) == (b"lamp\0", b"seen\0")
        assert meta["by"] == "detect_functions:keywords"
    ended(process)


@pytest.mark.parametrize("started", [False, exhaustive(True)])
def test_people(programs: Programs, infer: Any, started: bool) -> None:
    """Nobody is in these pictures; they are looked at all the same."""
    programs.code(CAMERA, "0")
    process = infer("people", started, provider="cpu")
    assert [len(tensors["boxes"]) for tensors, _ in results(3)] == [0, 0, 0]
    assert "people detector on CPU" in ended(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_while_there_is_no_camera(infer: Any, number: int) -> None:
    process = infer("people")
    assert "people detector" in process.stderr.readline()
    ended(process, number)


def test_it_ends_in_the_middle_of_a_function(programs: Programs, infer: Any) -> None:
    programs.code(CAMERA, "0")
    process = infer("detect_functions:deaf")
    assert process.stdout.readline() == "begun\n"
    ended(process)


@pytest.mark.parametrize(("settings", "words"), [
    ("{", "settings are not to be used"), ('{"stream": "camera"}', "detect"),
    ('{"detect": "dogs"}', "legal are people"),
    ('{"detect": "people", "every": 0}', "every"), ('{"detect": "people", "every": "now"}', "every"),
    ('{"detect": "people", "threshold": 2}', "threshold"), ('{"detect": "people", "speed": 2}', "speed"),
    ('{"detect": "none.onnx"}', "no file 'none.onnx'"), ('{"detect": "nothing:at_all"}', "No module named 'nothing'"),
])
def test_what_cannot_be_done_is_said(programs: Programs, settings: str, words: str) -> None:
    process = programs.python("-m", "splatview.camera", "infer", settings)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert words in said and "Traceback" not in said


def looked_at(every: Any, *versions: int | tuple[int, str]) -> tuple[list[int], int]:
    """Which of these versions are looked at, and how many were passed over."""
    settings = msgspec.convert({"detect": "people", "every": every}, InferenceSettings)
    inference = Inference(settings, None)  # type: ignore[arg-type]
    each: list[Any] = [v if isinstance(v, tuple) else (v, "run") for v in versions]
    looked = [v for v, run in each if inference._due(SimpleNamespace(version=v), run)]  # type: ignore[arg-type]
    return looked, inference._skipped


def test_which_pictures_are_looked_at() -> None:
    assert looked_at("auto", 5, 6, 9, 10) == ([5, 6, 9, 10], 2)
    assert looked_at(1, 5, 6, 9, 10) == ([5, 6, 9, 10], 2)
    assert looked_at(3, *range(1, 14)) == ([1, 3, 6, 9, 12], 7)
    assert looked_at(3, 1, 2, 4, 5, 7, 8, 10) == ([1, 4, 7, 10], 6)  # the multiple itself was not to be had
    assert looked_at(4, 4, 5, 23, 24) == ([4, 23, 24], 18)
    assert looked_at(3, 7, 9, 1, 2, 3) == ([7, 9, 1, 3], 2)  # the camera started anew
    assert looked_at(3, 7, (8, "other"), (9, "other")) == ([7, 8, 9], 0)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("layout", "channels"), [("HW", 1), *((layout, channels) for layout in ("HWC", "CHW")
                                                              for channels in (1, 3, 4))])
def test_every_image_becomes_a_picture(dtype: torch.dtype, layout: str, channels: int) -> None:
    pixels = torch.randint(0, 256, (20, 30, channels), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    if dtype.is_floating_point:
        pixels = (pixels > 127).byte() * 255  # 0 and 1 are exact in all of them
    value = pixels if dtype == torch.uint8 else (pixels / 255).to(dtype)
    value = {"HW": value[:, :, 0], "HWC": value, "CHW": value.permute(2, 0, 1).contiguous()}[layout]
    form: dict[str, Any] = {} if layout == "HW" else {"layout": layout}
    splatview.publish(value, "picture", **form)
    frame = splatview.frames("picture").latest(PATIENCE)
    got = picture(frame)
    expected = pixels.expand(20, 30, 3) if channels == 1 else pixels[:, :, :3]
    np.testing.assert_array_equal(got, expected.numpy())
    assert (got.dtype, got.shape, got.flags.writeable, got.flags.c_contiguous) == (np.uint8, (20, 30, 3), False, True)
    if (dtype, layout, channels) == (torch.uint8, "HWC", 3):
        assert np.shares_memory(got, frame.numpy())  # no copy
    frame.close()


def test_strange_values_are_no_trouble() -> None:
    splatview.publish(torch.tensor([[float("nan"), float("inf"), -float("inf"), 2.0, -1.0, 0.5]]), "picture")
    with splatview.frames("picture") as frames:
        assert picture(frames.latest(PATIENCE))[0, :, 0].tolist() == [0, 255, 0, 255, 0, 128]


def test_only_images_are_looked_at() -> None:
    splatview.publish({"means": torch.zeros(2, 3), "quats": torch.ones(2, 4), "scales": torch.zeros(2, 3),
                       "opacities": torch.zeros(2), "sh0": torch.zeros(2, 1, 3), "shN": torch.zeros(2, 0, 3)}, "scene")
    with splatview.frames("scene") as frames, pytest.raises(ValueError, match="shows gaussians; things are looked for"):
        picture(frames.latest(PATIENCE))
