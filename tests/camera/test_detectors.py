"""Networks in ONNX files: the picture laid into the input, its outputs decoded, boxes
with names in its pixels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from support.annotate_cases import annotation_tensors
from support.detect_models import bright, fixed, yolo

import splatview
from splatview.camera.detectors import Detector, DetectorError, InferenceSettings
from splatview.camera.detectors.factory import open_detector
from splatview.camera.detectors.letterbox import Letterbox
from splatview.camera.detectors.onnx import OnnxDetector
from splatview.camera.detectors.yolo import OutputLayout, layout_of

Make = Callable[[], Detector]

PICTURE = np.zeros((480, 720, 3), np.uint8)
"""7.5 times the input of 96 x 64."""
COUNT = 12 * 8 + 6 * 4 + 3 * 2
NAMES = {"names": "{0: 'cat', 1: 'dog', 2: 'bird'}"}


def opened(path: str, **settings: Any) -> OnnxDetector:
    detector = open_detector(
        InferenceSettings(**{"detect": path, "provider": "cpu", **settings})
    )
    assert isinstance(detector, OnnxDetector)
    return detector


def table(**options: Any) -> np.ndarray:
    """Two dogs one over the other, a cat over them, and a bird that is not sure."""
    boxes = np.array(
        [[48, 32, 16, 8], [49, 32, 16, 8], [48, 32, 16, 8], [10, 10, 4, 4]], np.float32
    )
    scores = np.array(
        [[0, 0.5, 0], [0, 0.75, 0.25], [0.625, 0, 0], [0, 0, 0.125]], np.float32
    )
    return yolo(boxes, scores, COUNT, **options)


def test_boxes_with_names_in_the_pictures_pixels(tmp_path: Path) -> None:
    detector = opened(fixed(tmp_path / "pets.onnx", {"output0": table()}, NAMES))
    assert detector.title == "pets on CPU"
    annotations = detector.detect(PICTURE)
    np.testing.assert_array_equal(
        annotations["boxes"], np.array([[41, 28, 57, 36], [40, 28, 56, 36]]) * 7.5
    )
    np.testing.assert_array_equal(
        annotations["scores"], np.array([0.75, 0.625], np.float32)
    )
    assert (annotations["labels"], annotations["classes"].tolist()) == (
        ["dog", "cat"],
        [1, 0],
    )
    wide = np.zeros(
        (100, 600, 3), np.uint8
    )  # 96 x 16 of the input, 24 rows free above and below
    np.testing.assert_allclose(
        detector.detect(wide)["boxes"][0], np.array([41, 4, 57, 12]) * 6.25
    )
    low = opened(
        fixed(tmp_path / "pets.onnx", {"output0": table()}, NAMES),
        threshold=0.125,
        nms=1.0,
    )
    assert low.detect(PICTURE)["labels"] == ["dog", "cat", "dog", "bird"]
    high = opened(
        fixed(tmp_path / "pets.onnx", {"output0": table()}, NAMES), threshold=0.9
    )
    assert high.detect(PICTURE)["boxes"].shape == (0, 4)


def test_labels_name_the_classes(tmp_path: Path) -> None:
    path = fixed(tmp_path / "pets.onnx", {"output0": table()})
    assert opened(path).detect(PICTURE)["labels"] == ["class 1", "class 0"]
    (tmp_path / "mine.txt").write_text("Katze\nHund\n")
    named = fixed(tmp_path / "named.onnx", {"output0": table()}, NAMES)
    assert opened(named, labels=str(tmp_path / "mine.txt")).detect(PICTURE)[
        "labels"
    ] == ["Hund", "Katze"]
    assert opened(path, labels="coco").detect(PICTURE)["labels"] == [
        "bicycle",
        "person",
    ]
    for text in (
        "17",
        "{'a': 'person'}",
        "__import__('os').getcwd()",
        "(" * 100_000,
        "{[1]: 2}",
        "{1e999: 'cat'}",
    ):
        path = fixed(tmp_path / "pets.onnx", {"output0": table()}, {"names": text})
        assert opened(path).detect(PICTURE)["labels"] == ["class 1", "class 0"], text[
            :20
        ]


@pytest.mark.parametrize(
    ("names", "count", "labels"),
    [
        ("{0: 'cat', 1: 'dog', 2: 'bird', 3: 'cow'}", 4, ["dog", "cat"]),
        ("{0: 'cat'}", 1, ["class 1", "cat"]),
        ("['cat', 'dog', 'bird']", 3, ["dog", "cat"]),
        ('["cat", "dog", null]', 2, ["dog", "cat"]),
        ('{"0": "cat", "1": "dog", "2": null}', 2, ["dog", "cat"]),
        ("{'cat': 0, 'dog': 1, 'bird': 2}", 3, ["dog", "cat"]),
    ],
)
def test_networks_own_shape_counts_whatever_its_names_are(
    tmp_path: Path,
    names: str,
    count: int,
    labels: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = fixed(tmp_path / "pets.onnx", {"output0": table()}, {"names": names})
    annotations = opened(path).detect(PICTURE)
    assert (annotations["labels"], annotations["classes"].tolist()) == (labels, [1, 0])
    (tmp_path / "mine.txt").write_text("Katze\nHund\nVogel\n")
    named = opened(path, labels=str(tmp_path / "mine.txt"))
    assert named.detect(PICTURE)["labels"] == ["Hund", "Katze"]
    message = f"the network has 3 classes, and its metadata names {count}"
    assert (message in capsys.readouterr().err) == (count != 3)


@pytest.mark.parametrize(
    "content",
    [
        '["Katze", "Hund", "Vogel"]',
        '{"0": "Katze", "1": "Hund"}',
        "train: images\nnames:\n  0: Katze\n  1: 'Hund'  # one more\n\n  2: Vogel\nnc: "
        "3\n",
        "names:\n- Katze\n- Hund\n",
        "names: [Katze, 'Hund', Vogel]\n",
    ],
)
def test_labels_come_in_the_forms_that_others_write(
    tmp_path: Path, content: str
) -> None:
    path = fixed(tmp_path / "pets.onnx", {"output0": table()})
    (tmp_path / "names").write_text(content)
    annotations = opened(path, labels=str(tmp_path / "names")).detect(PICTURE)
    assert annotations["labels"] == ["Hund", "Katze"]


def test_oriented_boxes_lie_in_the_picture_without_overlaps(tmp_path: Path) -> None:
    """Their corners lie in the picture; of two that overlap when rotated, the better one
    is kept.
    """
    quarter = np.pi / 2
    boxes = np.array([[48, 32, 16, 8], [48, 32, 8, 16], [48, 32, 16, 8]], np.float32)
    scores = np.array([[0, 0.75], [0, 0.5], [0.625, 0]], np.float32)
    angles = np.array([[0], [quarter], [quarter]], np.float32)
    metadata = {"task": "obb", "names": "['ship', 'plane']"}
    raw = yolo(boxes, scores, COUNT, extras=angles)
    rows = np.zeros((1, 300, 7), np.float32)
    rows[0, :2] = [[*boxes[0], 0.75, 1, 0], [*boxes[2], 0.625, 0, quarter]]
    for output in (raw, rows):
        path = fixed(tmp_path / "obb.onnx", {"output0": output}, metadata)
        annotations = opened(path).detect(PICTURE)
        assert annotations["labels"] == ["plane", "ship"]
        lying = np.array([[40, 28], [56, 28], [56, 36], [40, 36]]) * 7.5
        upright = np.array([[52, 24], [52, 40], [44, 40], [44, 24]]) * 7.5
        np.testing.assert_allclose(annotations["boxes"], [lying, upright], atol=0.01)


def test_keypoints_and_masks_are_in_pixels_of_the_picture(tmp_path: Path) -> None:
    points = np.tile(np.array([48, 32, 0.5], np.float32), (4, 17))
    points[:, 0] = 24
    pose = yolo(
        table()[0, :4, [0, 43, 84, 125]],
        np.array([[0.5], [0.75], [0.25], [0]]),
        COUNT,
        extras=points,
    )
    annotations = opened(
        fixed(
            tmp_path / "pose.onnx",
            {"output0": pose},
            {"kpt_shape": "[17, 3]", "task": "pose", "names": "{0: 'person'}"},
        )
    ).detect(PICTURE)
    assert annotations["points"].shape == (len(annotations["boxes"]), 17, 3)
    np.testing.assert_allclose(
        annotations["points"][0, :2], [[180, 240, 0.5], [360, 240, 0.5]]
    )
    assert annotations["skeleton"] == "coco"
    prototypes = np.zeros((1, 8, 16, 24), np.float32)
    prototypes[0, 0] = -1
    prototypes[0, 1, 7:9, 10:14] = 4
    weights = np.tile(np.array([1, 1, 0, 0, 0, 0, 0, 0], np.float32), (4, 1))
    annotations = opened(
        fixed(
            tmp_path / "seg.onnx",
            {"output0": table(extras=weights), "output1": prototypes},
            NAMES,
        )
    ).detect(PICTURE)
    assert annotations["labels"] == ["dog", "cat"]
    h, w = annotations["masks"].shape[1:]
    rows = np.flatnonzero(annotations["masks"][1].any(axis=1))
    columns = np.flatnonzero(annotations["masks"][1].any(axis=0))
    # 40 to 56 of 96 across, and 28 to 36 of 64 down: the prototype's and the box's.
    np.testing.assert_allclose(
        [
            columns[0] / w * 96,
            (columns[-1] + 1) / w * 96,
            rows[0] / h * 64,
            (rows[-1] + 1) / h * 64,
        ],
        [40, 56, 28, 36],
        atol=4,
    )


def test_file_that_is_no_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    fixed(path, {"output0": table()})
    for content in (
        path.read_bytes()[:-100],
        b"version https://git-lfs.github.com/spec/v1",
        b"",
    ):
        path.write_bytes(content)
        with pytest.raises(DetectorError, match=r"cannot be run: not on CPU"):
            opened(str(path))
    for spec, text in (
        (str(tmp_path / "missing.onnx"), "no file"),
        ("dogs", "expected a file"),
    ):
        with pytest.raises(DetectorError, match=text):
            opened(spec)


# -- the picture in the input


def letterbox(shape: list[Any], dtype: str = "float", **metadata: str) -> Letterbox:
    return Letterbox(
        [SimpleNamespace(name="images", type=f"tensor({dtype})", shape=shape)], metadata
    )


def picture(width: int, height: int) -> np.ndarray:
    image = np.random.default_rng(0).integers(
        0, 256, (height, width, 3), dtype=np.uint8
    )
    image.flags.writeable = False
    return image


def test_letterbox_rounds_as_ultralytics_does() -> None:
    """Networks were trained with this rounding; the numbers are from its LetterBox."""
    fixed = letterbox([1, 3, 640, 640])
    for size, position in (
        ((1920, 1080), (0, 140, (640, 360))),
        ((810, 1080), (80, 0, (480, 640))),
    ):
        placement = fixed.fit(*size)
        assert (placement.left, placement.top, placement.inner) == position
    placement = letterbox([1, 3, 480, 640]).fit(641, 480)  # one row is free: below
    assert (placement.left, placement.top, placement.inner) == (0, 0, (640, 479))
    free = letterbox(["batch", 3, "height", "width"])
    for size, input_size in (
        ((1920, 1080), (640, 384)),
        ((480, 640), (480, 640)),
        ((1, 5000), (32, 640)),
    ):
        placement = free.fit(*size)
        assert (placement.input_width, placement.input_height) == input_size
    for imgsz, side in (("[320, 320]", 320), ("[9999999, -1]", 640)):
        assert letterbox([1, 3, None, None], imgsz=imgsz).trial_size == (side, side)


@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_network_gets_the_letterboxed_picture(dtype: str) -> None:
    image = picture(192, 96)
    laid, placement = letterbox([1, 3, 64, 96], dtype).prepare(image)
    assert (placement.top, placement.inner) == (8, (96, 48))
    canvas = np.full((64, 96, 3), 114, np.uint8)
    canvas[8:56] = cv2.resize(image, (96, 48), interpolation=cv2.INTER_LINEAR)
    assert laid.dtype == {"float": np.float32, "float16": np.float16}[dtype]
    assert laid.flags.c_contiguous
    tolerance = {"float": 1e-6, "float16": 1e-3}[dtype]
    rows = laid[0].transpose(1, 2, 0)
    np.testing.assert_allclose(rows, canvas / 255, atol=tolerance)


# -- tables of outputs
BOXES = 80 * 60 + 40 * 30 + 20 * 15
"""Boxes of a network for an input of this size."""


def layout(*outputs: np.ndarray, classes: int = 0, **metadata: str) -> OutputLayout:
    return layout_of(
        [f"output{i}" for i in range(len(outputs))], outputs, metadata, classes
    )


def test_end_to_end_table_is_read() -> None:
    table = np.zeros((1, 300, 6), np.float32)
    table[0, :3] = [
        [10, 20, 110, 220, 0.9, 3],
        [5, 6, 7, 8, 0.1, 1],
        [300, 200, 400, 300, 0.5, 0],
    ]
    rows = layout(table).rows([table], 0.25)
    np.testing.assert_array_equal(rows, table[0, [0, 2]])
    with pytest.raises(ValueError, match="6 numbers for each box"):
        layout(table).rows([np.zeros((1, 300, 7), np.float32)], 0.25)


def test_layouts_are_told_apart() -> None:
    masks = np.zeros((1, 32, 16, 16), np.float32)
    for outputs, classes, metadata, is_end_to_end, extras in (
        (((1, 84, BOXES),), 0, {}, False, 0),
        (((1, 300, 6),), 80, {}, True, 0),
        (((1, 6, 6),), 2, {}, False, 0),
        (((1, 85, BOXES),), 80, {}, False, 0),
        (((1, 84, BOXES),), 1, {}, False, 0),
        (((1, 20, BOXES),), 15, {"task": "obb"}, False, 1),
        (((1, 300, 7),), 15, {"task": "obb"}, True, 1),
        (((1, 6, 6),), 2, {"args": "{'nms': True}"}, True, 0),
        (((1, 6, 6),), 2, {"end2end": "True"}, True, 0),
        (((1, 56, BOXES),), 1, {"kpt_shape": "[17, 3]"}, False, 51),
        (((1, 300, 57),), 1, {"kpt_shape": "[17, 3]"}, True, 51),
        (((1, 56, BOXES),), 1, {"kpt_shape": "(17,3)"}, False, 51),
        (((1, 116, BOXES), masks.shape), 80, {}, False, 32),
        (((1, 300, 38), masks.shape), 80, {}, True, 32),
    ):
        output_layout = layout(
            *(np.zeros(shape, np.float32) for shape in outputs),
            classes=classes,
            **metadata,
        )
        assert (output_layout.is_end_to_end, output_layout.extras) == (
            is_end_to_end,
            extras,
        ), (
            outputs,
            metadata,
        )


def test_outputs_of_other_networks_are_named_in_the_error() -> None:
    for outputs in (
        (),
        (np.zeros((1, 1000), np.float32),),
        (np.zeros((2, 84, 8400), np.float32),),
        (np.zeros((1, 84, 8400), np.int64),),
        (np.zeros((1, 25200, 85), np.float32),),
    ):
        with pytest.raises(
            DetectorError, match=r"Ultralytics.*module:function"
        ) as caught:
            layout(*outputs, classes=80)
        assert all(str(o.shape) in str(caught.value) for o in outputs)


# -- what every detector does ----------------------------------------------------------


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
ALL = {
    "onnx": "bright.onnx",
    "people": "people",
    "function": "detect_conformance_module:find",
}


def people(width: int, height: int) -> np.ndarray:
    """Two people, drawn: the people detector takes them for some.

    The brightest thing is one of them.
    """
    image = np.full((480, 640, 3), 60, np.uint8)
    for middle, top, tall, tone in ((200, 60, 360, 250), (480, 100, 300, 160)):
        x = middle
        y = top
        t = tall
        cv2.circle(image, (x, round(y + t * 0.07)), round(t * 0.07), (tone,) * 3, -1)
        cv2.ellipse(
            image,
            (x, round(y + t * 0.33)),
            (round(t * 0.12), round(t * 0.2)),
            0,
            0,
            360,
            (tone,) * 3,
            -1,
        )
        for side in (-1, 1):
            cv2.line(
                image,
                (round(x + side * t * 0.05), round(y + t * 0.5)),
                (round(x + side * t * 0.09), round(y + t * 0.97)),
                (tone,) * 3,
                round(t * 0.08),
            )
            cv2.line(
                image,
                (round(x + side * t * 0.1), round(y + t * 0.2)),
                (round(x + side * t * 0.14), round(y + t * 0.5)),
                (tone,) * 3,
                round(t * 0.05),
            )
    return cv2.resize(
        cv2.GaussianBlur(image, (5, 5), 0),
        (width, height),
        interpolation=cv2.INTER_AREA,
    )


@pytest.fixture(params=list(ALL))
def make(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "detect_conformance_module.py").write_text(FUNCTION)
    spec = ALL[request.param]
    if spec.endswith(".onnx"):
        bright(tmp_path / spec, 640, 480)
    yield partial(open_detector, InferenceSettings(detect=spec))
    sys.modules.pop("detect_conformance_module", None)


def test_people_are_found_with_their_boxes(make: Make) -> None:
    detector = make()
    assert detector.title
    assert detector.title.isprintable()
    image = people(640, 480)
    annotations = detector.detect(image.copy())
    boxes = np.asarray(annotations["boxes"])
    assert boxes.shape == (len(boxes), 4)
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert (boxes >= 0).all()
    assert (boxes <= [640, 480, 640, 480]).all()
    x0, y0, x1, y1 = boxes[
        boxes[:, 0].argmin()
    ]  # the bright one, from 150 to 250 and 60 to 425
    assert 110 < x0 < 185
    assert 215 < x1 < 310
    assert 10 < y0 < 120
    assert 350 < y1 < 470
    assert len(annotations["scores"]) == len(boxes)
    assert (np.asarray(annotations["scores"]) > 0.25).all()
    assert len(annotations["classes"]) == len(boxes)
    assert np.asarray(annotations["classes"]).dtype == np.int32
    np.testing.assert_array_equal(boxes, detector.detect(image)["boxes"])


def test_odd_pictures_hold_no_people(make: Make) -> None:
    detector = make()
    splatview.publish(torch.zeros(8, 8, 3, dtype=torch.uint8), "picture")
    for width, height in ((1, 1), (63, 200), (3000, 2), (2, 3000), (64, 128)):
        annotations = detector.detect(np.full((height, width, 3), 60, np.uint8))
        assert len(annotations.get("boxes", ())) == 0
        splatview.annotate("picture", **annotations)


@pytest.fixture
def returning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Detector]:
    """A detector whose function returns the value of an expression."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(expression: str) -> Detector:
        monkeypatch.delitem(sys.modules, "detect_returning", raising=False)
        (tmp_path / "detect_returning.py").write_text(
            "import numpy as np, torch\nclass Find:\n    def __call__(self, image):\n "
            f"       return {expression}\n"
        )
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        return open_detector(InferenceSettings(detect="detect_returning:Find"))

    return make


def test_functions_may_return_boxes_in_several_forms(
    returning: Callable[[str], Detector],
) -> None:
    splatview.publish(torch.zeros(8, 8, 3, dtype=torch.uint8), "picture")
    for expression, boxes, scores, classes in (
        ("None", None, None, None),
        ("[]", None, None, None),
        ("np.empty(0)", None, None, None),
        ("[[1, 2, 3, 4]]", [[1, 2, 3, 4]], None, None),
        ("np.array([[1, 2, 3, 4, 0.5]])", [[1, 2, 3, 4]], [0.5], None),
        ("torch.tensor([[1, 2, 3, 4, 0.5, 7]])", [[1, 2, 3, 4]], [0.5], [7]),
        ("([[1, 2, 3, 4]], ['cat'], [0.5])", [[1, 2, 3, 4]], [0.5], None),
        ("np.array([[1, 2, 3, 4, 0.5, np.nan]])", [[1, 2, 3, 4]], [0.5], [-1]),
        ("torch.tensor([[1, 2, 3, 4, 0.5, 7]]).half()", [[1, 2, 3, 4]], [0.5], [7]),
    ):
        annotations = returning(expression).detect(np.zeros((8, 8, 3), np.uint8))
        for name, expected in (
            ("boxes", boxes),
            ("scores", scores),
            ("classes", classes),
        ):
            value = annotations.get(name)
            if value is not None:
                value = np.asarray(value).tolist()
            assert value == expected, expression
        splatview.annotate("picture", **annotations)


def test_functions_return_results_of_libraries(
    returning: Callable[[str], Detector],
) -> None:
    splatview.publish(torch.zeros(8, 8, 3, dtype=torch.uint8), "picture")
    modules = (
        "xyxy=np.array([[1, 2, 3, 4.0]]), confidence=np.array([0.5]), "
        "class_id=np.array([7]), data={'class_name': np.array(['cat'])}"
    )
    result = f"__import__('types').SimpleNamespace({modules})"
    for expression in (result, f"[{result}]"):
        annotations = returning(expression).detect(np.zeros((8, 8, 3), np.uint8))
        splatview.annotate("picture", **annotations)
        assert annotation_tensors(**annotations)[0]["boxes"].tolist() == [[1, 2, 3, 4]]


def test_illegal_functions_and_results_are_refused(
    returning: Callable[[str], Detector],
) -> None:
    for expression in (
        "3",
        "'boxes'",
        "(1, 2)",
        "np.zeros((2, 7))",
        "np.zeros(4)",
        "1 / 0",
    ):
        with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
            returning(expression).detect(np.zeros((8, 8, 3), np.uint8))
    for expression in ("{1, 2}", "[[[1, 2, 3, 4]], ['cat']]", "(n for n in [1])"):
        with pytest.raises(ValueError, match=r"the detector returned .* expected"):
            returning(expression).detect(np.zeros((8, 8, 3), np.uint8))
    for spec in (
        "nowhere:find",
        "detect_returning:nothing",
        "detect_returning:np",
        "detect_returning:",
        "http://x",
    ):
        with pytest.raises(DetectorError):
            open_detector(InferenceSettings(detect=spec))


@pytest.mark.cuda
@pytest.mark.parametrize("provider", ["cuda", ""])
def test_network_runs_on_the_gpu(tmp_path: Path, provider: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime knows no GPU: pip install onnxruntime-gpu")
    detector = opened(bright(tmp_path / "bright.onnx", 128, 96), provider=provider)
    assert detector.title == "bright on CUDA"
    for x in range(0, 112, 16):
        image = np.zeros((96, 128, 3), np.uint8)
        image[40:56, x : x + 16] = 255
        annotations = detector.detect(image)
        np.testing.assert_allclose(
            annotations["boxes"], [[x, 40, x + 16, 56]], atol=1e-3
        )
        np.testing.assert_allclose(annotations["scores"], [0.9], atol=1e-3)
