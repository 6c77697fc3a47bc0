"""The lists of Gaussians by tile, against loops."""

from __future__ import annotations

import numpy as np
import pytest

from splatview.viewer_app.renderers import tile_lists
from splatview.viewer_app.renderers.tile_lists import Chunks, Lists

GRID = 11, 7


def chance_boxes(n: int, seed: int = 0) -> np.ndarray:
    """(n, 4): x and y of the first tile and of the one past the last. All sizes, a quarter of them empty."""
    g = np.random.default_rng(seed)
    x, y = (np.sort(g.integers(0, side + 1, (n, 2)), axis=1) for side in GRID)
    boxes = np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)
    boxes[(x[:, 0] == x[:, 1]) | (y[:, 0] == y[:, 1]) | (g.random(n) < 0.15)] = 0
    return boxes


def packed(boxes: np.ndarray) -> np.ndarray:
    """As the projection hands them over."""
    x0, y0, x1, y1 = boxes.T
    return np.stack([y0 * GRID[0] + x0, (y1 - y0) << 16 | (x1 - x0)], axis=1).astype(np.int32)


def by_tile(lists: Lists) -> list[list[int]]:
    return [lists.entries[start:end].tolist() for start, end in lists.ranges]


def expected(boxes: np.ndarray) -> list[list[int]]:
    tiles: list[list[int]] = [[] for _ in range(GRID[0] * GRID[1])]
    for i, (x0, y0, x1, y1) in enumerate(boxes.tolist()):
        for y in range(y0, y1):
            for x in range(x0, x1):
                tiles[y * GRID[0] + x].append(i)
    return tiles


@pytest.mark.parametrize("budget", [1, 1000])
def test_chunks_one_after_the_other(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    # With a budget of 1 each chunk holds one Gaussian, however large.
    monkeypatch.setattr(tile_lists, "BUDGET", budget)
    boxes = chance_boxes(300)
    joined: list[list[int]] = [[] for _ in range(GRID[0] * GRID[1])]
    chunks = list(Chunks(packed(boxes), GRID))
    assert len(chunks) > 2 and all(len(c.entries) <= max(budget, GRID[0] * GRID[1]) for c in chunks)
    for chunk in chunks:
        for tile, more in zip(joined, by_tile(chunk), strict=True):
            tile += more
    assert joined == expected(boxes)


def test_what_lies_behind_finished_tiles_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_lists, "BUDGET", 500)
    boxes = chance_boxes(300)
    unfinished = np.zeros(GRID[::-1], bool)
    unfinished[2, 3] = unfinished[6, 10] = True
    chunks = Chunks(packed(boxes), GRID)
    steps = iter(chunks)
    first = next(steps)
    taken = int(first.entries.max()) + 1
    chunks.close_tiles(unfinished)
    rest = {i for chunk in steps for i in chunk.entries.tolist()}
    seen = {i for i, (x0, y0, x1, y1) in enumerate(boxes.tolist()) if unfinished[y0:y1, x0:x1].any()}
    assert rest == {i for i in seen if i >= taken} and 0 < len(rest) < 250
