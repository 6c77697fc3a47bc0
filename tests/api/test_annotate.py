"""`annotate`: every form that it takes, which pictures its results lie over, and how
they are taken away.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.annotate_cases import annotation_tensors, texts
from support.reading import newest, stream_of
from support.wait import PATIENCE_S

import splatview
from splatview.adapters.overlay_shapes import COCO_SKELETON

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.pair import OtherRun

    from splatview_ipc.subscriber.subscriber import Subscriber


BOXES = [[1.0, 2.0, 30.0, 40.5], [5.0, 6.0, 20.0, 20.0]]
NAN = math.nan


class ByArrayInterface:
    """Stands for an array of a library that has NumPy's interface alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize(
    "boxes",
    [
        tuple(map(tuple, BOXES)),
        np.array(BOXES, np.float16),
        np.array(BOXES).astype(">f8"),
        np.array(BOXES)[::-1][::-1],
        torch.tensor(BOXES, dtype=torch.bfloat16),
        torch.nn.Parameter(torch.tensor(BOXES)),
        [torch.tensor(row) for row in BOXES],
        torch.tensor(BOXES).T.contiguous().T,
        ByArrayInterface(np.array(BOXES)),
    ],
)
def test_annotate_takes_boxes_of_any_library(boxes: Any) -> None:
    tensors, meta = annotation_tensors(boxes=boxes)
    assert set(tensors) == {"boxes"}
    assert tensors["boxes"].tolist() == BOXES
    assert tensors["boxes"].dtype == torch.float32
    assert not tensors["boxes"].requires_grad
    assert meta == {"width": 0, "height": 0}


@pytest.mark.parametrize(
    ("form", "box"),
    [
        ("xyxy", [10, 20, 40, 60]),
        ("xywh", [10, 20, 30, 40]),
        ("cxcywh", [25, 40, 30, 40]),
        (None, [10, 20, 40, 60]),
    ],
)
def test_annotate_converts_boxes_of_each_format(
    form: str | None, box: list[int]
) -> None:
    for boxes in ([box, box], box):
        tensors, _ = annotation_tensors(boxes=boxes, format=form)
        assert tensors["boxes"][0].tolist() == [10, 20, 40, 60]


@pytest.mark.parametrize("empty", [[], np.zeros((0, 4)), torch.zeros(0)])
def test_empty_results_make_empty_tensors(empty: Any) -> None:
    tensors, _ = annotation_tensors(
        boxes=empty,
        labels=[],
        scores=[],
        masks=[],
        points=[],
        lines=[],
        notes=[],
        colors=[],
    )
    assert tensors["boxes"].shape == (0, 4)
    assert not any(t.numel() for t in tensors.values())
    tensors, _ = annotation_tensors(
        boxes=empty,
        classes=[],
        colors={1: "#ff0000"},
        point_classes=[],
        points=[],
        skeleton="coco",
    )
    assert tensors["boxes"].shape == (0, 4)


def test_annotate_copies_the_callers_tensors() -> None:
    arguments: dict[str, Any] = {
        "boxes": torch.ones(3, 4),
        "points": torch.ones(2, 5, 3),
        "lines": torch.ones(4, 2),
        "classes": torch.ones(3, dtype=torch.int32),
        "scores": torch.ones(3),
    }
    tensors, _ = annotation_tensors(**arguments)
    for value in arguments.values():
        value.fill_(7)
    assert {float(tensors[name].max()) for name in arguments} == {1.0}


def test_boxes_that_are_not_finite_are_counted_in_trouble() -> None:
    boxes = [
        [0, 0, 1, 1],
        [NAN, 0, 1, 1],
        [0, 0, math.inf, 1],
        [-math.inf, 0, math.inf, 0],
        [3e38] * 4,
    ]
    tensors, meta = annotation_tensors(boxes=boxes)
    assert meta["trouble"].startswith("3 of 5 boxes")
    assert len(tensors["boxes"]) == 5
    _, meta = annotation_tensors(boxes=boxes, trouble="other")
    assert meta["trouble"] == "other"


def test_labels_become_texts() -> None:
    labels = ["person", "Hündchen 犬"]
    for form in (labels, np.array(labels), np.array(labels, object)):
        tensors, _ = annotation_tensors(boxes=BOXES, labels=form)
        assert texts(tensors["labels"]) == labels
    tensors, _ = annotation_tensors(boxes=BOXES, labels="cat")
    assert texts(tensors["labels"]) == ["cat", "cat"]
    tensors, _ = annotation_tensors(boxes=BOXES, labels=[None, "dog"])
    assert texts(tensors["labels"]) == ["", "dog"]


@pytest.mark.parametrize(
    "names", [["person", "dog", "cat"], {np.int64(2): "cat", 0: "person"}]
)
def test_classes_are_labelled_by_their_names(names: Any) -> None:
    tensors, _ = annotation_tensors(
        boxes=[*BOXES, BOXES[0], BOXES[1]], labels=[2, 0, -1, 7], names=names
    )
    assert texts(tensors["labels"]) == ["cat", "person", "", "7"]
    tensors, _ = annotation_tensors(boxes=BOXES, labels=["cat", "person"], names=names)
    assert tensors["classes"].tolist() == [2, 0]


def test_classes_and_scores_stand_beside_labels() -> None:
    tensors, _ = annotation_tensors(
        boxes=BOXES, labels=["track 1", "track 2"], classes=[4, 4], scores=[0.5, None]
    )
    assert texts(tensors["labels"]) == ["track 1", "track 2"]
    assert tensors["classes"].tolist() == [4, 4]
    assert tensors["scores"][0] == 0.5
    assert tensors["scores"][1].isnan()
    tensors, _ = annotation_tensors(boxes=BOXES, scores=torch.tensor([[0.5], [0.25]]))
    assert tensors["scores"].tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    "colors",
    [
        np.array([[255, 0, 0, 255], [0, 128, 255, 255]], np.uint8),
        [(1.0, 0.0, 0.0), (0.0, 128 / 255, 1.0)],
        torch.tensor([[1, 0, 0, 1], [0, 0.502, 1, 1]], dtype=torch.bfloat16),
        ["#ff0000", "#0080FFff"],
        ["#ff0000", (0, 128, 255)],
    ],
)
def test_each_form_of_color_gives_the_same_bytes(colors: Any) -> None:
    tensors, _ = annotation_tensors(boxes=BOXES, colors=colors)
    assert tensors["colors"].tolist() == [[255, 0, 0, 255], [0, 128, 255, 255]]


def test_colors_apply_to_all_boxes_or_to_a_class() -> None:
    for arguments, colors in (
        ({"colors": "#ff000080"}, [[255, 0, 0, 128]] * 2),
        # Zeros: the viewer gives the box the color of its class.
        (
            {"labels": [1, 7], "colors": {1: "#010203", 3: (4, 5, 6, 7)}},
            [[1, 2, 3, 255], [0] * 4],
        ),
        (
            {"labels": ["dog", "cat"], "colors": {"cat": (0.0, 1.0, 0.0)}},
            [[0] * 4, [0, 255, 0, 255]],
        ),
        (
            {"labels": [0, 1], "names": ["dog", "cat"], "colors": {"cat": "#ffffff"}},
            [[0] * 4, [255] * 4],
        ),
    ):
        tensors, _ = annotation_tensors(boxes=BOXES, **arguments)
        assert tensors["colors"].tolist() == colors


def test_order_names_the_parts_of_a_result() -> None:
    boxes = torch.tensor(BOXES)
    scores = torch.tensor([0.5, 0.25])
    classes = torch.tensor([3, 1])
    for order, result in (
        ("boxes,scores,classes", (boxes, scores, classes)),
        ("classes, boxes, scores", (classes, boxes, scores)),
    ):
        tensors, _ = annotation_tensors(
            boxes=result, order=order, names=["a", "b", "c", "d"]
        )
        assert tensors["boxes"].tolist() == BOXES
        assert tensors["scores"].tolist() == [0.5, 0.25]
        assert texts(tensors["labels"]) == ["d", "b"]
    for order, result in (
        ("boxes,score", (boxes, scores)),
        ("boxes,scores", (boxes, scores, classes)),
        ("scores,classes", (scores, classes)),
        (["boxes"], (boxes, scores, classes)),
        ("boxes,labels,scores", np.zeros((3, 4))),
    ):
        with pytest.raises(ValueError, match="order"):
            annotation_tensors(boxes=result, order=order)


def test_points_keep_scores_skeleton_and_classes() -> None:
    tensors, _ = annotation_tensors(points=[(1, 2), (3, 4)])
    assert tensors["points"].tolist() == [[[1, 2, 1], [3, 4, 1]]]
    points = torch.rand(3, 17, 3, generator=torch.manual_seed(0))
    tensors, _ = annotation_tensors(
        points=points, skeleton="coco", point_classes=[0, 5, -1]
    )
    assert torch.equal(tensors["points"], points)
    assert tensors["boxes"].shape == (0, 4)
    assert tensors["skeleton"].tolist() == [list(pair) for pair in COCO_SKELETON]
    assert tensors["point_classes"].tolist() == [0, 5, -1]
    tensors, _ = annotation_tensors(points=points.tolist(), skeleton=[(0, 16)])
    assert tensors["skeleton"].tolist() == [[0, 16]]


@pytest.mark.parametrize(
    ("lines", "vertices", "ends"),
    [
        ([(0, 1), (2, 3), (4, 5)], [[0, 1], [2, 3], [4, 5]], [3]),
        (torch.arange(8).reshape(2, 2, 2), [[0, 1], [2, 3], [4, 5], [6, 7]], [2, 4]),
        ([[(0, 1), (2, 3)], [(4, 5)]], [[0, 1], [2, 3], [4, 5]], [2, 3]),
        (
            [np.array([[0, 1]]), torch.tensor([[2, 3], [4, 5]])],
            [[0, 1], [2, 3], [4, 5]],
            [1, 3],
        ),
        ([np.zeros((0, 2)), np.array([[0, 1], [2, 3]])], [[0, 1], [2, 3]], [0, 2]),
        ([], [], []),
    ],
)
def test_lines_of_each_form_become_vertices_and_ends(
    lines: Any, vertices: list[list[float]], ends: list[int]
) -> None:
    classes = list(range(len(ends)))
    tensors, _ = annotation_tensors(lines=lines, line_classes=classes)
    assert tensors["lines"].reshape(-1, 2).tolist() == vertices
    assert tensors["line_ends"].tolist() == ends
    assert tensors["line_classes"].tolist() == classes


def test_notes_become_texts_at_positions() -> None:
    for notes, positions, expected in (
        ("two\nlines", [[0, 0]], ["two\nlines"]),
        (
            [(1, 2.5, "a"), (np.float32(3), torch.tensor(4), "b")],
            [[1, 2.5], [3, 4]],
            ["a", "b"],
        ),
    ):
        tensors, _ = annotation_tensors(notes=notes)
        assert tensors["notes_at"].tolist() == positions
        assert texts(tensors["notes"]) == expected


# ---- masks


SIX = np.zeros((6, 4))
MASKS = np.random.default_rng(0).random((6, 23, 37)) < 0.5
MASKS[0] = False
MASKS[1] = True
MASKS[2, :, 5:] = False
RUNS = [40, 3, 100, 2, 300, 7, 399]
CODED = b"X13T3OX65S3"
"""Runs of a mask of 37 x 23 pixels, column by column, the first one outside; and as
COCO compresses them."""
RUNS_MASK = np.repeat([i % 2 == 1 for i in range(len(RUNS))], RUNS).reshape(37, 23).T


@pytest.mark.parametrize(
    "masks",
    [
        torch.from_numpy(MASKS),
        MASKS.astype(np.uint8) * 255,
        torch.from_numpy(MASKS).to(torch.bfloat16),
        torch.from_numpy(MASKS)[:, None].float(),
        list(torch.from_numpy(MASKS)),
        MASKS.tolist(),
        np.asfortranarray(MASKS),
        np.where(MASKS, 0.51, 0.5),
    ],
)
def test_masks_of_each_form_become_bytes(masks: Any) -> None:
    tensors, meta = annotation_tensors(boxes=SIX, masks=masks)
    assert tensors["masks"].dtype == torch.uint8
    assert meta["width"] == 0
    assert np.array_equal(tensors["masks"].numpy() != 0, MASKS)


@pytest.mark.parametrize(
    "counts", [RUNS, np.array(RUNS, np.uint32), CODED, CODED.decode()], ids=str
)
def test_masks_of_coco_are_decoded(counts: Any) -> None:
    mask = {"size": [23, 37], "counts": counts}
    for form, count in (([mask] * 6, 6), (mask, 1)):
        tensors, _ = annotation_tensors(boxes=SIX[:count], masks=form)
        masks = tensors["masks"].numpy()
        assert len(masks) == count
        assert (masks.astype(bool) == RUNS_MASK).all()


def test_masks_alone_get_boxes_around_them() -> None:
    boxes = np.array([[0, 0, 37, 23]] * 6, float)
    boxes[0] = NAN
    boxes[2, 2] = 5
    for options, size, scale in (
        ({}, (37, 23), 1),
        ({"size": (74, 92)}, (74, 92), [2, 4, 2, 4]),
    ):
        tensors, meta = annotation_tensors(masks=MASKS, labels="road", **options)
        np.testing.assert_array_equal(tensors["boxes"].numpy(), boxes * scale)
        assert (meta["width"], meta["height"]) == size
        assert "trouble" not in meta
    tensors, _ = annotation_tensors(masks={"size": [23, 37], "counts": RUNS})
    assert tensors["boxes"].tolist() == [[1, 5, 20, 20]]


# ---- frames that results belong to

IMAGE = torch.zeros(48, 64, 3, dtype=torch.uint8)


def test_results_belong_to_the_frames_that_they_were_computed_on(
    other_run: Callable[[], OtherRun], subscriber: Subscriber
) -> None:
    camera = other_run()
    with splatview.frames("camera", timeout=PATIENCE_S) as frames:
        for n in range(4):
            camera.show(torch.full((48, 64, 3), n + 50, dtype=torch.uint8), "camera")
            frame = next(frames)
            options: dict[str, Any] = {}
            if n % 2 == 0:
                options["version"] = frame
            box = [float(frame.tensor[0, 0, 0])] * 4
            splatview.annotate("camera", boxes=box, **options)
            _, meta, tensors = newest(subscriber, "camera overlay", n)
            assert (meta["version"], meta["time_ns"]) == (frame.version, frame.time_ns)
            assert tensors["boxes"].tolist() == [[n + 50] * 4]


def test_annotation_arrives_with_the_version_it_belongs_to(
    subscriber: Subscriber,
) -> None:
    for _ in range(3):
        splatview.publish(IMAGE, "camera")
    splatview.annotate(
        "camera",
        boxes=BOXES,
        labels=["person", "dog"],
        scores=[0.9, 0.5],
        by="a test",
        notes="hello",
        lines=[(0, 0), (5, 5)],
    )
    version, meta, tensors = newest(subscriber, "camera overlay")
    assert stream_of(subscriber, "camera overlay").info.over == "camera"
    assert tensors["boxes"].tolist() == BOXES
    assert np.allclose(tensors["scores"], [0.9, 0.5])
    assert texts(tensors["labels"]) == ["person", "dog"]
    assert texts(tensors["notes"]) == ["hello"]
    assert (meta["version"], meta["time_ns"], meta["by"]) == (3, 0, "a test")
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES[:1])
    _, meta, tensors = newest(subscriber, "camera overlay", version)
    assert meta["version"] == 4
    assert set(tensors) == {"boxes"}


def test_each_run_of_a_name_has_an_overlay_that_can_be_removed(
    other_run: Callable[[], OtherRun], subscriber: Subscriber
) -> None:
    runs = []
    for _ in range(2):
        run = other_run()
        runs.append(run)
        run.show(IMAGE, "camera")
        splatview.annotate("camera", boxes=BOXES, labels="x", notes="y", run=run.run_id)
    names = ["camera overlay", "camera overlay 2"]
    streams = [stream_of(subscriber, name) for name in names]
    assert [s.info.over_run for s in streams] == [run.run_id for run in runs]
    for name in names:
        _, _, tensors = newest(subscriber, name)
        assert len(tensors["boxes"]) == 2
    splatview.annotate("camera", run=runs[1].run_id)
    version, meta, tensors = newest(subscriber, names[1], 1)
    assert version == 2
    assert meta["version"] == 0
    assert set(tensors) == {"boxes"}
    assert len(tensors["boxes"]) == 0
    assert [s.version for s in streams] == [1, 2]
    splatview.annotate("camera")  # This removes the overlay of every run.
    _, _, tensors = newest(subscriber, names[0], 1)
    assert len(tensors["boxes"]) == 0
    assert [s.version for s in streams] == [2, 3]
