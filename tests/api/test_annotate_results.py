"""Results of detection libraries, given to `annotate` as they are, and rotated boxes."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.annotate_cases import annotation_tensors, texts

import splatview

NAMES = {2: "fox", 5: "hare", 7: "deer"}
XYXY = [[12.0, 8.0, 44.0, 40.0], [50.0, 20.0, 90.0, 62.0], [5.0, 50.0, 30.0, 70.0]]
SCORES = [0.875, 0.5, 0.25]


def boxes(convert: Any = torch.tensor, **changes: Any) -> SimpleNamespace:
    """Return the boxes of an Ultralytics result, whose classes are floating point."""
    fields = {
        "xyxy": convert(XYXY),
        "conf": convert(SCORES),
        "cls": convert([7.0, 2.0, 9.0]),
        "id": None,
        "orig_shape": (80, 100),
    }
    return SimpleNamespace(**(fields | changes))


def result(**fields: Any) -> SimpleNamespace:
    """Return an Ultralytics result of a picture of 100 x 80 pixels."""
    absent = dict.fromkeys(("boxes", "masks", "keypoints", "probs", "obb"))
    return SimpleNamespace(orig_shape=(80, 100), names=NAMES, **(absent | fields))


@pytest.mark.parametrize("convert", [torch.tensor, np.array])
def test_ultralytics_result_gives_all_its_parts(convert: Any) -> None:
    detected = result(boxes=boxes(convert))
    for value in (detected, [detected], (detected,)):
        tensors, meta = annotation_tensors(boxes=value)
        assert tensors["boxes"].tolist() == XYXY
        assert tensors["scores"].tolist() == SCORES
        assert tensors["classes"].tolist() == [7, 2, 9]
        assert texts(tensors["labels"]) == ["deer", "fox", "9"]
        assert (meta["width"], meta["height"]) == (100, 80)
    tensors, _ = annotation_tensors(boxes=boxes(convert))
    assert tensors["boxes"].tolist() == XYXY
    relabelled, _ = annotation_tensors(
        boxes=detected, labels=["a", "b", "c"], scores=[1, 1, 1]
    )
    assert texts(relabelled["labels"]) == ["a", "b", "c"]
    assert relabelled["scores"].tolist() == [1] * 3
    with pytest.raises(ValueError, match=r"list of 2 results.*results\[0\]"):
        annotation_tensors(boxes=[detected, detected])


def test_tracked_boxes_are_labelled_by_their_ids() -> None:
    tracked = boxes(id=torch.tensor([3.0, 11.0, 4.0]))
    tensors, _ = annotation_tensors(boxes=result(boxes=tracked))
    assert texts(tensors["labels"]) == ["id:3 deer", "id:11 fox", "id:4 9"]
    assert tensors["classes"].tolist() == [7, 2, 9]


def test_empty_ultralytics_result_makes_empty_tensors() -> None:
    nothing = boxes(xyxy=torch.empty(0, 4), conf=torch.empty(0), cls=torch.empty(0))
    for value in (result(boxes=nothing), result()):
        tensors, meta = annotation_tensors(boxes=value)
        assert tensors["boxes"].shape == (0, 4)
        assert meta["width"] == 100


def test_masks_of_a_result_lie_over_the_picture_without_the_networks_border() -> None:
    """A picture of 100 x 80 leaves 6.4 rows free above and below an input of 64 x 64."""
    masks = torch.zeros(3, 64, 64)
    masks[:, 6:58] = 1
    tensors, _ = annotation_tensors(
        boxes=result(boxes=boxes(), masks=SimpleNamespace(data=masks))
    )
    assert tensors["masks"].shape == (3, 52, 64)
    assert bool(tensors["masks"].all())
    full = SimpleNamespace(data=np.ones((3, 80, 100), bool))
    tensors, _ = annotation_tensors(boxes=result(boxes=boxes(), masks=full))
    assert tensors["masks"].shape == (3, 80, 100)


def test_keypoints_of_a_result_are_drawn_where_they_were_seen() -> None:
    points = torch.ones(3, 17, 3)
    points[0, 0] = 0
    points[1, 1] = torch.tensor([5.0, 6.0, 0.125])
    tensors, _ = annotation_tensors(
        boxes=result(boxes=boxes(), keypoints=SimpleNamespace(data=points))
    )
    visibility = tensors["points"][..., 2]
    assert visibility[0, 0] == 0
    assert visibility[1, 1] == 0
    assert int(visibility.sum()) == 3 * 17 - 2
    assert tensors["skeleton"].shape == (19, 2)
    assert tensors["point_classes"].tolist() == [7, 2, 9]


def test_classes_of_a_picture_become_a_note_over_it() -> None:
    probs = SimpleNamespace(
        data=torch.zeros(8), top5=[7, 2, 0], top5conf=torch.tensor([0.75, 0.125, 0.0])
    )
    tensors, _ = annotation_tensors(boxes=result(probs=probs))
    assert texts(tensors["notes"]) == ["deer 0.75\nfox 0.12\n0 0.00"]
    with pytest.raises(ValueError, match=r"depth alone.*publish"):
        annotation_tensors(boxes=result(depth=SimpleNamespace(data=torch.zeros(8, 8))))


def test_yolov5_result_gives_all_its_parts() -> None:
    table = torch.cat(
        (torch.tensor(XYXY), torch.tensor([[0.5, 7.0], [0.25, 2.0], [1.0, 5.0]])), 1
    )
    hub = SimpleNamespace(xyxy=[table], pred=[table], names=NAMES)
    tensors, _ = annotation_tensors(boxes=hub)
    assert tensors["boxes"].tolist() == XYXY
    assert texts(tensors["labels"]) == ["deer", "fox", "hare"]
    with pytest.raises(ValueError, match="2 pictures"):
        annotation_tensors(
            boxes=SimpleNamespace(xyxy=[table] * 2, pred=[table] * 2, names=NAMES)
        )


def detections(**changes: Any) -> SimpleNamespace:
    """Return what stands for supervision's Detections."""
    fields = {
        "xyxy": np.array(XYXY),
        "mask": None,
        "confidence": np.array(SCORES),
        "class_id": np.array([7, 2, 9]),
        "tracker_id": None,
        "data": {},
    }
    return SimpleNamespace(**(fields | changes))


def test_supervision_detections_give_all_their_parts() -> None:
    tensors, meta = annotation_tensors(boxes=detections())
    assert tensors["boxes"].tolist() == XYXY
    assert tensors["scores"].tolist() == SCORES
    assert texts(tensors["labels"]) == ["7", "2", "9"]
    assert meta["width"] == 0
    named = {"class_name": np.array(["deer", "fox", "owl"])}
    tensors, _ = annotation_tensors(boxes=detections(data=named))
    assert texts(tensors["labels"]) == ["deer", "fox", "owl"]
    tracked = detections(data=named, tracker_id=np.array([3, 11, 4]))
    tensors, _ = annotation_tensors(boxes=tracked)
    assert texts(tensors["labels"]) == ["id:3 deer", "id:11 fox", "id:4 owl"]
    bare = detections(confidence=None, class_id=None)
    tensors, _ = annotation_tensors(boxes=bare)
    assert set(tensors) == {"boxes"}
    masked = detections(mask=np.ones((3, 8, 10), bool))
    tensors, _ = annotation_tensors(boxes=masked)
    assert tensors["masks"].shape == (3, 8, 10)
    empty = detections(
        xyxy=np.empty((0, 4)), confidence=np.empty(0), class_id=np.empty(0, int)
    )
    tensors, _ = annotation_tensors(boxes=empty)
    assert tensors["boxes"].shape == (0, 4)


def test_supervision_keypoints_give_all_their_parts() -> None:
    points = SimpleNamespace(
        xy=np.array([[[1.0, 2.0], [0.0, 0.0], [3.0, 4.0]]], np.float32),
        class_id=np.array([4]),
        confidence=np.array([[1.0, 1.0, 0.0]], np.float32),
        data={},
    )
    tensors, _ = annotation_tensors(boxes=points)
    assert tensors["points"].tolist() == [[[1, 2, 1], [0, 0, 0], [3, 4, 0]]]
    assert tensors["point_classes"].tolist() == [4]


ROTATED = [[30.0, 20.0], [34.0, 24.0], [24.0, 34.0], [20.0, 30.0]]
"""A box of 5.7 x 14.1 that is rotated by 45 degrees."""


def test_rotated_boxes_keep_their_corners() -> None:
    long = math.hypot(10, 10)
    short = math.hypot(4, 4)
    for value, form in (
        ([ROTATED], None),
        (ROTATED, None),
        ([[30.0, 20, 34, 24, 24, 34, 20, 30]], "xyxyxyxy"),
        ([[27.0, 27.0, short, long, math.pi / 4]], "xywhr"),
        (detections(data={"xyxyxyxy": np.array([ROTATED] * 3)}), None),
        (result(obb=boxes(xyxyxyxy=torch.tensor([ROTATED] * 3))), None),
    ):
        tensors, _ = annotation_tensors(boxes=value, format=form)
        count = len(tensors["boxes"])
        expected = torch.tensor([[20.0, 20.0, 34.0, 34.0]] * count)
        torch.testing.assert_close(tensors["boxes"], expected)
        corners = tensors["corners"][0].tolist()
        for corner in ROTATED:
            nearest = min(math.dist(corner, point) for point in corners)
            assert nearest < 1e-3, form
    tensors, _ = annotation_tensors(boxes=np.empty((0, 4, 2)))
    assert set(tensors) == {"boxes"}
    for value, form in (([ROTATED], "xywhr"), ([[1, 2, 3, 4, 5]], "xyxyxyxy")):
        with pytest.raises(ValueError, match=r"boxes have shape.*format"):
            annotation_tensors(boxes=value, format=form)
    with pytest.raises(ValueError, match='format="xywhr"'):
        annotation_tensors(boxes=[[1, 2, 3, 4, 5]])


def test_boxes_that_look_like_fractions_are_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    splatview.publish(torch.zeros(48, 64, 3, dtype=torch.uint8), "fractions")
    with caplog.at_level(logging.WARNING, "splatview"):
        splatview.annotate("fractions", boxes=[[0.25, 0.5, 0.75, 1]], size=(1, 1))
        splatview.annotate("fractions", boxes=[[0, 0, 1, 1]])
        splatview.annotate("fractions", boxes=[[0.25, 0.5, 10, 12]])
        splatview.annotate("fractions", boxes=np.empty((0, 4)))
        assert not caplog.records
        for _ in range(3):
            splatview.annotate("fractions", boxes=[[0.25, 0.5, 0.75, 1]])
    assert len(caplog.records) == 1
    assert "'fractions'" in caplog.text
    assert "size=(1, 1)" in caplog.text


def test_mapping_passed_as_boxes_is_refused_with_advice() -> None:
    """torchvision and transformers return such mappings."""
    detected = {
        "boxes": torch.tensor([[1.0, 2, 3, 4]]),
        "labels": torch.tensor([7]),
        "scores": torch.tensor([0.5]),
    }
    with pytest.raises(TypeError, match=r"annotate\(name, \*\*result\)"):
        annotation_tensors(boxes=detected)
    tensors, _ = annotation_tensors(**detected)
    assert tensors["classes"].tolist() == [7]


def test_class_without_a_name_is_labelled_by_its_number() -> None:
    detected = result(boxes=boxes())
    detected.names = {2: None, 7: "deer"}
    tensors, _ = annotation_tensors(boxes=detected)
    assert texts(tensors["labels"]) == ["deer", "2", "9"]
