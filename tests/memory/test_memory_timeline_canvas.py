"""Finished pictures: two canvases in one, as rows; the ground over what is live. By kernels and by reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.timeline_cases import use_reference

from splatview.viewer_app.memory.timeline import Canvas, assemble, paint_ground


@pytest.fixture(params=["kernels", "reference"], autouse=True)
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "reference":
        use_reference(monkeypatch)


def painted(rng: np.random.Generator, width: int, height: int) -> Canvas:
    canvas = Canvas(width, height)
    canvas.rgba[:] = rng.integers(0, 256, canvas.rgba.shape)
    canvas.ids[:] = rng.integers(-1, 1000, canvas.ids.shape)
    return canvas


@pytest.mark.parametrize(("width", "height"), [(1, 1), (70, 45), (131, 33)])
@pytest.mark.parametrize("grain", [1, 2, 4])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_columns_of_two_canvases_in_one(width: int, height: int, grain: int, share: float) -> None:
    rng = np.random.default_rng(width + 10 * grain)
    before, fresh = painted(rng, 50, height), painted(rng, 60, height)
    origin = np.where(rng.random(width) < share, rng.integers(0, 50, width), -1), rng.integers(0, 60, width)
    out = Canvas(width, height, blank=False)
    high, wide = height * grain - grain // 2, width * grain - grain // 2  # the last ones may be cut
    rows = np.empty((high, wide), np.uint32)
    for part in ((0, width // 3), (width // 3, width)):
        assemble(before, fresh, origin, out, rows, part, grain)
    for x in range(width):
        source, column = (before, origin[0][x]) if origin[0][x] >= 0 else (fresh, origin[1][x])
        assert (out.ids[x] == source.ids[column]).all()
        assert (out.rgba[x] == source.rgba[column]).all()
    for row in (0, high // 2, high - 1):
        for x in (0, wide // 2, wide - 1):
            assert rows[row, x] == out.packed[x // grain, height - 1 - row // grain]


def test_there_need_not_be_a_canvas_before() -> None:
    fresh = painted(np.random.default_rng(0), 40, 30)
    out, rows = Canvas(40, 30, blank=False), np.empty((30, 40), np.uint32)
    assemble(None, fresh, (np.full(40, -1), np.arange(40)), out, rows, (0, 40))
    assert (rows == fresh.packed.T[::-1]).all()


def test_the_ground_over_what_is_live() -> None:
    canvas = painted(np.random.default_rng(1), 5, 20)
    before: Any = canvas.rgba.copy()
    top, bottom = np.array([0, 4, 19, 7, 20]), np.array([3, 10, 20, 7, 20])
    paint_ground(canvas.rgba, top, bottom, ((1, 2, 3), (9, 8, 7)), 2)
    for x in range(5):
        for y in range(20):
            want = before[x, y]
            if top[x] <= y < bottom[x]:
                want = (9, 8, 7, 255) if top[x] > 0 and y < top[x] + 2 else (1, 2, 3, 255)
            assert tuple(canvas.rgba[x, y]) == tuple(want), (x, y)
