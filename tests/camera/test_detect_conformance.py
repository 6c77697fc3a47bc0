"""What every detector does, whichever it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
import torch
from support.detect_models import bright

import splatview
from splatview.camera.detectors import DetectorError, InferenceSettings, open_detector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from splatview.camera.detectors import Detector

    Make = Callable[[], Detector]

FUNCTION = """
import numpy as np

def find(image):
    bright = np.argwhere((image > 192).all(axis=2))
    if not len(bright):
        return np.empty((0, 6))
    (y0, x0), (y1, x1) = bright.min(axis=0), bright.max(axis=0) + 1
    image[:] = 0  # it is ours
    return [[x0, y0, x1, y1, 0.9, 0]]
"""
ALL = {"onnx": "bright.onnx", "people": "people", "function": "detect_conformance_module:find"}


def people(width: int, height: int) -> np.ndarray:
    """Two people, drawn: the people detector takes them for some. The brightest thing is one of them."""
    image = np.full((480, 640, 3), 60, np.uint8)
    for middle, top, tall, tone in ((200, 60, 360, 250), (480, 100, 300, 160)):
        x, y, t = middle, top, tall
        cv2.circle(image, (x, round(y + t * 0.07)), round(t * 0.07), (tone,) * 3, -1)
        cv2.ellipse(image, (x, round(y + t * 0.33)), (round(t * 0.12), round(t * 0.2)), 0, 0, 360, (tone,) * 3, -1)
        for side in (-1, 1):
            cv2.line(image, (round(x + side * t * 0.05), round(y + t * 0.5)),
                     (round(x + side * t * 0.09), round(y + t * 0.97)), (tone,) * 3, round(t * 0.08))
            cv2.line(image, (round(x + side * t * 0.1), round(y + t * 0.2)),
                     (round(x + side * t * 0.14), round(y + t * 0.5)), (tone,) * 3, round(t * 0.05))
    return cv2.resize(cv2.GaussianBlur(image, (5, 5), 0), (width, height), interpolation=cv2.INTER_AREA)


@pytest.fixture(params=list(ALL))
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "detect_conformance_module.py").write_text(FUNCTION)
    what = ALL[request.param]
    if what.endswith(".onnx"):
        bright(tmp_path / what, 640, 480)
    yield lambda: open_detector(InferenceSettings(detect=what))
    sys.modules.pop("detect_conformance_module", None)


def test_finds_and_says_where(make: Make) -> None:
    detector = make()
    assert detector.by and detector.by.isprintable()
    image = people(640, 480)
    found = detector.detect(image.copy())
    boxes = np.asarray(found["boxes"])
    assert boxes.shape == (len(boxes), 4) and (boxes[:, 2:] > boxes[:, :2]).all()
    assert (boxes >= 0).all() and (boxes <= [640, 480, 640, 480]).all()
    x0, y0, x1, y1 = boxes[boxes[:, 0].argmin()]  # the bright one, from 150 to 250 and 60 to 425
    assert 110 < x0 < 185 and 215 < x1 < 310 and 10 < y0 < 120 and 350 < y1 < 470
    assert len(found["scores"]) == len(boxes) and (np.asarray(found["scores"]) > 0.25).all()
    assert len(found["classes"]) == len(boxes) and np.asarray(found["classes"]).dtype == np.int32
    np.testing.assert_array_equal(boxes, detector.detect(image)["boxes"])


def test_the_same_place_in_any_size(make: Make) -> None:
    """Pictures may change their size at any time: boxes are in the pixels of each."""
    detector = make()
    for width, height in ((640, 480), (1280, 960), (960, 720)):
        found = detector.detect(people(width, height))
        boxes = np.asarray(found["boxes"])
        middle = boxes[boxes[:, 0].argmin()].reshape(2, 2).mean(axis=0) / (width, height)
        np.testing.assert_allclose(middle, [200 / 640, 240 / 480], atol=0.08)


def test_nothing_in_odd_pictures(make: Make) -> None:
    detector = make()
    splatview.publish(torch.zeros(8, 8, 3, dtype=torch.uint8), "picture")
    for width, height in ((1, 1), (63, 200), (3000, 2), (2, 3000), (64, 128)):
        found = detector.detect(np.full((height, width, 3), 60, np.uint8))
        assert len(found.get("boxes", ())) == 0
        splatview.annotate("picture", **found)


def test_functions_that_cannot_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "detect_broken.py").write_text("raise OSError('no such thing')")
    (tmp_path / "detect_leaving.py").write_text("raise SystemExit(3)")
    (tmp_path / "detect_fine.py").write_text(
        "number = 3\nclass Mute: pass\nclass Heavy:\n    def __init__(self): raise OSError('heavy')\n")
    for what in ("nowhere:find", "detect_broken:find", "detect_leaving:find", "detect_fine:find", "detect_fine:number",
                 "detect_fine:Heavy", "detect_fine:Mute", "detect_fine:", "http://x"):
        with pytest.raises(DetectorError):
            open_detector(InferenceSettings(detect=what))


@pytest.fixture
def returning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Detector]:
    """A detector whose function returns the value of an expression."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(expression: str) -> Detector:
        monkeypatch.delitem(sys.modules, "detect_returning", raising=False)
        (tmp_path / "detect_returning.py").write_text(
            f"import numpy as np, torch\nclass Find:\n    def __call__(self, image):\n        return {expression}\n")
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return open_detector(InferenceSettings(detect="detect_returning:Find"))

    return make


def test_what_functions_return(returning: Callable[[str], Detector]) -> None:
    splatview.publish(torch.zeros(8, 8, 3, dtype=torch.uint8), "picture")
    for expression, boxes, scores, classes in (
            ("None", None, None, None), ("[]", None, None, None), ("np.empty(0)", None, None, None),
            ("[[1, 2, 3, 4]]", [[1, 2, 3, 4]], None, None),
            ("np.array([[1, 2, 3, 4, 0.5]])", [[1, 2, 3, 4]], [0.5], None),
            ("torch.tensor([[1, 2, 3, 4, 0.5, 7]])", [[1, 2, 3, 4]], [0.5], [7]),
            ("([[1, 2, 3, 4]], ['cat'], [0.5])", [[1, 2, 3, 4]], [0.5], None)):
        found = returning(expression).detect(np.zeros((8, 8, 3), np.uint8))
        for name, expected in (("boxes", boxes), ("scores", scores), ("classes", classes)):
            value = found.get(name)
            assert expected == (None if value is None else np.asarray(value).tolist()), expression
        splatview.annotate("picture", **found)


def test_what_functions_may_not_return(returning: Callable[[str], Detector]) -> None:
    for expression in ("3", "'boxes'", "(1, 2)", "np.zeros((2, 7))", "np.zeros(4)", "1 / 0"):
        with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
            returning(expression).detect(np.zeros((8, 8, 3), np.uint8))
