"""`annotate`: every form that it takes, which pictures its results lie over, and how they are taken away."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.annotate_cases import annotation_tensors, texts
from support.reading import newest, stream_of
from support.wait import PATIENCE

import splatview
from splatview.adapters.overlay_shapes import COCO_SKELETON

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.pair import OtherRun

    from splatview_ipc.subscriber.subscriber import Subscriber


BOXES = [[1.0, 2.0, 30.0, 40.5], [5.0, 6.0, 20.0, 20.0]]
NAN = math.nan


@pytest.mark.parametrize(
    "make",
    [
        lambda b: tuple(map(tuple, b)),
        lambda b: np.array(b, np.float16),
        lambda b: np.array(b).astype(">f8"),
        lambda b: np.array(b)[::-1][::-1],
        lambda b: torch.tensor(b, dtype=torch.bfloat16),
        lambda b: torch.nn.Parameter(torch.tensor(b)),
        lambda b: [torch.tensor(row) for row in b],
        lambda b: torch.tensor(b).T.contiguous().T,
        lambda b: SimpleNamespace(
            __array_interface__=(kept := np.array(b)).__array_interface__, kept=kept
        ),
    ],
)
def test_boxes_of_any_library(make: Any) -> None:
    tensors, meta = annotation_tensors(boxes=make(BOXES))
    assert set(tensors) == {"boxes"}
    assert tensors["boxes"].tolist() == BOXES
    assert tensors["boxes"].dtype == torch.float32
    assert not tensors["boxes"].requires_grad
    assert meta == {"width": 0, "height": 0}


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("xyxy", [10, 20, 40, 60]),
        ("xywh", [10, 20, 30, 40]),
        ("cxcywh", [25, 40, 30, 40]),
        (None, [10, 20, 40, 60]),
    ],
)
def test_formats_of_boxes(form: str | None, given: list[int]) -> None:
    for boxes in ([given, given], given):  # one box, too
        assert annotation_tensors(boxes=boxes, format=form)[0]["boxes"][0].tolist() == [
            10,
            20,
            40,
            60,
        ]


@pytest.mark.parametrize("empty", [[], np.zeros((0, 4)), torch.zeros(0)])
def test_nothing_found(empty: Any) -> None:
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


def test_the_callers_own_memory_is_not_kept() -> None:
    given: dict[str, Any] = {
        "boxes": torch.ones(3, 4),
        "points": torch.ones(2, 5, 3),
        "lines": torch.ones(4, 2),
        "classes": torch.ones(3, dtype=torch.int32),
        "scores": torch.ones(3),
    }
    tensors, _ = annotation_tensors(**given)
    for value in given.values():
        value.fill_(7)
    assert {float(tensors[name].max()) for name in given} == {1.0}


def test_what_is_not_finite_is_told() -> None:
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
    assert annotation_tensors(boxes=boxes, trouble="other")[1]["trouble"] == "other"


def test_labels_are_texts() -> None:
    labels = ["person", "Hündchen 犬"]
    for given in (labels, np.array(labels), np.array(labels, object)):
        assert (
            texts(annotation_tensors(boxes=BOXES, labels=given)[0]["labels"]) == labels
        )
    assert texts(annotation_tensors(boxes=BOXES, labels="cat")[0]["labels"]) == [
        "cat",
        "cat",
    ]
    assert texts(
        annotation_tensors(boxes=BOXES, labels=[None, "dog"])[0]["labels"]
    ) == ["", "dog"]


@pytest.mark.parametrize(
    "names", [["person", "dog", "cat"], {np.int64(2): "cat", 0: "person"}]
)
def test_names_of_classes(names: Any) -> None:
    tensors, _ = annotation_tensors(
        boxes=[*BOXES, BOXES[0], BOXES[1]], labels=[2, 0, -1, 7], names=names
    )
    assert texts(tensors["labels"]) == ["cat", "person", "", "7"]
    assert annotation_tensors(boxes=BOXES, labels=["cat", "person"], names=names)[0][
        "classes"
    ].tolist() == [2, 0]


def test_classes_and_scores_beside_labels() -> None:
    tensors, _ = annotation_tensors(
        boxes=BOXES, labels=["track 1", "track 2"], classes=[4, 4], scores=[0.5, None]
    )
    assert (texts(tensors["labels"]), tensors["classes"].tolist()) == (
        ["track 1", "track 2"],
        [4, 4],
    )
    assert tensors["scores"][0] == 0.5
    assert tensors["scores"][1].isnan()
    assert annotation_tensors(boxes=BOXES, scores=torch.tensor([[0.5], [0.25]]))[0][
        "scores"
    ].tolist() == [0.5, 0.25]


@pytest.mark.parametrize(
    "given",
    [
        np.array([[255, 0, 0, 255], [0, 128, 255, 255]], np.uint8),
        [(1.0, 0.0, 0.0), (0.0, 128 / 255, 1.0)],
        torch.tensor([[1, 0, 0, 1], [0, 0.502, 1, 1]], dtype=torch.bfloat16),
        ["#ff0000", "#0080FFff"],
        ["#ff0000", (0, 128, 255)],
    ],
)
def test_colors_of_boxes(given: Any) -> None:
    tensors, _ = annotation_tensors(boxes=BOXES, colors=given)
    assert tensors["colors"].tolist() == [[255, 0, 0, 255], [0, 128, 255, 255]]


def test_colors_of_all_and_of_classes() -> None:
    for given, colors in (
        ({"colors": "#ff000080"}, [[255, 0, 0, 128]] * 2),
        (
            {"labels": [1, 7], "colors": {1: "#010203", 3: (4, 5, 6, 7)}},
            [[1, 2, 3, 255], [0] * 4],
        ),  # 0: by class
        (
            {"labels": ["dog", "cat"], "colors": {"cat": (0.0, 1.0, 0.0)}},
            [[0] * 4, [0, 255, 0, 255]],
        ),
        (
            {"labels": [0, 1], "names": ["dog", "cat"], "colors": {"cat": "#ffffff"}},
            [[0] * 4, [255] * 4],
        ),
    ):
        assert annotation_tensors(boxes=BOXES, **given)[0]["colors"].tolist() == colors


def test_order_names_the_parts_of_a_result() -> None:
    detected = torch.tensor(BOXES), torch.tensor([0.5, 0.25]), torch.tensor([3, 1])
    for order, parts in (
        ("boxes,scores,classes", detected),
        ("classes, boxes, scores", (detected[2], *detected[:2])),
    ):
        tensors, _ = annotation_tensors(
            boxes=parts, order=order, names=["a", "b", "c", "d"]
        )
        assert tensors["boxes"].tolist() == BOXES
        assert tensors["scores"].tolist() == [
            0.5,
            0.25,
        ]
        assert texts(tensors["labels"]) == ["d", "b"]
    for order, given in (
        ("boxes,score", detected[:2]),
        ("boxes,scores", detected),
        ("scores,classes", detected[1:]),
        (["boxes"], detected),
        ("boxes,labels,scores", np.zeros((3, 4))),
    ):
        with pytest.raises(ValueError, match="order"):
            annotation_tensors(boxes=given, order=order)


def test_points() -> None:
    assert annotation_tensors(points=[(1, 2), (3, 4)])[0]["points"].tolist() == [
        [[1, 2, 1], [3, 4, 1]]
    ]
    given = torch.rand(3, 17, 3, generator=torch.manual_seed(0))
    tensors, _ = annotation_tensors(
        points=given, skeleton="coco", point_classes=[0, 5, -1]
    )
    assert torch.equal(tensors["points"], given)
    assert tensors["boxes"].shape == (0, 4)
    assert tensors["skeleton"].tolist() == [list(pair) for pair in COCO_SKELETON]
    assert tensors["point_classes"].tolist() == [0, 5, -1]
    assert annotation_tensors(points=given.tolist(), skeleton=[(0, 16)])[0][
        "skeleton"
    ].tolist() == [[0, 16]]


@pytest.mark.parametrize(
    ("given", "vertices", "ends"),
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
def test_lines(given: Any, vertices: list[list[float]], ends: list[int]) -> None:
    tensors, _ = annotation_tensors(lines=given, line_classes=list(range(len(ends))))
    assert tensors["lines"].reshape(-1, 2).tolist() == vertices
    assert (tensors["line_ends"].tolist(), tensors["line_classes"].tolist()) == (
        ends,
        list(range(len(ends))),
    )


def test_notes() -> None:
    for given, places, words in (
        ("two\nlines", [[0, 0]], ["two\nlines"]),
        (
            [(1, 2.5, "a"), (np.float32(3), torch.tensor(4), "b")],
            [[1, 2.5], [3, 4]],
            ["a", "b"],
        ),
    ):
        tensors, _ = annotation_tensors(notes=given)
        assert (tensors["notes_at"].tolist(), texts(tensors["notes"])) == (
            places,
            words,
        )


# ---- masks


SIX = np.zeros((6, 4))
MASKS = np.random.default_rng(0).random((6, 23, 37)) < 0.5
MASKS[0] = False
MASKS[1] = True
MASKS[2, :, 5:] = False
RUNS = [40, 3, 100, 2, 300, 7, 399]
CODED = b"X13T3OX65S3"
"""Runs of a mask of 37 x 23 pixels, column by column, the first one outside; and as COCO compresses them."""
RUNS_MASK = np.repeat([i % 2 == 1 for i in range(len(RUNS))], RUNS).reshape(37, 23).T


@pytest.mark.parametrize(
    "make",
    [
        torch.from_numpy,
        lambda m: m.astype(np.uint8) * 255,
        lambda m: torch.from_numpy(m).to(torch.bfloat16),
        lambda m: torch.from_numpy(m)[:, None].float(),
        lambda m: list(torch.from_numpy(m)),
        lambda m: m.tolist(),
        np.asfortranarray,
        lambda m: np.where(m, 0.51, 0.5),
    ],
)
def test_masks_as_tensors(make: Any) -> None:
    tensors, meta = annotation_tensors(boxes=SIX, masks=make(MASKS))
    assert tensors["masks"].dtype == torch.uint8
    assert meta["width"] == 0
    assert np.array_equal(tensors["masks"].numpy() != 0, MASKS)


@pytest.mark.parametrize(
    "counts", [RUNS, np.array(RUNS, np.uint32), CODED, CODED.decode()], ids=str
)
def test_masks_as_coco_writes_them(counts: Any) -> None:
    mask = {"size": [23, 37], "counts": counts}
    for given, count in (([mask] * 6, 6), (mask, 1)):
        masks = annotation_tensors(boxes=SIX[:count], masks=given)[0]["masks"].numpy()
        assert len(masks) == count
        assert (masks.astype(bool) == RUNS_MASK).all()


def test_masks_alone_have_boxes_around_them() -> None:
    around = np.array([[0, 0, 37, 23]] * 6, float)
    around[0] = NAN
    around[2, 2] = 5
    for size, scale in (((37, 23), 1), ((74, 92), [2, 4, 2, 4])):
        tensors, meta = annotation_tensors(
            masks=MASKS, labels="road", **({} if scale == 1 else {"size": size})
        )
        np.testing.assert_array_equal(tensors["boxes"].numpy(), around * scale)
        assert (meta["width"], meta["height"]) == size
        assert "trouble" not in meta
    assert annotation_tensors(masks={"size": [23, 37], "counts": RUNS})[0][
        "boxes"
    ].tolist() == [[1, 5, 20, 20]]


# ---- frames that results belong to

IMAGE = torch.zeros(48, 64, 3, dtype=torch.uint8)


def test_results_belong_to_the_frames_that_they_were_computed_on(
    other_run: Callable[[], OtherRun], subscriber: Subscriber
) -> None:
    camera = other_run()
    with splatview.frames("camera", timeout=PATIENCE) as frames:
        for n in range(4):
            camera.show(torch.full((48, 64, 3), n + 50, dtype=torch.uint8), "camera")
            frame = next(frames)
            given: dict[str, Any] = {} if n % 2 else {"version": frame}
            splatview.annotate(
                "camera", boxes=[float(frame.tensor[0, 0, 0])] * 4, **given
            )
            _, meta, tensors = newest(subscriber, "camera overlay", n)
            assert (meta["version"], meta["time_ns"]) == (frame.version, frame.time_ns)
            assert tensors["boxes"].tolist() == [[n + 50] * 4]


def test_it_arrives(subscriber: Subscriber) -> None:
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
    assert (texts(tensors["labels"]), texts(tensors["notes"])) == (
        ["person", "dog"],
        ["hello"],
    )
    assert (meta["version"], meta["time_ns"], meta["by"]) == (3, 0, "a test")
    splatview.publish(IMAGE, "camera")
    splatview.annotate("camera", boxes=BOXES[:1])
    _, meta, tensors = newest(subscriber, "camera overlay", version)
    assert meta["version"] == 4
    assert set(tensors) == {"boxes"}


def test_runs_of_one_name_have_an_overlay_each_which_is_taken_away(
    other_run: Callable[[], OtherRun], subscriber: Subscriber
) -> None:
    runs = []
    for _ in range(2):
        runs.append(other_run())
        runs[-1].show(IMAGE, "camera")
        splatview.annotate(
            "camera", boxes=BOXES, labels="x", notes="y", run=runs[-1].run_id
        )
    names = ["camera overlay", "camera overlay 2"]
    streams = [stream_of(subscriber, name) for name in names]
    assert [s.info.over_run for s in streams] == [run.run_id for run in runs]
    assert all(len(newest(subscriber, name)[2]["boxes"]) == 2 for name in names)
    splatview.annotate("camera", run=runs[1].run_id)
    version, meta, tensors = newest(subscriber, names[1], 1)
    assert (version, meta["version"], set(tensors), len(tensors["boxes"])) == (
        2,
        0,
        {"boxes"},
        0,
    )
    assert [s.version for s in streams] == [1, 2]
    splatview.annotate("camera")  # in every run
    assert not len(newest(subscriber, names[0], 1)[2]["boxes"])
    assert [s.version for s in streams] == [2, 3]
