"""Outputs are decoded as a plain, slow reference decodes them."""

from __future__ import annotations

import numpy as np
import pytest
from support.detect_models import yolo

from splatview.camera.detectors import DetectorError
from splatview.camera.detectors.yolo import Layout, layout_of

SIZE = (640, 480)
COUNT = 80 * 60 + 40 * 30 + 20 * 15
"""Boxes of a network for an input of this size."""


def layout(*outputs: np.ndarray, classes: int = 0, **metadata: str) -> Layout:
    return layout_of([f"output{i}" for i in range(len(outputs))], outputs, metadata, classes)


def test_a_table_in_columns() -> None:
    rng = np.random.default_rng(0)
    boxes = np.concatenate([rng.uniform(0, SIZE, (40, 2)), rng.uniform(5, 200, (40, 2))], axis=1).astype(np.float32)
    scores = rng.uniform(0, 1, (40, 7)).astype(np.float32) ** 2
    boxes[3, 0], boxes[4, 2], scores[5, 0] = np.nan, np.inf, np.nan  # a damaged network: these three are left out
    table = yolo(boxes, scores, COUNT)
    expected = [[x - w / 2, y - h / 2, x + w / 2, y + h / 2, row.max(), row.argmax()]
                for (x, y, w, h), row in zip(boxes.astype(float), scores, strict=True)
                if np.isfinite([x, y, w, h, *row]).all() and row.max() >= 0.25]
    found = layout(table, classes=7).rows([table], 0.25)
    assert 20 < len(found) < 38
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-4)


def test_a_table_end_to_end() -> None:
    table = np.zeros((1, 300, 6), np.float32)
    table[0, :3] = [[10, 20, 110, 220, 0.9, 3], [5, 6, 7, 8, 0.1, 1], [300, 200, 400, 300, 0.5, 0]]
    found = layout(table).rows([table], 0.25)
    np.testing.assert_array_equal(found, table[0, [0, 2]])
    with pytest.raises(ValueError, match="6 numbers for each box"):
        layout(table).rows([np.zeros((1, 300, 7), np.float32)], 0.25)


def test_layouts_are_told_apart() -> None:
    masks = np.zeros((1, 32, 16, 16), np.float32)
    for outputs, classes, metadata, chosen, more in (
            (((1, 84, COUNT),), 0, {}, False, 0), (((1, 84, COUNT),), 80, {}, False, 0),
            (((1, 300, 6),), 80, {}, True, 0), (((1, 6, 6),), 2, {}, False, 0),
            (((1, 6, 6),), 2, {"args": "{'nms': True}"}, True, 0), (((1, 6, 6),), 2, {"end2end": "True"}, True, 0),
            (((1, 56, COUNT),), 1, {"kpt_shape": "[17, 3]"}, False, 51),
            (((1, 300, 57),), 1, {"kpt_shape": "[17, 3]"}, True, 51),
            (((1, 116, COUNT), masks.shape), 80, {}, False, 32), (((1, 300, 38), masks.shape), 80, {}, True, 32)):
        found = layout(*(np.zeros(shape, np.float32) for shape in outputs), classes=classes, **metadata)
        assert (found.chosen, found.more) == (chosen, more), (outputs, metadata)


def test_other_networks_are_named() -> None:
    for outputs in ((), (np.zeros((1, 1000), np.float32),), (np.zeros((2, 84, 8400), np.float32),),
                    (np.zeros((1, 84, 8400), np.int64),), (np.zeros((1, 25200, 85), np.float32),),
                    (np.zeros((1, 85, 8400), np.float32),)):
        with pytest.raises(DetectorError, match=r"Ultralytics.*module:function") as caught:
            layout(*outputs, classes=80)
        assert all(str(o.shape) in str(caught.value) for o in outputs)
