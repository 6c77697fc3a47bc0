"""What the viewer takes from overlay frames: read, copied, made safe to draw whatever the values are, and moved on
between results."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.annotate_cases import overlay_frame, result_of

from splatview_viewer.kinds.image.layers import Motion, matched
from splatview_viewer.kinds.image.overlay import PALETTE, PLAIN

if TYPE_CHECKING:
    from splatview_viewer.kinds.image.overlay import Mask

T = 1.7e9
"""Seconds since the epoch."""
LONG = 1e4
"""Of the viewer's clock, when nothing is on its way any more."""


def test_boxes_come_with_words_and_colors() -> None:
    r = result_of(overlay_frame(7, 123, boxes=[[1, 2, 3, 4], [9, 9, 5, 6], [0, 0, 1, 1]], labels=["cat", "a\nb", ""],
                                scores=[0.876, float("nan"), 0.5], classes=[0, 21, -1], by="who", rate_hz=2.5,
                                work_ms=3.0, trouble="no model"))
    assert (r.version, r.time_ns, r.by, r.rate_hz, r.work_ms, r.trouble) == (7, 123, "who", 2.5, 3.0, "no model")
    assert r.boxes.tolist() == [[1, 2, 3, 4], [5, 6, 9, 9], [0, 0, 1, 1]]
    assert [r.words(n) for n in range(3)] == ["cat 0.88", "a b", "0.50"]
    assert r.colors[:, :3].tolist() == [PALETTE[0].tolist(), PALETTE[1].tolist(), PLAIN.tolist()]
    assert not r.empty


def test_what_has_no_place_is_left_out() -> None:
    inf, nan = float("inf"), float("nan")
    r = result_of(overlay_frame(
        boxes=[[nan, 0, 1, 1], [0, 0, inf, 1], [0, 0, 1e30, 1], [1, 1, 2, 2]],
        points=[[[1, 1, 1], [nan, 1, 1], [2, 2, 0]], [[1, inf, 1], [5, 5, nan], [6, 6, 0.1]]],
        lines=[[[0, 0], [nan, 0], [1, 1], [2, 2]]], notes=[(nan, 0, "gone"), (1, 2, "here")]))
    assert r.drawn.tolist() == [False, False, False, True]
    assert r.points[..., 2].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert (r.lines.tolist(), r.notes) == ([[1, 1, 2, 2]], [(1, 2, "here")])


def test_it_is_copied() -> None:
    frame = overlay_frame(boxes=[[1, 2, 3, 4]], labels=["cat"], classes=[4], scores=[0.5],
                          masks=torch.ones(1, 48, 64, dtype=torch.uint8), points=[[[1, 2, 3]]],
                          lines=[[[0, 0], [1, 1]]])
    r = result_of(frame)
    for tensor in frame.tensors.values():
        tensor.array[...] = 0  # type: ignore[union-attr]
    assert (r.boxes.tolist(), r.words(0), r.classes.tolist()) == ([[1, 2, 3, 4]], "cat 0.50", [4])
    assert (r.points.tolist(), r.lines.tolist()) == ([[[1, 2, 1]]], [[0, 0, 1, 1]]) and r.masks[0].inside.all()


# -- masks -----------------------------------------------------------------------------------------------------


def laid(mask: Mask, size: tuple[int, int]) -> np.ndarray:
    """(h, w) bool: a mask as it lies in a picture of this size."""
    w, h = size
    out = np.zeros((h, w), bool)
    x0, y0, x1, y1 = (round(v * n) for v, n in zip(mask.place, (w, h, w, h), strict=True))
    rows = (np.arange(y1 - y0) + 0.5) * mask.inside.shape[0] / (y1 - y0)
    columns = (np.arange(x1 - x0) + 0.5) * mask.inside.shape[1] / (x1 - x0)
    out[y0:y1, x0:x1] = mask.inside[rows.astype(int)][:, columns.astype(int)]
    return out


def shapes(w: int, h: int) -> list[np.ndarray]:
    y, x = np.mgrid[0:h, 0:w]
    disc = (x - 20) ** 2 + (y - 15) ** 2 < 90
    ring = disc & ((x - 20) ** 2 + (y - 15) ** 2 > 30)
    whole, corner = np.ones((h, w), bool), (x == w - 1) & (y == h - 1)
    rng = np.random.default_rng(1)
    return [disc, ring, whole, corner, (x == 0) & (y == 0), x == 7, y == 3, rng.random((h, w)) < 0.3]


def test_masks_are_exact() -> None:
    w, h = 64, 48
    for mask in shapes(w, h):
        ys, xs = np.nonzero(mask)
        box = [[float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)]]
        given = torch.from_numpy(mask[None].copy())
        np.testing.assert_array_equal(laid(result_of(overlay_frame(boxes=box, masks=given)).masks[0], (w, h)), mask)
        alone = result_of(overlay_frame(masks=given))  # where the boxes are the masks' own
        np.testing.assert_array_equal(laid(alone.masks[0], (w, h)), mask)


# -- motion ----------------------------------------------------------------------------------------------------


def result(*boxes: tuple[float, ...], **more: Any) -> Any:
    return result_of(overlay_frame(boxes=np.array(boxes, np.float32).reshape(-1, 4), motion=True, **more), (640, 480))


def followed(first: Any, second: Any, then: float = T, time: float = T + 0.1) -> Motion:
    motion = Motion()
    motion.take(None, first, (0.0, then), (then, 0.0))
    motion.take(first, second, (then, time), (time, 0.0))
    return motion


def test_boxes_that_overlap_most_belong_together() -> None:
    before = result((0, 0, 10, 10), (100, 0, 110, 10), (3, 0, 13, 10))
    now = result((101, 0, 111, 10), (4, 0, 14, 10), (1, 0, 11, 10), (300, 300, 310, 310))
    assert matched(before, now).tolist() == [1, 2, 0, -1]


def test_a_box_goes_on_as_it_went() -> None:
    before, now = result((0, 0, 50, 50)), result((10, 5, 60, 55))
    motion = followed(before, now)
    assert motion.shift(now, T + 0.1, LONG).tolist() == [[0, 0]]
    np.testing.assert_allclose(motion.shift(now, T + 0.15, LONG), [[5, 2.5]], atol=1e-3)
    np.testing.assert_allclose(motion.shift(now, T + 0.2, LONG), [[10, 5]], atol=1e-3)


def test_it_stops_when_no_result_comes_and_never_goes_back() -> None:
    before, now = result((0, 0, 50, 50)), result((10, 0, 60, 50))
    motion = followed(before, now)
    ways = [float(motion.shift(now, T + 0.1 + s / 100, LONG)[0, 0]) for s in range(-20, 200)]
    assert all(b >= a for a, b in pairwise(ways))
    assert ways[0] == 0  # a picture older than the result
    assert ways[-1] == pytest.approx(20, abs=1e-3)  # twice what lay between the results
    slow = followed(before, now, T, T + 8)
    assert float(slow.shift(now, T + 100, LONG)[0, 0]) == pytest.approx(10 / 8, abs=1e-3)  # for one second at most


def test_a_new_result_does_not_make_a_box_jump() -> None:
    first, second, third = result((0, 0, 50, 50)), result((10, 0, 60, 50)), result((12, 0, 62, 50))
    motion = followed(first, second)
    shown = T + 0.2
    seen = 10 + float(motion.shift(second, shown, 1.0)[0, 0])
    motion.take(second, third, (T + 0.1, T + 0.2), (shown, 1.0))
    assert 12 + float(motion.shift(third, shown, 1.0)[0, 0]) == pytest.approx(seen, abs=1e-3)
    assert motion.settling(1.0)
    ways = [float(motion.shift(third, shown, 1.0 + s / 100)[0, 0]) for s in range(100)]
    assert all(b <= a for a, b in pairwise(ways))
    assert ways[-1] == 0  # where the result says
    assert not motion.settling(2.0)


def test_crowds_and_none() -> None:
    none, crowd = result(), result(*[(i, i, i + 5, i + 5) for i in range(1500)])
    assert (matched(crowd, crowd) == -1).all()
    assert followed(none, crowd).shift(crowd, T + 1, LONG).shape == (1500, 2)
    assert followed(crowd, none).shift(none, T + 1, LONG).shape == (0, 2)
