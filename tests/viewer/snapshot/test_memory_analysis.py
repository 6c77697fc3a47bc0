"""Tables, flame graphs, search, leaks and segments of a snapshot agree with counts by
hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.memory_data import HIGH, MB, Recorder, event, snapshot, training

from splatview_viewer.kinds.snapshot.state import COLORS
from splatview_viewer.snapshot.analysis.categories import categories
from splatview_viewer.snapshot.analysis.colors import color_allocations
from splatview_viewer.snapshot.analysis.details import describe, summary
from splatview_viewer.snapshot.analysis.flame import FlameGraph, flame_graph
from splatview_viewer.snapshot.analysis.frames import (
    BACKWARD,
    LIBRARY,
    MACHINERY,
    NATIVE,
    TORCH,
    USER,
    kind_of,
)
from splatview_viewer.snapshot.analysis.leaks import find_leaks
from splatview_viewer.snapshot.analysis.oom import explain_oom
from splatview_viewer.snapshot.analysis.search import search
from splatview_viewer.snapshot.analysis.segments import (
    ACTIVE,
    INACTIVE,
    PENDING,
    segments_at,
)
from splatview_viewer.snapshot.analysis.tables import (
    GROUPINGS,
    Grouping,
    compare_moments,
    group_allocations,
)
from splatview_viewer.snapshot.loading import from_pickled
from splatview_viewer.snapshot.model import (
    MemorySnapshot,
    StackFrame,
    live_bytes,
    live_mask,
)


@pytest.mark.parametrize("grouping", ["stack", "category"])
def test_tables_hold_every_allocation_once(
    real: MemorySnapshot, grouping: Grouping
) -> None:
    trace = real.traces[0]
    mask = live_mask(trace, 3486)
    size = trace.allocations.size
    table = group_allocations(real, trace, mask, grouping)
    rows = list(table)
    groups = [table.allocations(row.key) for row in rows]
    assert sorted(np.concatenate(groups).tolist()) == np.flatnonzero(mask).tolist()
    for row, group in zip(rows, groups, strict=True):
        assert row.bytes == size[group].sum()
        assert row.count == len(group)
        assert row.largest == size[group].max()
    row_bytes = [row.bytes for row in rows]
    assert row_bytes == sorted(row_bytes, reverse=True)


def _recorded(make: Callable[[Recorder], object]) -> MemorySnapshot:
    r = Recorder()
    make(r)
    return r.snapshot()


def _record_nothing(r: Recorder) -> None:
    pass


def _record_only_segments(r: Recorder) -> None:
    r.segment(1 << 30, 20 << 20)
    r.alloc(1 << 30, 4096, "a.py:1 f")
    r.events.clear()


def _record_only_an_oom(r: Recorder) -> None:
    r.oom(1 << 30, 0)


def _record_empty_allocations(r: Recorder) -> None:
    for i in range(100):
        r.alloc(4096 * (i + 1), 0)


NEARLY_EMPTY: dict[str, Callable[[Recorder], object]] = {
    "nothing": _record_nothing,
    "only segments": _record_only_segments,
    "only an oom": _record_only_an_oom,
    "no sizes": _record_empty_allocations,
}


@pytest.mark.parametrize("name", NEARLY_EMPTY)
def test_nearly_empty_snapshots_are_analysed(name: str) -> None:
    snapshot = _recorded(NEARLY_EMPTY[name])
    for trace in snapshot.traces:
        a = len(trace.allocations)
        last = trace.moment_count - 1
        assert len(live_bytes(trace)) == trace.moment_count
        start_moment = (snapshot, trace, 0)
        end_moment = (snapshot, trace, last)
        for grouping in GROUPINGS:
            table = group_allocations(snapshot, trace, None, grouping)
            assert table.counts.sum() == a
            assert len(compare_moments(start_moment, end_moment, grouping)) <= a
        for color_by in COLORS:
            assert color_allocations(snapshot, trace, color_by).classes.shape == (a,)
        for text in ("", "f", "a.py:1", "0x40000000", ">1KB"):
            assert search(snapshot, trace, text).mask.shape == (a,)
        graph = flame_graph(snapshot, trace, None)
        assert graph.count[0] == a
        assert graph.allocations(0).tolist() == list(range(a))
        for moment_index in (0, last):
            segments = segments_at(snapshot, trace, moment_index)
            total = trace.segments.total.sum()
            assert segments.block_size.sum() == segments.size.sum() == total
        if name == "only an oom":
            assert explain_oom(snapshot, trace, 0).verdict
        assert not any(s.bytes for s in find_leaks(snapshot, trace))
        for i in range(a):
            assert describe(snapshot, trace, i, last).text()


def _check(snapshot: MemorySnapshot, graph: FlameGraph, ids: np.ndarray) -> None:
    """Check what the nodes of a graph hold and where they lie.

    A node holds the allocations of its parent whose stacks have its frame. It lies
    within its parent, the largest child at the left.
    """
    a = snapshot.traces[0].allocations
    allocations_of = {0: graph.allocations(0)}
    assert allocations_of[0].tolist() == ids.tolist()
    for node in range(1, len(graph.parent)):
        mine = graph.allocations(node)
        parent = int(graph.parent[node])
        allocations_of[node] = mine
        frame = int(graph.frame[node])
        assert graph.width[node] == a.size[mine].sum()
        assert graph.count[node] == len(mine)
        assert len(mine)
        assert np.isin(mine, allocations_of[parent]).all()
        assert graph.depth[node] == graph.depth[parent] + 1
        if frame != -2:
            for stack in np.unique(a.stack[mine]).tolist():
                assert frame in snapshot.stacks.frames_of(stack)
    for parent, mine in allocations_of.items():
        nodes = np.flatnonzero(graph.parent == parent)
        child_count = sum(len(allocations_of[n]) for n in nodes.tolist())
        assert child_count in (0, len(mine)) or (graph.leaf == parent).any()
        x = graph.x[nodes]
        width = graph.width[nodes]
        assert (x[1:] >= (x + width)[:-1]).all()
        assert (np.diff(width) <= 0).all()
        assert (x >= graph.x[parent]).all()
        assert (x + width <= graph.x[parent] + graph.width[parent]).all()


def test_flame_graph_nodes_hold_the_allocations_of_their_frames(
    real: MemorySnapshot,
) -> None:
    mask = live_mask(real.traces[0], 3486)
    _check(real, flame_graph(real, real.traces[0], mask), np.flatnonzero(mask))
    rng = np.random.default_rng(5)

    def random_stacks(r: Recorder) -> None:
        for i in range(300):
            frames = [f"f.py:{k} g" for k in rng.integers(0, 3, rng.integers(0, 6))]
            r.alloc(4096 * (i + 1), int(rng.integers(0, 3)) * 100, *frames)

    snapshot = _recorded(random_stacks)
    all_ids = np.arange(300, dtype=np.int32)
    for mask, ids in (
        (None, all_ids),
        (all_ids % 7 == 0, all_ids[::7]),
        (all_ids < 0, all_ids[:0]),
    ):
        _check(snapshot, flame_graph(snapshot, snapshot.traces[0], mask), ids)


Condition = Callable[[MemorySnapshot, int], bool]
"""Whether an allocation of the first device is one that a search means."""


def _size(snapshot: MemorySnapshot, i: int) -> int:
    return int(snapshot.traces[0].allocations.size[i])


@functools.cache
def _frames(snapshot: MemorySnapshot, stack_id: int) -> list[StackFrame]:
    return snapshot.stack(stack_id)


def _stack(snapshot: MemorySnapshot, i: int) -> list[StackFrame]:
    return _frames(snapshot, int(snapshot.traces[0].allocations.stack[i]))


def _is_large(snapshot: MemorySnapshot, i: int) -> bool:
    return _size(snapshot, i) > MB


def _has_4096_bytes(snapshot: MemorySnapshot, i: int) -> bool:
    return _size(snapshot, i) == 4096


def _has_about_8_mb(snapshot: MemorySnapshot, i: int) -> bool:
    return 7.5 * MB <= _size(snapshot, i) < 8.5 * MB


def _has_10_to_512_mb(snapshot: MemorySnapshot, i: int) -> bool:
    return 10 * MB <= _size(snapshot, i) <= 512 * MB


def _is_any(snapshot: MemorySnapshot, i: int) -> bool:
    return True


@functools.cache
def _is_softmax(snapshot: MemorySnapshot, i: int) -> bool:
    frames = _stack(snapshot, i)
    return any("softmax" in f.file or "softmax" in f.name.lower() for f in frames)


def _is_at_model_line_39(snapshot: MemorySnapshot, i: int) -> bool:
    frames = _stack(snapshot, i)
    return any(f.file.endswith("model.py") and f.line == 39 for f in frames)


def _is_large_softmax(snapshot: MemorySnapshot, i: int) -> bool:
    return _is_softmax(snapshot, i) and _is_large(snapshot, i)


def _is_large_without_softmax(snapshot: MemorySnapshot, i: int) -> bool:
    return not _is_softmax(snapshot, i) and _is_large(snapshot, i)


@pytest.mark.parametrize(
    ("text", "is_expected"),
    [
        (">1MiB", _is_large),
        ("=4096", _has_4096_bytes),
        ("8MB", _has_about_8_mb),
        (">=10mib <=0.5GiB", _has_10_to_512_mb),
        ("", _is_any),
        ("Softmax", _is_softmax),
        ("model.py:39", _is_at_model_line_39),
        ("softmax >1MiB", _is_large_softmax),
        ("-softmax >1MiB", _is_large_without_softmax),
    ],
)
def test_search_finds_the_allocations_that_fit(
    real: MemorySnapshot, text: str, is_expected: Condition
) -> None:
    trace = real.traces[0]
    hits = search(real, trace, text)
    assert np.flatnonzero(hits.mask).tolist() == [
        i for i in range(len(trace.allocations)) if is_expected(real, i)
    ]
    assert hits.count == hits.mask.sum()
    assert hits.bytes == trace.allocations.size[hits.mask].sum()
    assert len(hits.meanings) == len(text.split())


def test_planted_leak_is_the_first_suspect() -> None:
    snapshot = training().snapshot()
    trace = snapshot.traces[0]
    suspects = find_leaks(snapshot, trace)
    first = suspects[0]
    assert first.label.startswith("remember  train.py:12")
    assert first.is_growing
    assert first.kept_counts.sum() == len(first.ids)
    assert (first.kept_counts[:-2] >= 1).all()
    assert (trace.allocations.size[first.ids] == 1000).all()
    assert first.bytes == 1000 * len(first.ids)
    assert first.age_us == trace.events.time_us[-1] - trace.events.time_us[first.oldest]
    further_suspects = {s.label.partition("  ")[0]: s for s in suspects[1:]}
    assert further_suspects.keys() == {"warm", "main"}
    assert not any(s.is_growing for s in further_suspects.values())


def test_stacks_of_two_runs_are_compared() -> None:
    first_run = Recorder()
    second_run = Recorder()
    # With this allocation the indices of stacks and frames differ between the runs.
    second_run.alloc(1 << 20, 5, "z.py:1 only_here")
    for r, count in ((first_run, 2), (second_run, 5)):
        for i in range(count):
            r.alloc((i + 2) << 20, 100, "a.py:1 f", "a.py:9 main")
            # The same frames in reverse are another stack.
            r.alloc((i + 50) << 20, 7, "a.py:9 main", "a.py:1 f")
    a = first_run.snapshot()
    b = second_run.snapshot()
    compared = compare_moments((a, a.traces[0], 4), (b, b.traces[0], 11))
    rows = []
    for i in range(len(compared)):
        row = compared[i]
        function = row.label.split()[0]
        sizes = (row.bytes_before, row.bytes_after)
        rows.append((function, *sizes, row.count_before, row.count_after))
    assert rows == [
        ("f", 200, 500, 2, 5),
        ("main", 14, 35, 2, 5),
        ("only_here", 0, 5, 0, 1),
    ]
    for grouping in GROUPINGS:
        compared = compare_moments((a, a.traces[0], 4), (b, b.traces[0], 11), grouping)
        difference = compared.bytes_after - compared.bytes_before
        assert compared.changes.sum() == difference == 540 - 214


ENGINE = "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"
RELEASE = "torch::autograd::generated::MulBackward0::release_variables()"
MUL = "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)"
OPTIM = "/x/site-packages/torch/optim/adam.py:5 "
NN = "/x/site-packages/torch/nn/modules/module.py:5 "


@pytest.mark.parametrize(
    ("file", "name", "kind"),
    [
        ("/home/me/model.py", "forward", USER),
        ("<ipython-input-3-abc>", "<module>", USER),
        (
            "/home/me/.venv/lib/python3.12/site-packages/torch/nn/modules/module.py",
            "_call_impl",
            TORCH,
        ),
        ("/tmp/torchinductor_me/ab/cab.py", "call", TORCH),
        ("<eval_with_key>.5", "forward", TORCH),
        ("/x/site-packages/transformers/trainer.py", "train", LIBRARY),
        ("C:\\env\\Lib\\site-packages\\gsplat\\rendering.py", "rasterization", LIBRARY),
        ("??", MUL, BACKWARD),
        (
            "",
            "at::_ops::mul_Tensor::call(at::Tensor const&, at::Tensor const&)",
            NATIVE,
        ),
        ("??", "my_extension::rasterize(at::Tensor)", NATIVE),
        ("??", "_PyEval_EvalFrameDefault", MACHINERY),
        (
            "CUDACachingAllocator.cpp",
            "c10::cuda::CUDACachingAllocator::Native::malloc(void**)",
            MACHINERY,
        ),
    ],
)
def test_frames_are_told_apart_by_file_and_function(
    file: str, name: str, kind: int
) -> None:
    assert kind_of(file, name) == kind


@pytest.mark.parametrize(
    ("stack", "freed", "category"),
    [
        ((NN + "_apply", "train.py:1 main"), None, "parameters"),
        ((OPTIM + "_init_group", "train.py:2 main"), None, "optimizer state"),
        (("model.py:1 forward", NN + "_call_impl"), (RELEASE, ENGINE), "activations"),
        (
            ("model.py:1 forward", NN + "_call_impl"),
            ("model.py:2 forward",),
            "other temporaries",
        ),
        ((MUL, ENGINE), (MUL, ENGINE), "backward temporaries"),
        ((MUL, ENGINE), (OPTIM + "zero_grad", "train.py:3 main"), "gradients"),
        (("torch::autograd::AccumulateGrad::apply()", ENGINE), None, "gradients"),
        (
            ("model.py:1 forward", NN + "_call_impl", "ckpt.py:1 backward", ENGINE),
            (MUL, ENGINE),
            "activations",
        ),
        (
            ("at::cuda::getCurrentCUDABlasHandle()", "model.py:1 forward"),
            None,
            "library workspaces",
        ),
        (
            ("c10d::ProcessGroupNCCL::allreduce()", "train.py:1 main"),
            None,
            "communication",
        ),
        (
            (
                "/x/site-packages/torch/utils/data/_utils/pin_memory.py:3 pin",
                "train.py:1 main",
            ),
            None,
            "inputs",
        ),
        (("train.py:9 main",), None, "other"),
    ],
)
def test_allocations_get_their_categories(
    stack: tuple[str, ...], freed: tuple[str, ...] | None, category: str
) -> None:
    r = Recorder()
    r.alloc(4096, 100, *stack)
    r.alloc(5 << 20, 64, "x.py:1 filler", ENGINE)
    if freed is not None:
        r.free(4096, *freed)
    for i in range(40):
        r.alloc((i + 500) << 20, 64, "x.py:1 filler")
    snapshot = r.snapshot()
    of_allocation, names = categories(snapshot, snapshot.traces[0])
    assert (
        names[of_allocation[snapshot.traces[0].allocations.addr == 4096][0]] == category
    )


def test_details_name_all_facts_of_an_allocation() -> None:
    r = Recorder()
    r.segment(0x7F0000000000, 64 * MB)
    r.alloc(
        0x7F0000000000,
        3 * MB,
        "at::_ops::mul_Tensor::call()",
        "/me/model.py:3 forward",
        NN + "_call_impl",
        "/me/train.py:7 main",
        compile_context="0/1",
        user_metadata="epoch 3",
        stream=9,
    )
    r.alloc(0x7F0001000000, 3 * MB, "/me/model.py:4 other")
    r.free(0x7F0000000000, "/me/train.py:8 main")
    snapshot = r.snapshot()
    details = describe(snapshot, snapshot.traces[0], 0, 2)
    rows = dict(details.rows)
    assert details.title == "3.00 MiB  forward  model.py:3  aten::mul_Tensor"
    assert rows["Address"] == "0x7f0000000000"
    assert rows["Stream"] == "stream 9"
    assert rows["Pool"] == "default pool"
    assert rows["Compiled"] == "0/1"
    assert rows["Metadata"] == "epoch 3"
    assert rows["Lived"] == "2 events, 2 ms"
    assert rows["Share"].startswith("100.0% of the 3.00 MiB live")
    assert [line.text for line in details.user_frames] == [
        "/me/model.py:3  forward",
        "/me/train.py:7  main",
    ]
    assert [line.line for line in details.freed_frames] == [8]
    for line in (details.title, "/me/model.py:3  forward", "Compiled"):
        assert line in details.text()


def test_lifetime_without_a_steady_clock_has_no_duration() -> None:
    events = [event("alloc", 512, time_us=5000), event("free", 512, time_us=2000)]
    loaded = from_pickled(snapshot(events))
    rows = dict(describe(loaded, loaded.traces[0], 0, 1).rows)
    assert rows["Lived"] == "1 event"


def test_endless_names_are_categorised_quickly() -> None:
    """Only a bounded length of a name is looked at."""
    for name in ("Backward<" * 100_000, "(" * 1_000_000):
        r = Recorder()
        r.alloc(4096, 100, name, f"/home/{name}.py:1 {name}")
        snapshot = r.snapshot()
        assert categories(snapshot, snapshot.traces[0])[0].shape == (1,)
        assert 0 < len(summary(snapshot, snapshot.traces[0], 0)) < 5000


def test_last_moment_has_the_blocks_of_the_snapshot(real: MemorySnapshot) -> None:
    trace = real.traces[0]
    # Without rounded sizes the blocks are inferred.
    unrounded = replace(trace.allocations, rounded=0 * trace.allocations.rounded)
    trace = replace(trace, allocations=unrounded)
    segments = segments_at(real, trace, len(trace.events))
    order = np.argsort(trace.segments.addr)
    b = trace.blocks
    by_addr = np.argsort(trace.blocks.addr)
    for actual, expected in (
        (segments.addr, trace.segments.addr[order]),
        (segments.size, trace.segments.total[order]),
        (segments.block_addr, b.addr[by_addr]),
        (segments.block_size, b.size[by_addr]),
        (segments.block_state, b.state[by_addr]),
        (segments.block_allocation, b.allocation[by_addr]),
    ):
        np.testing.assert_array_equal(actual, expected)


def test_blocks_fill_the_segments_and_hold_the_live_allocations(
    real: MemorySnapshot,
) -> None:
    trace = real.traces[0]
    for moment_index in (0, 500, 3486, 20000):
        segments = segments_at(real, trace, moment_index)
        is_active = segments.block_state == ACTIVE
        live = segments.block_allocation[is_active]
        expected = np.flatnonzero(live_mask(trace, moment_index))
        assert sorted(live.tolist()) == expected.tolist()
        active_addr = segments.block_addr[is_active]
        assert (active_addr == trace.allocations.addr[live]).all()
        for i in range(len(segments)):
            mine = slice(int(segments.block_start[i]), int(segments.block_start[i + 1]))
            starts = segments.block_addr[mine]
            ends = starts + segments.block_size[mine]
            assert starts[0] == segments.addr[i]
            assert ends[-1] == segments.addr[i] + segments.size[i]
            assert (starts[1:] == ends[:-1]).all()
        total = segments.active + segments.pending + segments.free
        assert total == segments.reserved


def test_block_freed_for_another_stream_is_pending() -> None:
    r = Recorder()
    r.segment(HIGH, 20 * MB)
    r.alloc(HIGH, 4 * MB, "a.py:1 f")
    r.alloc(HIGH + 8 * MB, 2 * MB, "a.py:2 f")
    r.add("free_requested", HIGH, 4 * MB)
    r.add("free_completed", HIGH, 4 * MB)
    snapshot = r.snapshot()
    segments = segments_at(snapshot, snapshot.traces[0], 4)
    assert segments.block_state.tolist() == [PENDING, INACTIVE, ACTIVE, INACTIVE]
    assert segments.reserved == 20 * MB
    assert segments.active == 2 * MB
    assert segments.pending == 4 * MB
    assert segments.free == 14 * MB
    assert segments.block_addr.tolist() == [
        HIGH,
        HIGH + 4 * MB,
        HIGH + 8 * MB,
        HIGH + 10 * MB,
    ]


@pytest.mark.parametrize(
    ("live", "hole", "verdict"),
    [
        (2 * MB, 3 * MB, "192 MiB was free in 64 blocks, none larger than 3.00 MiB"),
        (20 * MB, 0, "Really full: 320 MiB of 320 MiB reserved was in use"),
    ],
)
def test_verdict_distinguishes_fragmentation_from_full_memory(
    live: int, hole: int, verdict: str
) -> None:
    """Sixteen segments of 20 MiB hold live blocks with holes behind them."""
    r = Recorder()
    for base in range(1 << 30, (1 << 30) + 16 * 32 * MB, 32 * MB):
        r.segment(base, 20 * MB)
        for addr in range(base, base + 20 * MB, live + hole):
            r.alloc(addr, live, "model.py:7 forward", "train.py:3 step")
    r.oom(100 * MB, 10 * MB)
    snapshot = r.snapshot()
    oom = explain_oom(snapshot, snapshot.traces[0], len(r.events) - 1)
    count = 16 * 20 * MB // (live + hole)
    assert verdict in oom.verdict
    assert oom.requested == 100 * MB
    assert oom.device_free == 10 * MB
    assert oom.holders.total == count * live
    assert oom.segments.free == count * hole
    assert oom.usable.tolist() == [hole] * count * bool(hole)
    assert oom.holders[0].label == "forward  model.py:7  from step train.py:3"
    assert oom.holders[0].count == count
