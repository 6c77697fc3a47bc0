"""The program that looks for things: at the newest picture, with the version that it
names, whatever goes wrong.

Detectors here publish the next picture themselves, so that everything happens in one
thread and in order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.wait import PATIENCE_S

import splatview
from splatview.camera.detectors import Detector, InferenceSettings
from splatview.camera.detectors.factory import open_detector
from splatview.camera.inference import Inference

FUNCTIONS = r"""
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

def wordy(image):
    raise ValueError("\x00\n" + "word " * 10_000 + "\udc80")
"""


class InTurn:
    """Runs a detector, and publishes the next picture while it looks at one: a bright
    square that moves.
    """

    def __init__(self, detector: Detector, count: int):
        self.detector = detector
        self.count = count
        self.title = detector.title
        self.looked = 0
        self.results: list[tuple[dict[str, np.ndarray], dict[str, Any]]] = []

    def publish(self) -> None:
        image = np.zeros((96, 128, 3), np.uint8)
        x = 4 * self.looked
        image[40:56, x : x + 16] = 255
        splatview.publish(image, "camera")

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        self.looked += 1
        self.publish()
        return self.detector.detect(image)

    def enough(self) -> bool:
        """Keep the result of the picture before; return whether there are enough."""
        if self.looked:
            with splatview.frames("camera overlay", timeout=PATIENCE_S) as overlays:
                overlay = overlays.latest()
                if len(self.results) < self.looked:
                    self.results.append(
                        (
                            {k: t.numpy().copy() for k, t in overlay.tensors.items()},
                            dict(overlay.meta),
                        )
                    )
        return len(self.results) == self.count


@pytest.fixture
def infer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Look at this many pictures; tensors and meta of each result."""
    (tmp_path / "detect_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "detect_functions", raising=False)

    def run(detect: str, count: int, **settings: Any) -> list[Any]:
        detector = InTurn(
            open_detector(InferenceSettings(detect=detect, provider="cpu")), count
        )
        detector.publish()
        Inference(InferenceSettings(detect=detect, **settings), detector).run(
            detector.enough
        )
        return detector.results

    return run


def test_error_of_a_function_is_published_and_printed(
    infer: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    results = infer("detect_functions:troubled", 4)
    error_text = "detect_functions:troubled: OSError: the lamp is broken"
    assert [meta.get("trouble", "") for _, meta in results] == [
        error_text,
        "",
        error_text,
        "",
    ]
    assert [tensors["boxes"].tolist() for tensors, _ in results] == [
        [],
        [[1, 2, 3, 4]],
    ] * 2
    error_output = capsys.readouterr().err
    assert error_output.count("the lamp is broken") == 1
    assert "detect_functions.py:8" in error_output


@pytest.mark.parametrize(
    ("name", "text"),
    [("odd", "boxes"), ("leaving", "SystemExit: no more"), ("wordy", "word word")],
)
def test_result_that_cannot_be_drawn_is_published_as_an_error(
    infer: Callable[..., list[Any]], name: str, text: str
) -> None:
    for tensors, meta in infer(f"detect_functions:{name}", 2):
        assert text in meta["trouble"]
        assert meta["trouble"].isprintable()
        assert len(tensors["boxes"]) == 0


def test_function_may_return_whatever_annotate_takes(
    infer: Callable[..., list[Any]],
) -> None:
    ((tensors, meta),) = infer("detect_functions:keywords", 1)
    assert tensors["boxes"].tolist() == [[10, 20, 30, 40]]
    assert (bytes(tensors["labels"]), bytes(tensors["notes"])) == (b"lamp\0", b"seen\0")
    assert meta["by"] == "detect_functions:keywords"


def looked_at(period: Any, *versions: int | tuple[int, str]) -> list[int]:
    """Return the versions that are looked at; one of another run has its name."""
    settings = InferenceSettings(detect="people", every=period)
    inference = Inference(settings, None)  # type: ignore[arg-type]
    due = []
    for item in versions:
        version, run = (item, "run") if isinstance(item, int) else item
        frame: Any = SimpleNamespace(version=version, run=run, skipped=0)
        if inference.is_due(frame):
            due.append(version)
    return due


def test_every_nth_picture_is_looked_at_and_others_are_counted() -> None:
    assert looked_at("auto", 5, 6, 9, 10) == [5, 6, 9, 10]
    assert looked_at(3, *range(1, 14)) == [1, 3, 6, 9, 12]
    assert looked_at(3, 1, 2, 4, 5, 7, 8, 10) == [1, 4, 7, 10], (
        "the multiples themselves were not to be had"
    )
    assert looked_at(3, 7, (8, "other"), (9, "other")) == [7, 8, 9], (
        "the camera started again"
    )
