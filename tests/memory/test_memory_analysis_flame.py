"""The flame graph, compared with a dictionary of paths."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_by_hand import Recorder
from support.repetitions import exhaustive

from splatview.viewer_app.memory import analysis, load_snapshot
from splatview.viewer_app.memory.analysis import flame
from splatview.viewer_app.memory.analysis.frames import MACHINERY, TORCH
from splatview.viewer_app.memory.model import Stacks

if TYPE_CHECKING:
    from pathlib import Path

    from splatview.viewer_app.memory import Snapshot
    from splatview.viewer_app.memory.analysis import FlameGraph


@pytest.fixture(scope="module")
def real(data_dir: Path) -> Snapshot:
    return load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)


def _path(snapshot: Snapshot, stack: int, user_first: bool) -> tuple[int, ...]:
    frames = snapshot.stacks.of(stack).tolist()[::-1]
    if not frames:
        return (-2,)
    kinds = analysis.frame_kinds(snapshot)
    if not user_first:
        return tuple(frames)
    telling = [f for f in frames if kinds[f] != MACHINERY] or frames
    return (*(f for f in telling if kinds[f] <= TORCH), *(f for f in telling if kinds[f] > TORCH))


def _check(snapshot: Snapshot, graph: FlameGraph, ids: np.ndarray, user_first: bool) -> None:
    a = snapshot.traces[0].allocations
    width: Counter[tuple[int, ...]] = Counter()
    count: Counter[tuple[int, ...]] = Counter()
    members: dict[tuple[int, ...], list[int]] = {}
    for i in ids.tolist():
        path = _path(snapshot, int(a.stack[i]), user_first)
        for depth in range(len(path) + 1):
            width[path[:depth]] += int(a.size[i])
            count[path[:depth]] += 1
            members.setdefault(path[:depth], []).append(i)
    seen = {}
    for node in range(len(graph)):
        path = tuple(int(graph.frame[n]) for n in graph.path(node)[1:])
        assert path not in seen
        seen[path] = node
        assert (graph.width[node], graph.count[node]) == (width[path], count[path])
        assert graph.depth[node] == len(path)
    assert set(seen) == set(count) | {()}
    for path in list(seen)[:: max(1, len(seen) // 40)]:
        assert graph.allocations(seen[path]).tolist() == members.get(path, [])
    for depth in range(graph.depths):
        first, last = graph.level[depth: depth + 2]
        x, w, parent = graph.x[first:last], graph.width[first:last], graph.parent[first:last]
        assert (x[1:] >= (x + w)[:-1]).all()  # side by side, from left to right
        if depth:
            assert (x >= graph.x[parent]).all() and (x + w <= graph.x[parent] + graph.width[parent]).all()
            brothers = parent[1:] == parent[:-1]
            assert (np.diff(w)[brothers] <= 0).all()
        for node in range(first, min(last, first + 20)):
            if graph.width[node]:
                assert graph.at(depth, float(graph.x[node])) == node
                assert graph.at(depth, float(graph.x[node] + graph.width[node]) - 0.5) == node
    assert graph.at(graph.depths, 0) == graph.at(-1, 0) == graph.at(0, float(graph.width[0])) == -1


@pytest.mark.parametrize("user_first", [True, exhaustive(False)])
def test_every_node_holds_what_went_through_it(real: Snapshot, user_first: bool) -> None:
    trace = real.traces[0]
    for ids in (analysis.live_ids(trace, 3486), np.arange(len(trace.allocations))):
        _check(real, flame(real, trace, ids, user_first=user_first), ids, user_first)


def test_random_stacks() -> None:
    rng = np.random.default_rng(5)
    r = Recorder()
    for i in range(300):
        depth = int(rng.integers(0, 6))
        r.alloc(4096 * (i + 1), int(rng.integers(0, 3)) * 100, *(f"f.py:{k} g" for k in rng.integers(0, 3, depth)))
    snapshot = r.snapshot()
    trace = snapshot.traces[0]
    for user_first in (True, False):
        for ids in (None, np.arange(0, 300, 7, dtype=np.int32), np.zeros(0, np.int32)):
            everything = np.arange(300) if ids is None else ids
            _check(snapshot, flame(snapshot, trace, ids, user_first=user_first), everything, user_first)
    mask = np.arange(300) % 7 == 0
    assert flame(snapshot, trace, mask).width[0] == trace.allocations.size[mask].sum()


def test_a_snapshot_without_stacks() -> None:
    r = Recorder()
    r.alloc(4096, 100)
    graph = flame(r.snapshot(), r.snapshot().traces[0])
    assert [graph.text(n) for n in range(len(graph))] == ["all", "no stack"]


def test_what_is_visible(real: Snapshot) -> None:
    graph = flame(real, real.traces[0], None)
    total = int(graph.width[0])
    for depth in range(graph.depths):
        for low, high, least in ((0, total, 0), (total // 3, total // 2, total / 500)):
            expected = [n for n in range(graph.level[depth], graph.level[depth + 1])
                        if graph.x[n] < high and graph.x[n] + graph.width[n] > low and graph.width[n] >= least]
            assert graph.visible(depth, low, high, least).tolist() == expected


@pytest.mark.exhaustive
def test_a_hundred_thousand_stacks() -> None:
    """Counts at the first two depths, which are told without following the stacks."""
    r = Recorder()
    for i in range(500):
        r.alloc(4096 * (i + 1), 64, f"f.py:{i} g")
    snapshot = r.snapshot()
    rng = np.random.default_rng(1)
    start = np.arange(0, 100_001 * 30, 30, dtype=np.int64)
    frames = rng.integers(0, 4, 100_000 * 30).astype(np.int32) + np.tile(np.arange(30, dtype=np.int32) * 4, 100_000)
    s = snapshot.stacks
    a = snapshot.traces[0].allocations
    stack = rng.integers(0, 100_000, len(a)).astype(np.int32)
    trace = replace(snapshot.traces[0], allocations=replace(a, stack=stack))
    many = replace(snapshot, stacks=Stacks(s.file, s.line, s.name, start, frames), traces=(trace,))
    graph = flame(many, trace)
    outermost = frames[start[stack] + 29]
    nodes = range(graph.level[1], graph.level[2])
    assert {int(graph.frame[n]): int(graph.count[n]) for n in nodes} == dict(Counter(outermost.tolist()))
    assert graph.depths == 31
