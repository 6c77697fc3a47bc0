"""Simple motion: which boxes of two results are the same thing, and where they are between results."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from support.overlay_cases import overlay_frame, result_of

from splatview.viewer_app.views._overlay.motion import Motion, matched

T = 1.7e9
"""Seconds since the epoch."""
LONG = 1e4
"""Of the viewer's clock, when nothing is on its way any more."""


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


def test_what_was_followed_wrongly_jumps() -> None:
    first, second, third = result((0, 0, 50, 50)), result((30, 0, 80, 50)), result((35, 0, 85, 50))
    motion = followed(first, second, T, T + 0.01)
    motion.take(second, third, (T + 0.01, T + 0.5), (T + 0.5, 1.0))
    assert motion.shift(third, T + 0.5, 1.0).tolist() == [[0, 0]]  # it was thought at 90


def test_crowds_and_nobody() -> None:
    none = result()
    assert matched(none, none).tolist() == []
    crowd = result(*[(i, i, i + 5, i + 5) for i in range(1500)])
    assert (matched(crowd, crowd) == -1).all()
    assert followed(none, crowd).shift(crowd, T + 1, LONG).shape == (1500, 2)
    assert followed(crowd, none).shift(none, T + 1, LONG).shape == (0, 2)
    some = result(*[(10 * i, 0, 10 * i + 8, 8) for i in range(300)])
    assert matched(some, some).tolist() == list(range(300))
