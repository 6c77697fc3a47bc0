"""Answers about a snapshot: tables, flame graphs, search, leaks and comparisons, against counting by hand."""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_data import MB, Recorder

from splatview_viewer.kinds.snapshot.analysis.colors import COLOR_BYS, colors
from splatview_viewer.kinds.snapshot.analysis.details import describe, segments_at
from splatview_viewer.kinds.snapshot.analysis.flame import flame
from splatview_viewer.kinds.snapshot.analysis.frames import MACHINERY, TORCH, categories, frame_kinds
from splatview_viewer.kinds.snapshot.analysis.search import search
from splatview_viewer.kinds.snapshot.analysis.tables import BYS, By, compare, group, leaks, post_mortem
from splatview_viewer.kinds.snapshot.loading import from_pickled
from splatview_viewer.kinds.snapshot.model import live_bytes, live_ids, live_mask

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.analysis.flame import FlameGraph
    from splatview_viewer.kinds.snapshot.model import Snapshot


@pytest.mark.parametrize("by", ["stack", "file", "category"])
def test_a_table_holds_every_allocation_once(real: Snapshot, by: By) -> None:
    trace = real.traces[0]
    size = trace.allocations.size
    for ids in (None, live_mask(trace, 3486)):
        table = group(real, trace, ids, by)
        rows = table.first(len(table))
        seen = np.concatenate([table.allocations(row.key) for row in rows])
        everything = np.arange(len(size)) if ids is None else live_ids(trace, 3486)
        assert sorted(seen.tolist()) == everything.tolist()
        for row in rows:
            mine = size[table.allocations(row.key)]
            assert (row.bytes, row.count, row.largest) == (mine.sum(), len(mine), mine.max())
            assert row.label
        assert [row.bytes for row in rows] == sorted((row.bytes for row in rows), reverse=True)


def _empty() -> Snapshot:
    return from_pickled({"segments": [], "device_traces": [[]]})


def _only_segments() -> Snapshot:
    """Nothing was recorded: blocks alone."""
    r = Recorder()
    r.segment(1 << 30, 20 << 20)
    r.alloc(1 << 30, 4096, "a.py:1 f")
    r.events.clear()
    return r.snapshot()


def _only_an_oom() -> Snapshot:
    r = Recorder()
    r.oom(1 << 30, 0)
    return r.snapshot()


def _no_sizes() -> Snapshot:
    r = Recorder()
    for i in range(100):
        r.alloc(4096 * (i + 1), 0)
    return r.snapshot()


@pytest.mark.parametrize("make", [_empty, _only_segments, _only_an_oom, _no_sizes])
def test_snapshots_with_next_to_nothing(make: Callable[[], Snapshot]) -> None:
    snapshot = make()
    for trace in snapshot.traces:
        a, last = len(trace.allocations), trace.moments - 1
        assert len(live_bytes(trace)) == trace.moments
        for by in BYS:
            assert group(snapshot, trace, None, by).count_of.sum() == a
            assert len(compare((snapshot, trace, 0), (snapshot, trace, last), by)) <= a
        for by in COLOR_BYS:
            assert colors(snapshot, trace, by).classes.shape == (a,)
        for text in ("", "f", "a.py:1", "0x40000000", ">1KB", "live:0", "age:>1s", "category:other", "stream:0"):
            assert search(snapshot, trace, text).mask.shape == (a,)
        graph = flame(snapshot, trace, None)
        assert graph.count[0] == a and graph.allocations(0).tolist() == list(range(a))
        for moment in (0, last):
            at = segments_at(snapshot, trace, moment)
            assert at.block_size.sum() == at.size.sum() == trace.segments.total.sum()
        assert len(post_mortem(snapshot, trace)) == (make is _only_an_oom)
        assert not any(s.bytes for s in leaks(snapshot, trace))
        for i in range(a):
            assert describe(snapshot, trace, i, last).text()


# -- flame graphs


def _path(snapshot: Snapshot, stack: int) -> tuple[int, ...]:
    frames = snapshot.stacks.of(stack).tolist()[::-1]
    if not frames:
        return (-2,)
    kinds = frame_kinds(snapshot)
    telling = [f for f in frames if kinds[f] != MACHINERY] or frames
    return (*(f for f in telling if kinds[f] <= TORCH), *(f for f in telling if kinds[f] > TORCH))


def _check(snapshot: Snapshot, graph: FlameGraph, ids: np.ndarray) -> None:
    a = snapshot.traces[0].allocations
    width: Counter[tuple[int, ...]] = Counter()
    count: Counter[tuple[int, ...]] = Counter()
    members: dict[tuple[int, ...], list[int]] = {}
    for i in ids.tolist():
        path = _path(snapshot, int(a.stack[i]))
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


def test_every_node_holds_what_went_through_it(real: Snapshot) -> None:
    trace = real.traces[0]
    ids = live_ids(trace, 3486)
    _check(real, flame(real, trace, ids), ids)


def test_random_stacks() -> None:
    rng = np.random.default_rng(5)
    r = Recorder()
    for i in range(300):
        depth = int(rng.integers(0, 6))
        r.alloc(4096 * (i + 1), int(rng.integers(0, 3)) * 100, *(f"f.py:{k} g" for k in rng.integers(0, 3, depth)))
    snapshot = r.snapshot()
    trace = snapshot.traces[0]
    for ids in (None, np.arange(0, 300, 7, dtype=np.int32), np.zeros(0, np.int32)):
        _check(snapshot, flame(snapshot, trace, ids), np.arange(300) if ids is None else ids)
    mask = np.arange(300) % 7 == 0
    assert flame(snapshot, trace, mask).width[0] == trace.allocations.size[mask].sum()


# -- search


def _stack_has(part: str) -> Callable[[Snapshot, int], bool]:
    @functools.cache
    def stack_has(snapshot: Snapshot, stack: int) -> bool:
        return any(part in f.file.lower() or part in f.name.lower() for f in snapshot.stack(stack))

    return lambda snapshot, i: stack_has(snapshot, int(snapshot.traces[0].allocations.stack[i]))


def _size(test: Callable[[int], bool]) -> Callable[[Snapshot, int], bool]:
    return lambda snapshot, i: test(int(snapshot.traces[0].allocations.size[i]))


@pytest.mark.parametrize(("text", "wanted"), [
    ("softmax", _stack_has("softmax")),
    (">1MiB", _size(lambda s: s > MB)),
    ("=4096", _size(lambda s: s == 4096)),
    ("8MB", _size(lambda s: 7.5 * MB <= s < 8.5 * MB)),
    ("10MB-20MB", _size(lambda s: 10 * MB <= s <= 20 * MB)),
    ("10mib..0.5GiB", _size(lambda s: 10 * MB <= s <= 512 * MB)),
    ("#77", lambda _, i: i == 77),
    ("", lambda *_: True),
])
def test_search_finds_what_asking_each_finds(real: Snapshot, text: str,
                                             wanted: Callable[[Snapshot, int], bool]) -> None:
    trace = real.traces[0]
    hits = search(real, trace, text)
    assert hits.ids.tolist() == [i for i in range(len(trace.allocations)) if wanted(real, i)]
    assert hits.count == len(hits.ids) and hits.bytes == trace.allocations.size[hits.ids].sum()
    assert len(hits.words) == (1 if text else 0)


def test_a_line_and_an_address(real: Snapshot) -> None:
    a = real.traces[0].allocations
    lines = search(real, real.traces[0], "model.py:39")
    assert lines.count > 100
    for stack in np.unique(a.stack[lines.ids]).tolist():
        assert any(f.file.endswith("model.py") and f.line == 39 for f in real.stack(stack))
    addr, size = int(a.addr[1000]), int(a.size[1000])
    inside = search(real, real.traces[0], f"0x{addr + size // 2:X}").ids
    assert 1000 in inside
    assert all(a.addr[i] <= addr + size // 2 < a.addr[i] + max(a.size[i], a.rounded[i]) for i in inside)
    assert search(real, real.traces[0], "0xffffffffffffffff").count == 0


def test_all_words_are_needed_and_a_minus_leaves_out(real: Snapshot) -> None:
    trace = real.traces[0]
    both = search(real, trace, "softmax >1MiB").mask
    assert (both == search(real, trace, "softmax").mask & search(real, trace, ">1MiB").mask).all()
    without = search(real, trace, "-softmax >1MiB").mask
    assert (without == ~search(real, trace, "softmax").mask & search(real, trace, ">1MiB").mask).all()
    live = search(real, trace, "live:3486")
    assert live.ids.tolist() == live_ids(trace, 3486).tolist()
    names = real.traces[0]
    activations = search(real, trace, "category:activations").mask
    of_allocation, found = categories(real, names)
    assert (activations == (of_allocation == found.index("activations"))).all()


# -- leaks, comparisons


BACKWARD = ("torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)",
            "torch::autograd::Engine::evaluate_function(int)")


def _training(steps: int = 100, leak: int = 1000) -> Recorder:
    """A loop that keeps a list of losses (the leak), a queue of 5 batches, and an optimizer's state."""
    r = Recorder()
    addr = iter(range(1 << 30, 1 << 40, 16 * MB))
    queue: list[int] = []
    for step in range(steps):
        batch, activation, scratch = next(addr), next(addr), next(addr)
        r.alloc(batch, 2 * MB, "data.py:5 fetch", "train.py:9 main")
        queue.append(batch)
        if len(queue) > 5:
            r.free(queue.pop(0), "data.py:8 drop")
        r.alloc(activation, 8 * MB, "model.py:3 forward", "train.py:10 main")
        r.alloc(scratch, 4 * MB, *BACKWARD)
        r.free(scratch, *BACKWARD)
        r.free(activation, *BACKWARD)
        if leak:
            r.alloc(next(addr), leak, "train.py:12 remember", "train.py:11 main")
        if 30 <= step < 80:  # parameters that are first used late
            r.alloc(next(addr), 10 * MB, "/x/site-packages/torch/optim/adam.py:178 _init_group", "train.py:14 main")
        if step == 50:
            r.alloc(next(addr), 64 * MB, "cache.py:1 warm", "train.py:15 main")
    return r


def test_a_planted_leak_is_the_first_suspect_however_small() -> None:
    snapshot = _training().snapshot()
    trace = snapshot.traces[0]
    suspects = leaks(snapshot, trace)
    first = suspects[0]
    assert first.label == "remember  train.py:12  from main train.py:11"
    assert first.growing and first.growth == 1.0
    assert first.kept.sum() == first.count == len(first.ids) and (first.kept[:-2] >= 1).all()
    assert (trace.allocations.size[first.ids] == 1000).all() and first.bytes == 1000 * first.count
    assert (np.diff(first.live) > 0).all() and first.live[-1] == 100 * 1000
    assert first.age_us == trace.events.time_us[-1] - trace.events.time_us[first.oldest]
    assert first.verdict.startswith(f"Grows: {first.count} allocations left behind in 30 of 32 parts")
    others = {s.label.partition("  ")[0]: s for s in suspects[1:]}
    assert set(others) == {"warm", "main"}  # the optimizer's state is called by who steps it
    assert not any(s.growing for s in others.values())
    assert "made once and held" in others["warm"].verdict
    assert "Probably optimizer state" in others["main"].verdict


def test_stacks_of_two_runs() -> None:
    before, after = Recorder(), Recorder()
    after.alloc(1 << 20, 5, "z.py:1 only_here")  # so that the numbers of stacks and frames differ
    for r, count in ((before, 2), (after, 5)):
        for i in range(count):
            r.alloc((i + 2) << 20, 100, "a.py:1 f", "a.py:9 main")
            r.alloc((i + 50) << 20, 7, "a.py:9 main", "a.py:1 f")  # the other way round: another stack
    a, b = before.snapshot(), after.snapshot()
    compared = compare((a, a.traces[0], 4), (b, b.traces[0], 11))
    found = [(c.label.split()[0], c.before, c.after, c.count_before, c.count_after)
             for c in map(compared.__getitem__, range(len(compared)))]
    assert found == [("f", 200, 500, 2, 5), ("main", 14, 35, 2, 5), ("only_here", 0, 5, 0, 1)]
    with pytest.raises(ValueError, match=r"moment 99 is not one of 0\.\.4"):
        compare((a, a.traces[0], 99), (b, b.traces[0], 11))
