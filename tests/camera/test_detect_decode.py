"""What networks say is decoded as a plain, slow reference decodes it, and of overlapping boxes the surest stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.detect_models import yolo

from splatview.camera.detectors.base import DetectorError
from splatview.camera.detectors.nms import apart
from splatview.camera.detectors.recognise import KINDS, Network, recognised

if TYPE_CHECKING:
    from splatview.camera.detectors.found import Found

SIZE = (640, 480)
ONE = 80 * 60 + 40 * 30 + 20 * 15
"""Boxes of a network without anchors, for an input of this size."""


Things = list[tuple[list[float], float, int]]
"""Box, score and class of each."""


def things(seed: int = 0, count: int = 40, classes: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Boxes (N, 4), middle and extent, and scores (N, C), some under any threshold."""
    rng = np.random.default_rng(seed)
    boxes = np.concatenate([rng.uniform(0, SIZE, (count, 2)), rng.uniform(5, 200, (count, 2))], axis=1)
    return boxes.astype(np.float32), rng.uniform(0, 1, (count, classes)).astype(np.float32) ** 2


def network(*outputs: np.ndarray, names: tuple[str, ...] = (), classes: int | None = None, **metadata: str) -> Network:
    return Network(names or tuple(f"output{i}" for i in range(len(outputs))), outputs, SIZE, metadata, classes)


def plain_overlap(a: np.ndarray, b: np.ndarray) -> float:
    width = min(float(a[2]), float(b[2])) - max(float(a[0]), float(b[0]))
    height = min(float(a[3]), float(b[3])) - max(float(a[1]), float(b[1]))
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(float(x[2]) - float(x[0])) * (float(x[3]) - float(x[1])) for x in (a, b)]
    return width * height / (sum(areas) - width * height)


def plain_apart(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, overlap: float) -> list[int]:
    """Non-maximum suppression as textbooks have it: box by box, pair by pair."""
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: (-float(scores[i]), i)):
        if all(classes[i] != classes[k] or plain_overlap(boxes[i], boxes[k]) <= overlap for k in kept):
            kept.append(i)
    return kept


def plain_yolo(rows: np.ndarray, classes: int, objectness: bool, threshold: float) -> Things:
    """YOLO's table, row by row, the surest first."""
    found = []
    for row in rows:
        begin = 5 if objectness else 4
        best = max(range(classes), key=lambda c: float(row[begin + c]))
        score = np.float32(row[begin + best]) * (row[4] if objectness else np.float32(1))
        if score >= threshold:
            x, y, w, h = (float(v) for v in row[:4])
            found.append(([x - w / 2, y - h / 2, x + w / 2, y + h / 2], float(score), best))
    return sorted(found, key=lambda each: -each[1])


def same(found: Found, expected: Things) -> None:
    assert len(found) == len(expected) > 0
    np.testing.assert_allclose(found.boxes, [box for box, _, _ in expected], rtol=1e-6, atol=1e-4)
    np.testing.assert_array_equal(found.scores, np.array([score for _, score, _ in expected], np.float32))
    assert found.classes.tolist() == [number for _, _, number in expected]


@pytest.mark.parametrize(("kind", "columns", "count"), [
    ("yolov5", False, 3 * ONE), ("yolov8", True, ONE), ("yolov8", False, ONE),
])
def test_yolo(kind: str, columns: bool, count: int) -> None:
    boxes, scores = things()
    objectness = kind == "yolov5"
    table = yolo(boxes, scores, count, objectness=objectness, columns=columns)
    if objectness:
        table[0, ::3, 4] *= np.float32(0.7)
    decoder = recognised(network(table))
    assert decoder.kind == kind
    assert decoder.traits.overlapping
    rows = table[0].T if columns else table[0]
    same(decoder.decode([table], 0.25, *SIZE), plain_yolo(rows, 7, objectness, 0.25))


def test_end_to_end() -> None:
    rows = np.zeros((1, 300, 6), np.float32)
    rows[0, :3] = [[10, 20, 110, 220, 0.9, 3], [5, 6, 7, 8, 0.1, 1], [300, 200, 400, 300, 0.5, 0]]
    decoder = recognised(network(rows))
    assert (decoder.kind, decoder.traits.overlapping) == ("yolov10", False)
    same(decoder.decode([rows], 0.25, *SIZE), [([10, 20, 110, 220], float(np.float32(0.9)), 3),
                                               ([300, 200, 400, 300], 0.5, 0)])
    rows = np.array([[0, 10, 20, 110, 220, 3, 0.5], [1, 1, 2, 3, 4, 5, 0.9]], np.float32)  # the second: another picture
    decoder = recognised(network(rows))
    assert decoder.kind == "yolov7-end2end"
    same(decoder.decode([rows], 0.25, *SIZE), [([10, 20, 110, 220], 0.5, 3)])


def test_what_a_table_is() -> None:
    for shape, classes, kind, columns in (
            ((1, 84, ONE), None, "yolov8", True), ((1, 3 * ONE, 85), None, "yolov5", False),
            ((1, ONE, 85), 80, "yolov5", False), ((1, ONE, 84), 80, "yolov8", False), ((1, 85, 12), 80, "yolov5", True),
            ((1, 6, ONE), 2, "yolov8", True), ((1, ONE, 6), None, "yolov8", False),
            ((1, 300, 6), 80, "yolov10", False)):
        decoder = recognised(network(np.zeros(shape, np.float32), classes=classes))
        assert (decoder.kind, decoder.columns) == (kind, columns), shape  # type: ignore[attr-defined]


def test_what_is_none_of_these_is_named() -> None:
    for outputs in ((), (np.zeros((1, 1000), np.float32),), (np.zeros((2, 8400, 84), np.float32),),
                    (np.zeros((1, 8400, 84), np.int64),)):
        with pytest.raises(DetectorError, match="none of what can be read") as caught:
            recognised(network(*outputs))
        assert all(kind in str(caught.value) for kind in KINDS)
        assert all(str(o.shape) in str(caught.value) for o in outputs)
        for decode in ("yolov8", "yolov3"):
            with pytest.raises(DetectorError, match=f"{decode}"):
                recognised(network(*outputs), decode)


@pytest.mark.parametrize("overlap", [0.0, 0.3, 0.45, 1.0])
def test_of_overlapping_boxes_the_surest_stays(overlap: float) -> None:
    rng = np.random.default_rng(round(overlap * 100))
    low = rng.integers(0, 60, (150, 2))
    boxes = np.concatenate([low, low + rng.integers(0, 40, (150, 2))], axis=1).astype(np.float32)
    scores = rng.choice(np.linspace(0.3, 1, 30, dtype=np.float32), 150)  # many are equal
    classes = rng.integers(0, 3, 150)
    assert apart(boxes, scores, classes, overlap, 300).tolist() == plain_apart(boxes, scores, classes, overlap)
    assert apart(boxes, scores, classes, overlap, 5).tolist() == plain_apart(boxes, scores, classes, overlap)[:5]
