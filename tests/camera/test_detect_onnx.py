"""Networks in ONNX files, from a picture to boxes with names in its pixels; and files that nobody should have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.detect_models import fixed, save, yolo

from splatview.camera.detectors import DetectorError, InferenceSettings, open_detector
from splatview.camera.detectors.onnx import OnnxDetector

if TYPE_CHECKING:
    from pathlib import Path

PICTURE = np.zeros((480, 720, 3), np.uint8)
"""7.5 times the input of 96 x 64."""
COUNT = 12 * 8 + 6 * 4 + 3 * 2
NAMES = {"names": "{0: 'cat', 1: 'dog', 2: 'bird'}"}


def opened(path: str, **settings: Any) -> OnnxDetector:
    detector = open_detector(InferenceSettings(**{"detect": path, "provider": "cpu", **settings}))
    assert isinstance(detector, OnnxDetector)
    return detector


def table(**more: Any) -> np.ndarray:
    """Two dogs one over the other, a cat over them, and a bird that is not sure."""
    boxes = np.array([[48, 32, 16, 8], [49, 32, 16, 8], [48, 32, 16, 8], [10, 10, 4, 4]], np.float32)
    scores = np.array([[0, 0.5, 0], [0, 0.75, 0.25], [0.625, 0, 0], [0, 0, 0.125]], np.float32)
    return yolo(boxes, scores, COUNT, **more)


def test_boxes_with_names_in_the_pictures_pixels(tmp_path: Path) -> None:
    detector = opened(fixed(tmp_path / "pets.onnx", {"output0": table()}, NAMES))
    assert detector.by == "pets on CPU"
    found = detector.detect(PICTURE)
    np.testing.assert_array_equal(found["boxes"], np.array([[41, 28, 57, 36], [40, 28, 56, 36]]) * 7.5)
    np.testing.assert_array_equal(found["scores"], np.array([0.75, 0.625], np.float32))
    assert (found["labels"], found["classes"].tolist()) == (["dog", "cat"], [1, 0])
    wide = np.zeros((100, 600, 3), np.uint8)  # 96 x 16 of the input, 24 rows free above and below
    np.testing.assert_allclose(detector.detect(wide)["boxes"][0], np.array([41, 4, 57, 12]) * 6.25)
    low = opened(fixed(tmp_path / "pets.onnx", {"output0": table()}, NAMES), threshold=0.125, nms=1.0)
    assert low.detect(PICTURE)["labels"] == ["dog", "cat", "dog", "bird"]
    high = opened(fixed(tmp_path / "pets.onnx", {"output0": table()}, NAMES), threshold=0.9)
    assert high.detect(PICTURE)["boxes"].shape == (0, 4)


def test_labels(tmp_path: Path) -> None:
    path = fixed(tmp_path / "pets.onnx", {"output0": table()})
    assert opened(path).detect(PICTURE)["labels"] == ["class 1", "class 0"]
    (tmp_path / "mine.txt").write_text("Katze\nHund\n")
    named = fixed(tmp_path / "named.onnx", {"output0": table()}, NAMES)
    assert opened(named, labels=str(tmp_path / "mine.txt")).detect(PICTURE)["labels"] == ["Hund", "Katze"]
    assert opened(path, labels="coco").detect(PICTURE)["labels"] == ["bicycle", "person"]
    for text in ("person", "17", "{'a': 'person'}", "__import__('os').getcwd()", "(" * 100_000, "{0: 'a'" * 50,
                 "['cat', 'dog']", "{[1]: 2}"):
        path = fixed(tmp_path / "pets.onnx", {"output0": table()}, {"names": text})
        assert opened(path).detect(PICTURE)["labels"] == ["class 1", "class 0"], text[:20]


def test_files_of_labels_that_cannot_be_read(tmp_path: Path) -> None:
    network, path = fixed(tmp_path / "pets.onnx", {"output0": table()}), tmp_path / "labels.txt"
    for content in (None, b"", b"\n# none\n", b"\xff\xfe\x00"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DetectorError, match="a name on each line, or coco") as caught:
            opened(network, labels=str(path))
        assert str(path) in str(caught.value) and len(str(caught.value)) < 1000


def test_points_and_masks(tmp_path: Path) -> None:
    points = np.tile(np.array([48, 32, 0.5], np.float32), (4, 17))
    points[:, 0] = 24
    pose = yolo(table()[0, :4, [0, 43, 84, 125]], np.array([[0.5], [0.75], [0.25], [0]]), COUNT, rest=points)
    found = opened(fixed(tmp_path / "pose.onnx", {"output0": pose},
                         {"kpt_shape": "[17, 3]", "task": "pose", "names": "{0: 'person'}"})).detect(PICTURE)
    assert found["points"].shape == (len(found["boxes"]), 17, 3)
    np.testing.assert_allclose(found["points"][0, :2], [[180, 240, 0.5], [360, 240, 0.5]])
    assert found["skeleton"] == "coco"
    prototypes = np.zeros((1, 8, 16, 24), np.float32)
    prototypes[0, 0] = -1
    prototypes[0, 1, 7:9, 10:14] = 4
    weights = np.tile(np.array([1, 1, 0, 0, 0, 0, 0, 0], np.float32), (4, 1))
    found = opened(fixed(tmp_path / "seg.onnx", {"output0": table(rest=weights), "output1": prototypes},
                         NAMES)).detect(PICTURE)
    assert found["labels"] == ["dog", "cat"]
    h, w = found["masks"].shape[1:]
    rows, columns = np.flatnonzero(found["masks"][1].any(axis=1)), np.flatnonzero(found["masks"][1].any(axis=0))
    # 40 to 56 of 96 across, and 28 to 36 of 64 down: the prototype's and the box's.
    np.testing.assert_allclose([columns[0] / w * 96, (columns[-1] + 1) / w * 96, rows[0] / h * 64,
                                (rows[-1] + 1) / h * 64], [40, 56, 28, 36], atol=4)


def test_what_is_no_network(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("version https://git-lfs.github.com/spec/v1")
    (tmp_path / "empty.onnx").write_bytes(b"")
    (tmp_path / "folder.onnx").mkdir()
    good = fixed(tmp_path / "cut.onnx", {"output0": table()})
    (tmp_path / "cut.onnx").write_bytes((tmp_path / "cut.onnx").read_bytes()[:-100])
    for path in (tmp_path / "text.onnx", tmp_path / "empty.onnx", good):
        with pytest.raises(DetectorError, match=r"cannot be run: not on CPU"):
            opened(str(path))
    for path in (tmp_path / "folder.onnx", tmp_path / "missing.onnx"):
        with pytest.raises(DetectorError, match=r"no file .*give a file MODEL\.onnx, people, or module:function"):
            opened(str(path))
    with pytest.raises(DetectorError, match="legal are a file"):
        open_detector(InferenceSettings(detect="dogs"))


def test_outputs_that_are_too_large(tmp_path: Path) -> None:
    """Refused before it is run where the file says so, and else before it is looked at."""
    huge = helper.make_tensor_value_info("output0", TensorProto.FLOAT, (1, 84, 100_000_000))
    nodes = [helper.make_node("ConstantOfShape", ["shape"], ["output0"])]
    path = save(tmp_path / "huge.onnx", nodes, (1, 3, 64, 96), [huge],
                constants={"shape": np.array([1, 84, 100_000_000])})
    with pytest.raises(DetectorError, match="8400000000 numbers; at most"):
        opened(path)
    secret = helper.make_tensor_value_info("output0", TensorProto.FLOAT, (1, 7, "n"))
    path = save(tmp_path / "secret.onnx", nodes, (1, 3, 64, 96), [secret],
                constants={"shape": np.array([1, 7, 10_000_000])})
    with pytest.raises(DetectorError, match="70000000 numbers; at most"):
        opened(path)
