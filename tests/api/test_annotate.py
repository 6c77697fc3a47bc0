"""`annotate`: every form in which boxes, labels, points, lines and texts come, and what it says to others."""

from __future__ import annotations

import ast
import inspect
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.annotate_cases import made, texts

import splatview
from splatview import annotating
from splatview.adapt.overlay import COCO_SKELETON, OPTIONS
from splatview.ipc.messages import FrameHeader, TensorHeader, encode
from splatview.ipc.ways.layout import HEADER_BYTES

if TYPE_CHECKING:
    from support.annotate_cases import Overlays

BOXES = [[1.0, 2.0, 30.0, 40.5], [5.0, 6.0, 20.0, 20.0]]
NAN = math.nan


# -- boxes -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("make", [
    lambda b: b, lambda b: tuple(map(tuple, b)), lambda b: np.array(b, np.float16),
    lambda b: np.array(b).astype(">f8"), lambda b: np.array(b)[::-1][::-1],
    lambda b: torch.tensor(b, dtype=torch.bfloat16), lambda b: torch.nn.Parameter(torch.tensor(b)),
    lambda b: [torch.tensor(row) for row in b], lambda b: [np.array(row) for row in b],
    lambda b: torch.tensor(b).T.contiguous().T,
    lambda b: SimpleNamespace(__array_interface__=(kept := np.array(b)).__array_interface__, kept=kept),
])
def test_boxes_of_any_library(make: Any) -> None:
    tensors, meta = made(boxes=make(BOXES))
    assert set(tensors) == {"boxes"}
    assert tensors["boxes"].dtype == torch.float32
    assert tensors["boxes"].tolist() == BOXES
    assert not tensors["boxes"].requires_grad
    assert tensors["boxes"].is_contiguous()
    assert meta == {"width": 0, "height": 0, "mask_width": 0, "mask_height": 0, "motion": False}


@pytest.mark.parametrize(("form", "given"), [
    ("xyxy", [10, 20, 40, 60]), ("xywh", [10, 20, 30, 40]), ("cxcywh", [25, 40, 30, 40]), (None, [10, 20, 40, 60]),
])
def test_formats_of_boxes(form: str | None, given: list[int]) -> None:
    tensors, _ = made(boxes=[given, given], format=form)
    assert tensors["boxes"].tolist() == [[10, 20, 40, 60]] * 2
    assert made(boxes=given, format=form)[0]["boxes"].tolist() == [[10, 20, 40, 60]]  # one box


@pytest.mark.parametrize("empty", [[], (), np.zeros((0, 4)), torch.zeros(0, 4), torch.zeros(0), np.zeros(0)])
def test_nothing_found(empty: Any) -> None:
    tensors, _ = made(boxes=empty, labels=[], scores=[], masks=[], points=[], lines=[], notes=[], colors=[])
    assert tensors["boxes"].shape == (0, 4)
    assert all(not t.numel() for t in tensors.values())
    tensors, _ = made(boxes=empty, classes=[], colors={1: "#ff0000"}, point_classes=[], points=[], skeleton="coco")
    assert tensors["boxes"].shape == (0, 4)


def test_the_callers_own_memory_is_not_kept() -> None:
    boxes, scores, points = torch.ones(3, 4), np.ones(3, np.float32), torch.ones(2, 5, 3)
    lines, classes = torch.ones(4, 2), torch.ones(3, dtype=torch.int32)
    tensors, _ = made(boxes=boxes, scores=scores, points=points, lines=lines, classes=classes)
    for given in (boxes, points, lines, classes):
        given.fill_(7)
    scores.fill(7)
    assert {float(t.max()) for name, t in tensors.items() if name not in ("labels", "line_ends")} == {1.0}


def test_what_is_not_finite_is_told() -> None:
    boxes = [[0, 0, 1, 1], [NAN, 0, 1, 1], [0, 0, math.inf, 1], [-math.inf, 0, math.inf, 0], [3e38] * 4]
    tensors, meta = made(boxes=boxes)
    assert meta["trouble"] == "3 of 5 boxes are not finite, and not drawn"
    assert len(tensors["boxes"]) == 5  # each keeps its label
    assert made(boxes=boxes, trouble="other")[1]["trouble"] == "other"
    assert "trouble" not in made(boxes=[[3e38] * 4] * 100)[1]


# -- labels, classes, names, scores ------------------------------------------------------------------------------

@pytest.mark.parametrize("labels", [["person", "Hündchen 犬"], ("person", "Hündchen 犬"),
                                    np.array(["person", "Hündchen 犬"]), np.array(["person", "Hündchen 犬"], object)])
def test_labels_are_texts(labels: Any) -> None:
    tensors, _ = made(boxes=BOXES, labels=labels)
    assert texts(tensors["labels"]) == ["person", "Hündchen 犬"]


def test_one_label_for_all_and_none_for_some() -> None:
    assert texts(made(boxes=BOXES, labels="cat")[0]["labels"]) == ["cat", "cat"]
    tensors, _ = made(boxes=BOXES, labels=[None, "dog"])
    assert texts(tensors["labels"]) == ["", "dog"]
    assert tensors["classes"][0] == -1


def test_the_same_label_has_the_same_class_and_another_one_another() -> None:
    first = made(boxes=BOXES * 2, labels=["a", "b", "a", "c"])[0]["classes"].tolist()
    assert first[0] == first[2]
    assert len(set(first)) == 3
    later = made(boxes=BOXES, labels=["c", "b"])[0]["classes"].tolist()
    assert later == [first[3], first[1]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_labels_are_class_numbers(dtype: torch.dtype) -> None:
    tensors, _ = made(boxes=BOXES, labels=torch.tensor([3, 17], dtype=dtype))
    assert tensors["classes"].tolist() == [3, 17]
    assert tensors["classes"].dtype == torch.int32
    assert texts(tensors["labels"]) == ["3", "17"]


@pytest.mark.parametrize("names", [["person", "dog", "cat"], ("person", "dog", "cat"),
                                   {0: "person", 1: "dog", 2: "cat"}, {np.int64(2): "cat", 0: "person"}])
def test_names_of_classes(names: Any) -> None:
    tensors, _ = made(boxes=[*BOXES, BOXES[0], BOXES[1]], labels=[2, 0, -1, 7], names=names)
    assert texts(tensors["labels"]) == ["cat", "person", "", "7"]
    tensors, _ = made(boxes=BOXES, labels=["cat", "person"], names=names)
    assert tensors["classes"].tolist() == [2, 0]


def test_classes_and_scores_beside_labels() -> None:
    tensors, _ = made(boxes=BOXES, labels=["track 1", "track 2"], classes=[4, 4])
    assert tensors["classes"].tolist() == [4, 4]
    assert texts(tensors["labels"]) == ["track 1", "track 2"]
    tensors, _ = made(boxes=BOXES, scores=[0.5, None])
    assert tensors["scores"][0] == 0.5
    assert tensors["scores"][1].isnan()
    assert made(boxes=BOXES, scores=torch.tensor([[0.5], [0.25]]))[0]["scores"].tolist() == [0.5, 0.25]


# -- colours -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("given", [
    [(255, 0, 0), (0, 128, 255)], np.array([[255, 0, 0, 255], [0, 128, 255, 255]], np.uint8),
    [(1.0, 0.0, 0.0), (0.0, 128 / 255, 1.0)], torch.tensor([[1, 0, 0, 1], [0, 0.502, 1, 1]], dtype=torch.bfloat16),
    ["#ff0000", "#0080FFff"], ["#ff0000", (0, 128, 255)],
])
def test_colors_of_boxes(given: Any) -> None:
    tensors, _ = made(boxes=BOXES, colors=given)
    assert tensors["colors"].dtype == torch.uint8
    assert tensors["colors"].tolist() == [[255, 0, 0, 255], [0, 128, 255, 255]]


@pytest.mark.parametrize("given", ["#ff000080", (255, 0, 0, 128), [255, 0, 0, 128], np.array([1, 0, 0, 128 / 255])])
def test_one_color_for_all(given: Any) -> None:
    assert made(boxes=BOXES, colors=given)[0]["colors"].tolist() == [[255, 0, 0, 128]] * 2
    assert made(boxes=np.zeros((4, 4)), colors=given)[0]["colors"].tolist() == [[255, 0, 0, 128]] * 4


def test_colors_of_classes() -> None:
    tensors, _ = made(boxes=[*BOXES, *BOXES], labels=[1, 3, -1, 7], colors={1: "#010203", 3: (4, 5, 6, 7)})
    assert tensors["colors"].tolist() == [[1, 2, 3, 255], [4, 5, 6, 7], [0] * 4, [0] * 4]  # alpha 0: by class
    tensors, _ = made(boxes=[*BOXES, BOXES[0]], labels=["dog", "cat", "cow"], colors={"cat": (0.0, 1.0, 0.0)})
    assert tensors["colors"].tolist() == [[0] * 4, [0, 255, 0, 255], [0] * 4]
    tensors, _ = made(boxes=BOXES, labels=[0, 1], names=["dog", "cat"], colors={"cat": "#ffffff"})
    assert tensors["colors"].tolist() == [[0] * 4, [255] * 4]


# -- points, lines, notes ----------------------------------------------------------------------------------------

def test_points() -> None:
    one = made(points=[(1, 2), (3, 4)])[0]
    assert one["points"].tolist() == [[[1, 2, 1], [3, 4, 1]]]
    assert one["boxes"].shape == (0, 4)
    given = torch.rand(3, 17, 3, generator=torch.manual_seed(0))
    tensors, _ = made(points=given, skeleton="coco", point_classes=[0, 5, -1])
    assert torch.equal(tensors["points"], given)
    assert tensors["skeleton"].tolist() == [list(pair) for pair in COCO_SKELETON]
    assert tensors["point_classes"].tolist() == [0, 5, -1]
    assert made(points=given.tolist(), skeleton=[(0, 16)])[0]["skeleton"].tolist() == [[0, 16]]
    assert made(points=given, skeleton=[])[0]["skeleton"].shape == (0, 2)


def test_points_are_as_their_boxes() -> None:
    tensors, _ = made(boxes=BOXES, labels=[4, 9], points=np.zeros((2, 5, 2)))
    assert tensors["point_classes"].tolist() == [4, 9]
    assert "point_classes" not in made(boxes=BOXES, labels=[4, 9], points=np.zeros((3, 5, 2)))[0]


def test_the_skeleton_of_coco_is_a_person() -> None:
    """As COCO's own file has it, whose numbers begin with 1."""
    theirs = [[16, 14], [14, 12], [17, 15], [15, 13], [12, 13], [6, 12], [7, 13], [6, 7], [6, 8], [7, 9], [8, 10],
              [9, 11], [2, 3], [1, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5, 7]]
    assert [[a + 1, b + 1] for a, b in COCO_SKELETON] == theirs


@pytest.mark.parametrize(("given", "vertices", "ends"), [
    ([(0, 1), (2, 3), (4, 5)], [[0, 1], [2, 3], [4, 5]], [3]),
    (np.arange(6).reshape(3, 2), [[0, 1], [2, 3], [4, 5]], [3]),
    (torch.arange(8).reshape(2, 2, 2), [[0, 1], [2, 3], [4, 5], [6, 7]], [2, 4]),
    ([[(0, 1), (2, 3)], [(4, 5)]], [[0, 1], [2, 3], [4, 5]], [2, 3]),
    ([np.array([[0, 1]]), torch.tensor([[2, 3], [4, 5]])], [[0, 1], [2, 3], [4, 5]], [1, 3]),
    ((np.array([[0, 1], [2, 3]]),), [[0, 1], [2, 3]], [2]),
    ([np.zeros((0, 2)), np.array([[0, 1], [2, 3]])], [[0, 1], [2, 3]], [0, 2]),
    ([], [], []),
])
def test_lines(given: Any, vertices: list[list[float]], ends: list[int]) -> None:
    tensors, _ = made(lines=given, line_classes=list(range(len(ends))))
    assert tensors["lines"].reshape(-1, 2).tolist() == vertices
    assert tensors["line_ends"].tolist() == ends
    assert tensors["line_classes"].tolist() == list(range(len(ends)))


def test_notes() -> None:
    tensors, _ = made(notes="two\nlines")
    assert tensors["notes_at"].tolist() == [[0, 0]]
    assert texts(tensors["notes"]) == ["two\nlines"]
    tensors, _ = made(notes=[(1, 2.5, "a"), (np.float32(3), torch.tensor(4), "b")])
    assert tensors["notes_at"].tolist() == [[1, 2.5], [3, 4]]
    assert texts(tensors["notes"]) == ["a", "b"]


@pytest.mark.parametrize(("given", "words"), [
    ({"boxes": BOXES, "labels": ["ok", "a\ud800"]}, r"labels\[1\] is 'a\\ud800'.* UTF-8"),
    ({"boxes": BOXES, "classes": [0, 0], "names": ["\ud800"]}, "names"),
    ({"notes": "\ud800"}, "notes"), ({"notes": [(0, 0, "\ud800")]}, "notes"),
    ({"by": "\ud800"}, "by is"), ({"trouble": "x\udc80"}, "trouble is"),
])
def test_annotate_refuses_half_of_a_surrogate_pair(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(**given)


# -- what is said of the whole -----------------------------------------------------------------------------------

def test_words_and_numbers() -> None:
    _, meta = made(boxes=BOXES, size=(640, 480), motion=np.True_, by="yolo", rate_hz=24.8, work_ms=np.float32(41.5),
                   skipped=torch.tensor(3), trouble="x" * 5000)
    assert (meta["width"], meta["height"], meta["motion"], meta["by"]) == (640, 480, True, "yolo")
    assert (meta["rate_hz"], meta["work_ms"], meta["skipped"]) == (24.8, 41.5, 3)
    assert type(meta["skipped"]) is int
    assert meta["motion"] is True
    assert len(meta["trouble"]) == 400
    assert meta["trouble"].endswith("x...")
    assert len(made(boxes=[], by="y" * 1000)[1]["by"]) == 100


def test_the_longest_words_fit_a_header() -> None:
    """In whatever script: a header is one page of shared memory."""
    tensors, meta = made(boxes=BOXES, labels="a", scores=[1, 1], colors="#ffffff", points=np.zeros((2, 3, 2)),
                         skeleton=[(0, 1)], lines=[[(0, 0)]], line_classes=[1], notes="x", names=["x"], size=(5, 5),
                         masks=[{"size": [4, 4], "counts": [16]}] * 2, by="𝄞" * 500, trouble="𝄞" * 500, rate_hz=1e9 / 3,
                         work_ms=1 / 3, skipped=2**52)
    assert len(tensors) == 15
    headers = tuple(TensorHeader(k, str(t.dtype)[6:], (2**20,) * t.ndim, 2**40)  # type: ignore[arg-type]
                    for k, t in tensors.items())
    meta |= {"version": 2**62, "time_ns": 2**62}
    assert len(encode(FrameHeader("overlay", headers, meta))) < HEADER_BYTES - 200


# -- mistakes ----------------------------------------------------------------------------------------------------

MISTAKES = [
    ({"boxes": np.zeros((2, 5))}, "boxes have shape (2, 5), not (N, 4): the first four columns are boxes[:, :4]"),
    ({"boxes": [1, 2, 3]}, "boxes have shape (3,)"), ({"boxes": 5}, "boxes is a int"),
    ({"boxes": "all"}, "boxes is a str"), ({"boxes": [["a"] * 4]}, "boxes holds more than numbers"),
    ({"boxes": [[1, 2, 3, 4], [1, 2]]}, "boxes: this list does not make an array"),
    ({"boxes": torch.zeros(2, 4, device="meta")}, "device 'meta'; legal are cpu, cuda"),
    ({"boxes": np.zeros((10_001, 4))}, "10001 boxes; at most 10000"),
    ({"boxes": BOXES, "labels": ["a"]}, "labels are 1, not 2: one for each of the boxes"),
    ({"boxes": BOXES, "labels": ["a", "b\0"]}, "labels[1] is 'b\\x00': a text holds no zero character"),
    ({"boxes": BOXES, "labels": ["a", "b" * 1025]}, "labels[1] has 1025 characters; at most 1024"),
    ({"boxes": BOXES, "labels": [1, -2]}, "labels holds -2; legal are -1 to 2147483647"),
    ({"boxes": BOXES, "labels": [1, 2], "classes": [1, 2]}, "give texts as labels, or no classes"),
    ({"boxes": BOXES, "labels": [1, 2], "names": {10_000: "b"}}, "names has the class 10000; legal are 0 to 9999"),
    ({"boxes": BOXES, "scores": [1.0]}, "scores have shape (1,), not (2,): one for each of the boxes"),
    ({"labels": ["a"]}, "labels without boxes or masks"), ({"scores": [1], "colors": "#fff"}, "scores and colors"),
    ({"boxes": BOXES, "colors": "red"}, "colors holds 'red'; legal are '#rrggbb'"),
    ({"boxes": BOXES, "colors": [(256, 0, 0)] * 2}, "colors hold 0 to 256; legal"),
    ({"boxes": BOXES, "colors": {1: "#ffffff"}}, "colors is a mapping from classes, and the boxes have none"),
    ({"points": np.zeros((2, 3, 4))}, "points have shape (2, 3, 4); legal are (K, 2|3) and (M, K, 2|3)"),
    ({"points": np.zeros((1001, 100, 2))}, "100100 points; at most 100000"),
    ({"points": np.zeros((2, 3, 2)), "skeleton": "coco"}, "joins 17 points, and there are 3"),
    ({"points": np.zeros((2, 3, 2)), "skeleton": [(0, 3)]}, "skeleton names point 3; legal are 0 to 2"),
    ({"skeleton": "coco"}, "skeleton without points"), ({"line_classes": [1]}, "line_classes without lines"),
    ({"lines": [[(0, 0, 0)]]}, "lines[0] has shape (1, 3), not (V, 2)"),
    ({"lines": np.zeros((3, 100_000, 2))}, "300000 vertices; at most 200000"),
    ({"notes": [("here", 2, "x")]}, "notes[0] is"), ({"notes": [(1, 2)]}, "not (x, y, text)"),
    ({"boxes": np.zeros((1500, 4)), "labels": "x" * 1000}, "1501500 bytes of labels; at most 1048576"),
    ({"size": (0, 5)}, "size is (0, 5); legal are 1 to 32768"), ({"size": 5}, "not (width, height)"),
    ({"size": (1, 2, 3)}, "not (width, height)"), ({"motion": 1}, "motion is 1, not True or False"),
    ({"rate_hz": -1}, "rate_hz is -1.0; legal"), ({"work_ms": NAN}, "work_ms is nan"),
]


def test_mistakes_are_named() -> None:
    for wrong, words in MISTAKES:
        with pytest.raises((TypeError, ValueError)) as caught:
            splatview.annotate("camera", **wrong)
        assert words in str(caught.value)
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(("wrong", "words"), [
    ({"name": "a/b"}, "'/'"), ({"name": 5}, "name is a int"), ({"version": "new"}, "version is a str"),
    ({"version": True}, "version is a bool"), ({"version": -1}, "version is -1"), ({"version": 2**63}, "legal are 0"),
    ({"run": 5}, "run is a int"), ({"run": "../x"}, "not a run's id"), ({"run": "x" * 65}, "not a run's id"),
    ({"color": "red"}, "annotate has no 'color'"),
])
def test_what_it_is_about_must_make_sense(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        splatview.annotate(**{"name": "camera", "boxes": BOXES} | wrong)
    assert words in str(caught.value)


def test_checkers_know_every_option() -> None:
    """The keywords that type checkers allow are those that are taken, and the docstring tells them all."""
    tree = ast.parse(inspect.getsource(annotating))
    more = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "More")
    assert {n.target.id for n in more.body if isinstance(n, ast.AnnAssign)} == set(OPTIONS)  # type: ignore[union-attr]
    for option in OPTIONS:
        assert option in (annotating.annotate.__doc__ or "")


JUNK: list[Any] = [
    None, True, 0, -1, 5, 2**70, 0.5, float("nan"), "", "x", "coco", "#123456", b"x", [], [[]], [[[]]], [None], ["a"],
    ["a", "b"], [1, 2], [[1, 2]], [[1, 2], [3]], [1, 2, 3, 4], [[1, 2, 3, 4]], BOXES, [BOXES, BOXES], {}, {1: "a"},
    {"a": 1}, {"a": "#ffffff"}, {"size": [2, 2], "counts": [4]}, [{"size": [2, 2], "counts": b"4"}], [[4], [0, 4]],
    (1, 1), (2, 2), ((1, 2, "x"),), [(1, 2, 3)], np.zeros(0), np.zeros((2, 4)), np.zeros((2, 2, 2), bool),
    np.zeros(2, int), np.array("x"), np.array(["a", None], object), np.zeros((2, 3), ">i2"), torch.zeros(2),
    torch.zeros(0, 17, 2),
    torch.zeros(2, 17, 3), torch.zeros(2, 4, dtype=torch.int8), torch.zeros(1, 4, device="meta"), object(),
    iter([1, 2]), range(2), set(), float("inf"), [object()], [float("nan")] * 4, torch.zeros(3, 0), np.float32(3),
    "\ud800", ["\0"],
]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_it_is_given_it_is_drawn_or_the_mistake_is_named(seed: int, overlays: Overlays) -> None:
    rng = np.random.default_rng(seed)
    names = ["boxes", "labels", "scores", "points", "masks", "version", *OPTIONS]
    for _ in range(100):
        given = {str(name): JUNK[rng.integers(len(JUNK))]
                 for name in rng.choice(names, rng.integers(1, 5), replace=False)}
        if rng.random() < 0.5:
            given["boxes"] = BOXES
        try:
            splatview.annotate("camera", **given)
        except (TypeError, ValueError) as e:
            assert any(name.rstrip("s") in str(e) for name in given), f"{given}: {e}"
            assert len(str(e)) < 600
    splatview.annotate("other", boxes=BOXES, names=["cat"], labels=[0, 1])  # nothing of all that is in the way
    _, tensors, _ = overlays.read(overlays.over("other"))
    assert texts(tensors["labels"]) == ["cat", "1"]
