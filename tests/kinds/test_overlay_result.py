"""What the viewer takes from overlay frames: read, copied, and made safe to draw, whatever their values are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.device_frames import Shared
from support.frames import image_frame
from support.overlay_cases import frame_with, overlay_frame, result_of

from splatview.ipc.kinds import OVERLAY_MOST, check_frame
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.views._overlay import masks as masks_module
from splatview.viewer_app.views._overlay.palette import PALETTE, PLAIN, class_colors, is_light
from splatview.viewer_app.views._overlay.result import read_result

if TYPE_CHECKING:
    from splatview.viewer_app.views._overlay.masks import Mask


def texts(*given: str) -> torch.Tensor:
    return torch.tensor(list(b"".join(t.encode() + b"\0" for t in given)), dtype=torch.uint8)


def test_boxes_come_with_words_and_colors() -> None:
    r = result_of(overlay_frame(7, 123, boxes=[[1, 2, 3, 4], [9, 9, 5, 6], [0, 0, 1, 1]], labels=["cat", "a\nb", ""],
                                scores=[0.876, float("nan"), 0.5], classes=[0, 21, -1], by="who", rate_hz=2.5,
                                work_ms=3.0, trouble="no model"))
    assert (r.version, r.time_ns, r.by, r.rate_hz, r.work_ms, r.trouble) == (7, 123, "who", 2.5, 3.0, "no model")
    assert r.boxes.tolist() == [[1, 2, 3, 4], [5, 6, 9, 9], [0, 0, 1, 1]]
    assert [r.words(n) for n in range(3)] == ["cat 0.88", "a b", "0.50"]
    assert r.colors[:, :3].tolist() == [PALETTE[0].tolist(), PALETTE[1].tolist(), PLAIN.tolist()]
    assert not r.empty


def test_classes_without_labels_have_names_or_numbers() -> None:
    boxes = torch.zeros(3, 4)
    classes = torch.tensor([1, 5, -1], dtype=torch.int32)
    named = result_of(frame_with({"boxes": boxes, "classes": classes, "names": texts("cat", "dog")}))
    assert [named.words(n) for n in range(3)] == ["dog", "5", ""]
    plain = result_of(frame_with({"boxes": boxes, "classes": classes}))
    assert [plain.words(n) for n in range(3)] == ["1", "5", ""]


def test_given_colors_go_before_those_of_classes() -> None:
    r = result_of(overlay_frame(boxes=torch.zeros(2, 4), classes=[3, 3], colors={3: "#102030"}))
    assert r.colors.tolist() == [[16, 32, 48, 255]] * 2


def test_colors_of_classes_are_far_apart_and_words_are_read_on_them() -> None:
    srgb = PALETTE / 255
    linear = np.where(srgb > 0.04045, ((srgb + 0.055) / 1.055) ** 2.4, srgb / 12.92)
    xyz = linear @ np.array([[0.4339, 0.2127, 0.0177], [0.3762, 0.7152, 0.1095], [0.1899, 0.0722, 0.8729]])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    lab = np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], -1)
    apart = np.linalg.norm(lab[:, None] - lab[None], axis=-1)[np.triu_indices(len(lab), 1)]
    assert apart.min() > 25  # in CIELAB, where 2 can just be told apart
    assert all(is_light(c) for c in PALETTE)
    assert class_colors(np.array([-5, 2**31 - 1, 0])).shape == (3, 4)


def test_what_has_no_place_is_left_out() -> None:
    inf, nan = float("inf"), float("nan")
    r = result_of(overlay_frame(
        boxes=[[nan, 0, 1, 1], [0, 0, inf, 1], [0, 0, 1e30, 1], [1, 1, 2, 2]], labels=["a", "b", "c", "d"],
        points=[[[1, 1, 1], [nan, 1, 1], [2, 2, 0]], [[1, inf, 1], [5, 5, nan], [6, 6, 0.1]]],
        lines=[[[0, 0], [nan, 0], [1, 1], [2, 2]]], notes=[(nan, 0, "gone"), (1, 2, "here")]))
    assert r.drawn.tolist() == [False, False, False, True]
    assert np.isfinite(r.boxes).all()
    assert r.points[..., 2].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert np.isfinite(r.points).all()
    assert r.lines.tolist() == [[1, 1, 2, 2]]
    assert r.notes == [(1, 2, "here")]


def test_lines_are_joined_only_within_themselves() -> None:
    r = result_of(overlay_frame(lines=[[[0, 0], [1, 0], [1, 1]], [[5, 5], [6, 6]], [[9, 9]]], line_classes=[0, 1, 2]))
    assert r.lines.tolist() == [[0, 0, 1, 0], [1, 0, 1, 1], [5, 5, 6, 6]]
    assert r.line_colors[:, :3].tolist() == [PALETTE[0].tolist()] * 2 + [PALETTE[1].tolist()]


def test_it_is_copied() -> None:
    frame = overlay_frame(boxes=[[1, 2, 3, 4]], labels=["cat"], classes=[4], scores=[0.5],
                          masks=torch.ones(1, 48, 64, dtype=torch.uint8), points=[[[1, 2, 3]]],
                          lines=[[[0, 0], [1, 1]]])
    r = result_of(frame)
    for tensor in frame.tensors.values():
        tensor.array[...] = 0  # type: ignore[union-attr]
    assert r.boxes.tolist() == [[1, 2, 3, 4]]
    assert r.words(0) == "cat 0.50"
    assert r.classes.tolist() == [4]
    assert r.masks[0].inside.any()
    assert r.points.tolist() == [[[1, 2, 1]]]
    assert r.lines.tolist() == [[0, 0, 1, 1]]


def test_a_torn_frame_is_no_result() -> None:
    assert read_result(frame_with({"boxes": torch.zeros(1, 4)}, intact=False), (9, 9)) is None


def test_other_frames_are_refused() -> None:
    with pytest.raises(ViewerError, match="overlay: an overlay does not have"):
        read_result(image_frame(torch.zeros(2, 2)), (9, 9))
    with pytest.raises(ViewerError, match="lie on a GPU"):
        read_result(Shared("overlay", {"boxes": torch.zeros(1, 4)}).frame, (9, 9))


# -- masks -----------------------------------------------------------------------------------------------------------


def written(mask: Mask, size: tuple[int, int]) -> np.ndarray:
    """(h, w) bool: a mask as it lies in a picture of this size."""
    w, h = size
    out = np.zeros((h, w), bool)
    x0, y0, x1, y1 = (round(v * n) for v, n in zip(mask.place, (w, h, w, h), strict=True))
    rows = (np.arange(y1 - y0) + 0.5) * mask.inside.shape[0] / (y1 - y0)
    columns = (np.arange(x1 - x0) + 0.5) * mask.inside.shape[1] / (x1 - x0)
    out[y0:y1, x0:x1] = mask.inside[rows.astype(int)][:, columns.astype(int)]
    return out


def runs_of(mask: np.ndarray) -> list[int]:
    """As COCO writes them, plainly."""
    out, inside, length = [], False, 0
    for value in mask.T.ravel().tolist():
        if bool(value) != inside:
            out.append(length)
            inside, length = not inside, 0
        length += 1
    return [*out, length]


def shapes(w: int, h: int) -> list[np.ndarray]:
    y, x = np.mgrid[0:h, 0:w]
    disc = (x - 20) ** 2 + (y - 15) ** 2 < 90
    ring = disc & ((x - 20) ** 2 + (y - 15) ** 2 > 30)
    whole, corner = np.ones((h, w), bool), (x == w - 1) & (y == h - 1)
    rng = np.random.default_rng(1)
    return [disc, ring, whole, corner, (x == 0) & (y == 0), x == 7, y == 3, rng.random((h, w)) < 0.3]


@pytest.mark.parametrize("n", range(8))
def test_masks_as_tensors_and_as_runs_are_exact(n: int) -> None:
    w, h = 64, 48
    mask = shapes(w, h)[n]
    ys, xs = np.nonzero(mask)
    box = [[float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)]]
    for given in (torch.from_numpy(mask[None].copy()), [{"size": [h, w], "counts": runs_of(mask)}]):
        r = result_of(overlay_frame(boxes=box, masks=given))
        np.testing.assert_array_equal(written(r.masks[0], (w, h)), mask)
        alone = result_of(overlay_frame(masks=given))  # where the boxes are the masks' own
        np.testing.assert_array_equal(written(alone.masks[0], (w, h)), mask)


def test_empty_masks_are_nothing() -> None:
    empty = torch.zeros(1, 48, 64, dtype=torch.uint8)
    for given in (empty, [{"size": [48, 64], "counts": [48 * 64]}]):
        r = result_of(overlay_frame(boxes=[[1, 1, 5, 5]], masks=given))
        assert r.masks == []


def test_a_mask_that_reaches_out_of_its_box_is_seen_whole() -> None:
    mask = torch.zeros(1, 480, 640, dtype=torch.uint8)
    mask[0, 50:400, 60:500] = 1
    r = result_of(overlay_frame(boxes=[[200, 200, 220, 220]], masks=mask), (640, 480))
    np.testing.assert_array_equal(written(r.masks[0], (640, 480)), mask[0].numpy() > 0)


def test_a_mask_of_a_box_without_a_place_is_seen() -> None:
    mask = torch.zeros(1, 48, 64, dtype=torch.uint8)
    mask[0, 10:20, 5:9] = 1
    for tensors in ({"masks": mask}, {"runs": torch.tensor(runs_of(mask[0].numpy()), dtype=torch.int32),
                                      "run_ends": torch.tensor([9], dtype=torch.int32)}):
        r = result_of(frame_with({"boxes": torch.full((1, 4), torch.nan), **tensors}, mask_width=64, mask_height=48))
        np.testing.assert_array_equal(written(r.masks[0], (64, 48)), mask[0].numpy() > 0)


def test_masks_of_another_resolution_cover_the_picture() -> None:
    mask = torch.zeros(1, 12, 16, dtype=torch.uint8)
    mask[0, 3:6, 4:12] = 1
    r = result_of(overlay_frame(boxes=[[160, 120, 480, 240]], masks=mask, size=(640, 480)))
    assert r.size == (640, 480)
    full = written(r.masks[0], (640, 480))
    assert full[120:240, 160:480].all()
    assert full.sum() == 120 * 320


@pytest.mark.parametrize("runs", [[10], [-5, 48 * 64 + 5], [0, 10], [0, 48 * 64 + 1], [2**31 - 1] * 4],
                         ids=["alone", "negative", "too few", "too many", "huge"])
def test_runs_that_make_no_mask_are_left_out(runs: list[int]) -> None:
    good = torch.tensor(runs_of(shapes(64, 48)[0]), dtype=torch.int32)
    bad = torch.tensor(runs, dtype=torch.int32)
    ends = torch.tensor([len(bad), len(bad) + len(good), 2**31 - 1, -7], dtype=torch.int32)
    r = result_of(frame_with({"boxes": torch.zeros(4, 4), "runs": torch.cat([bad, good]), "run_ends": ends},
                             mask_width=64, mask_height=48))
    assert [m.box for m in r.masks] == [1]


def test_large_masks_are_drawn_coarser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks_module, "_TEXELS", 3000)
    monkeypatch.setattr(masks_module, "_WRITTEN", 640 * 480)
    y, x = np.mgrid[0:480, 0:640]
    mask = (x - 320) ** 2 / 4 + (y - 240) ** 2 < 100**2
    runs = runs_of(mask)
    r = result_of(overlay_frame(boxes=[[120, 140, 520, 340]] * 3, masks=[{"size": [480, 640], "counts": runs}] * 3),
                  (640, 480))
    assert len(r.masks) == 3  # the last of which was too much to be written out
    assert sum(m.inside.size for m in r.masks) <= 3000 + 3 * 200
    for found in r.masks:
        assert (written(found, (640, 480)) != mask).mean() < 0.05


def test_the_largest_masks_take_little() -> None:
    side = OVERLAY_MOST["side"]
    runs = torch.tensor([0, side * side], dtype=torch.int32)  # everything, over and over
    n = 200
    ends = 2 * torch.arange(1, n + 1, dtype=torch.int32)
    frame = frame_with({"boxes": torch.zeros(n, 4), "runs": runs.repeat(n), "run_ends": ends}, mask_width=side,
                       mask_height=side)
    begin = time.process_time()
    r = result_of(frame)
    assert time.process_time() - begin < 5  # and not side * side * n
    assert len(r.masks) == n
    assert sum(m.inside.size for m in r.masks) < 1 << 23


# -- what nobody would send ------------------------------------------------------------------------------------------


def random_frame(rng: np.random.Generator) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors that keep the law of shapes, with values that keep none."""
    n, m, k, lines, v, t = (int(rng.integers(0, 6)) for _ in range(6))

    def floats(*shape: int) -> torch.Tensor:
        values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 39, shape)
        values[rng.random(shape) < 0.2] = np.nan
        return torch.from_numpy(values.astype(np.float32))

    def integers(*shape: int) -> torch.Tensor:
        wide = rng.integers(-2**31, 2**31, shape)
        return torch.from_numpy(np.where(rng.random(shape) < 0.6, rng.integers(-2, 9, shape), wide).astype(np.int32))

    def raw(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.integers(0, 256, shape).astype(np.uint8) * (rng.random(shape) < 0.8))

    every = {"boxes": floats(n, 4), "classes": integers(n), "scores": floats(n), "colors": raw(n, 4),
             "labels": raw(int(rng.integers(0, 30))), "points": floats(m, k, 3), "skeleton": integers(7, 2),
             "point_classes": integers(m), "lines": floats(v, 2), "line_ends": integers(lines),
             "line_classes": integers(lines), "notes_at": floats(t, 2), "notes": raw(20), "names": raw(9)}
    if rng.random() < 0.5:
        every["masks"] = raw(n, int(rng.integers(0, 5)), int(rng.integers(0, 5)))
    else:
        every |= {"runs": integers(int(rng.integers(0, 9))).abs(), "run_ends": integers(n)}
    pairs = {"line_ends": "lines", "notes": "notes_at", "run_ends": "runs", "line_classes": "lines",
             "point_classes": "points"}
    dropped = {name for name in every if name != "boxes" and rng.random() < 0.3}
    kept = {name: t.to(torch.uint8) if name in ("labels", "notes", "names", "colors", "masks") else t
            for name, t in every.items() if pairs.get(name, name) not in dropped}
    meta = {"width": int(rng.integers(0, 3)), "height": int(rng.integers(0, 3)), "version": int(rng.integers(0, 2**62)),
            "time_ns": int(rng.integers(0, 2**62)), "mask_width": int(rng.integers(1, 5)),
            "mask_height": int(rng.integers(1, 5)), "motion": bool(rng.random() < 0.5), "rate_hz": 1e18}
    return kept, meta


@pytest.mark.parametrize("seed", range(60))
def test_any_values_make_something_that_can_be_drawn(seed: int) -> None:
    tensors, meta = random_frame(np.random.default_rng(seed))
    check_frame("overlay", {k: (str(t.dtype)[6:], tuple(t.shape)) for k, t in tensors.items()}, meta)
    r = result_of(frame_with(tensors, **meta))
    n = len(r.boxes)
    assert np.isfinite(r.boxes).all()
    assert np.isfinite(r.points).all()
    assert np.isfinite(r.lines).all()
    assert (r.boxes[:, :2] <= r.boxes[:, 2:]).all()
    assert len(r.drawn) == len(r.classes) == len(r.scores) == len(r.colors) == len(r.floors) == n
    assert len(r.line_colors) == len(r.lines)
    assert len(r.point_colors) == len(r.points)
    assert (r.skeleton >= 0).all()
    assert (r.skeleton < max(r.points.shape[1], 1)).all()
    for i in range(n):
        assert "\n" not in r.words(i)
    for mask in r.masks:
        assert 0 <= mask.box < n
        assert all(0 <= v <= 1 for v in mask.place)
    for x, y, _ in r.notes:
        assert np.isfinite((x, y)).all()
