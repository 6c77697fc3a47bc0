"""Answers about a snapshot: tables, flame graphs, search, leaks, kinds, colours, segments; against counting by hand."""

from __future__ import annotations

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


@pytest.mark.parametrize("by", ["stack", "category"])
def test_a_table_holds_every_allocation_once(
    real: MemorySnapshot, by: Grouping
) -> None:
    trace = real.traces[0]
    mask = live_mask(trace, 3486)
    size = trace.allocations.size
    rows = list(group_allocations(real, trace, mask, by))
    groups = [
        group_allocations(real, trace, mask, by).allocations(row.key) for row in rows
    ]
    assert sorted(np.concatenate(groups).tolist()) == np.flatnonzero(mask).tolist()
    assert [(r.bytes, r.count, r.largest) for r in rows] == [
        (size[g].sum(), len(g), size[g].max()) for g in groups
    ]
    assert [row.bytes for row in rows] == sorted(
        (row.bytes for row in rows), reverse=True
    )


def _recorded(make: Callable[[Recorder], object]) -> MemorySnapshot:
    r = Recorder()
    make(r)
    return r.snapshot()


NEXT_TO_NOTHING: dict[str, Callable[[Recorder], object]] = {
    "nothing": lambda r: None,
    "only segments": lambda r: (
        r.segment(1 << 30, 20 << 20),
        r.alloc(1 << 30, 4096, "a.py:1 f"),
        r.events.clear(),
    ),
    "only an oom": lambda r: r.oom(1 << 30, 0),
    "no sizes": lambda r: [r.alloc(4096 * (i + 1), 0) for i in range(100)],
}


@pytest.mark.parametrize("name", NEXT_TO_NOTHING)
def test_snapshots_with_next_to_nothing(name: str) -> None:
    snapshot = _recorded(NEXT_TO_NOTHING[name])
    for trace in snapshot.traces:
        a = len(trace.allocations)
        last = trace.moment_count - 1
        assert len(live_bytes(trace)) == trace.moment_count
        for by in GROUPINGS:
            assert group_allocations(snapshot, trace, None, by).counts.sum() == a
            assert (
                len(compare_moments((snapshot, trace, 0), (snapshot, trace, last), by))
                <= a
            )
        for color_by in COLORS:
            assert color_allocations(snapshot, trace, color_by).classes.shape == (a,)
        for text in ("", "f", "a.py:1", "0x40000000", ">1KB"):
            assert search(snapshot, trace, text).mask.shape == (a,)
        graph = flame_graph(snapshot, trace, None)
        assert graph.count[0] == a
        assert graph.allocations(0).tolist() == list(range(a))
        for moment in (0, last):
            at = segments_at(snapshot, trace, moment)
            assert at.block_size.sum() == at.size.sum() == trace.segments.total.sum()
        if name == "only an oom":
            assert explain_oom(snapshot, trace, 0).verdict
        assert not any(s.bytes for s in find_leaks(snapshot, trace))
        for i in range(a):
            assert describe(snapshot, trace, i, last).text()


def _check(snapshot: MemorySnapshot, graph: FlameGraph, ids: np.ndarray) -> None:
    """Each node holds those of its parent whose stacks have its frame, and lies in it, the largest at the left."""
    a = snapshot.traces[0].allocations
    of = {0: graph.allocations(0)}
    assert of[0].tolist() == ids.tolist()
    for node in range(1, len(graph.parent)):
        mine = graph.allocations(node)
        parent = int(graph.parent[node])
        of[node] = mine
        frame = int(graph.frame[node])
        assert (graph.width[node], graph.count[node]) == (
            a.size[mine].sum(),
            len(mine),
        )
        assert len(mine)
        assert np.isin(mine, of[parent]).all()
        assert graph.depth[node] == graph.depth[parent] + 1
        assert all(
            frame in snapshot.stacks.frames_of(s) or frame == -2
            for s in np.unique(a.stack[mine]).tolist()
        )
    for parent, mine in of.items():
        nodes = np.flatnonzero(graph.parent == parent)
        assert (
            sum(len(of[n]) for n in nodes.tolist()) in (0, len(mine))
            or (graph.leaf == parent).any()
        )
        x = graph.x[nodes]
        width = graph.width[nodes]
        assert (x[1:] >= (x + width)[:-1]).all()
        assert (np.diff(width) <= 0).all()
        assert (x >= graph.x[parent]).all()
        assert (x + width <= graph.x[parent] + graph.width[parent]).all()


def test_every_node_of_a_flame_graph_holds_what_went_through_it(
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
    every = np.arange(300, dtype=np.int32)
    for given, chosen in (
        (None, every),
        (every % 7 == 0, every[::7]),
        (every < 0, every[:0]),
    ):
        _check(snapshot, flame_graph(snapshot, snapshot.traces[0], given), chosen)


Wanted = Callable[["MemorySnapshot", int], bool]


def _size(test: Callable[[int], bool]) -> Wanted:
    return lambda snapshot, i: test(int(snapshot.traces[0].allocations.size[i]))


def _frame(test: Callable[[StackFrame], bool]) -> Wanted:
    return lambda snapshot, i: any(
        map(test, snapshot.stack(int(snapshot.traces[0].allocations.stack[i])))
    )


SOFT = _frame(lambda f: "softmax" in f.file or "softmax" in f.name.lower())
LARGE = _size(lambda s: s > MB)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (">1MiB", LARGE),
        ("=4096", _size(lambda s: s == 4096)),
        ("8MB", _size(lambda s: 7.5 * MB <= s < 8.5 * MB)),
        (">=10mib <=0.5GiB", _size(lambda s: 10 * MB <= s <= 512 * MB)),
        ("", lambda *_: True),
        ("Softmax", SOFT),
        ("model.py:39", _frame(lambda f: f.file.endswith("model.py") and f.line == 39)),
        ("softmax >1MiB", lambda *given: SOFT(*given) and LARGE(*given)),
        ("-softmax >1MiB", lambda *given: not SOFT(*given) and LARGE(*given)),
    ],
)
def test_search_finds_what_asking_each_finds(
    real: MemorySnapshot, text: str, wanted: Wanted
) -> None:
    trace = real.traces[0]
    hits = search(real, trace, text)
    assert np.flatnonzero(hits.mask).tolist() == [
        i for i in range(len(trace.allocations)) if wanted(real, i)
    ]
    assert hits.count == hits.mask.sum()
    assert hits.bytes == trace.allocations.size[hits.mask].sum()
    assert len(hits.meanings) == len(text.split())


def test_a_planted_leak_is_the_first_suspect_however_small() -> None:
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
    others = {s.label.partition("  ")[0]: s for s in suspects[1:]}
    assert others.keys() == {"warm", "main"}
    assert not any(s.is_growing for s in others.values())


def test_stacks_of_two_runs() -> None:
    before = Recorder()
    after = Recorder()
    after.alloc(
        1 << 20, 5, "z.py:1 only_here"
    )  # so that the numbers of stacks and frames differ
    for r, count in ((before, 2), (after, 5)):
        for i in range(count):
            r.alloc((i + 2) << 20, 100, "a.py:1 f", "a.py:9 main")
            r.alloc(
                (i + 50) << 20, 7, "a.py:9 main", "a.py:1 f"
            )  # the other way round: another stack
    a = before.snapshot()
    b = after.snapshot()
    compared = compare_moments((a, a.traces[0], 4), (b, b.traces[0], 11))
    found = [
        (
            c.label.split()[0],
            c.bytes_before,
            c.bytes_after,
            c.count_before,
            c.count_after,
        )
        for c in map(compared.__getitem__, range(len(compared)))
    ]
    assert found == [
        ("f", 200, 500, 2, 5),
        ("main", 14, 35, 2, 5),
        ("only_here", 0, 5, 0, 1),
    ]
    for by in GROUPINGS:
        compared = compare_moments((a, a.traces[0], 4), (b, b.traces[0], 11), by)
        assert (
            compared.changes.sum()
            == compared.bytes_after - compared.bytes_before
            == 540 - 214
        )


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
def test_whose_frame(file: str, name: str, kind: int) -> None:
    assert kind_of(file, name) == kind


@pytest.mark.parametrize(
    ("made", "freed", "category"),
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
def test_categories(
    made: tuple[str, ...], freed: tuple[str, ...] | None, category: str
) -> None:
    r = Recorder()
    r.alloc(4096, 100, *made)
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


def test_details_tell_everything() -> None:
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
    assert all(
        part in details.text()
        for part in (details.title, "/me/model.py:3  forward", "Compiled")
    )


def test_a_life_whose_clock_was_set_back_has_no_duration() -> None:
    events = [event("alloc", 512, time_us=5000), event("free", 512, time_us=2000)]
    loaded = from_pickled(snapshot(events))
    rows = dict(describe(loaded, loaded.traces[0], 0, 1).rows)
    assert rows["Lived"] == "1 event"


def test_endless_names_are_no_burden() -> None:
    """What is looked at of a name is bounded."""
    for name in ("Backward<" * 100_000, "(" * 1_000_000):
        snapshot = _recorded(
            lambda r, name=name: r.alloc(4096, 100, name, f"/home/{name}.py:1 {name}")
        )
        assert categories(snapshot, snapshot.traces[0])[0].shape == (1,)
        assert 0 < len(summary(snapshot, snapshot.traces[0], 0)) < 5000


def test_at_the_end_the_blocks_are_those_of_the_snapshot(real: MemorySnapshot) -> None:
    trace = real.traces[0]
    trace = replace(
        trace,
        allocations=replace(trace.allocations, rounded=0 * trace.allocations.rounded),
    )  # inferred
    at = segments_at(real, trace, len(trace.events))
    order = np.argsort(trace.segments.addr)
    b = trace.blocks
    by_addr = np.argsort(trace.blocks.addr)
    for found, want in (
        (at.addr, trace.segments.addr[order]),
        (at.size, trace.segments.total[order]),
        (at.block_addr, b.addr[by_addr]),
        (at.block_size, b.size[by_addr]),
        (at.block_state, b.state[by_addr]),
        (at.block_allocation, b.allocation[by_addr]),
    ):
        np.testing.assert_array_equal(found, want)


def test_blocks_fill_the_segments_and_hold_what_is_live_at_every_moment(
    real: MemorySnapshot,
) -> None:
    trace = real.traces[0]
    for moment in (0, 500, 3486, 20000):
        at = segments_at(real, trace, moment)
        live = at.block_allocation[at.block_state == ACTIVE]
        assert (
            sorted(live.tolist()) == np.flatnonzero(live_mask(trace, moment)).tolist()
        )
        assert (
            at.block_addr[at.block_state == ACTIVE] == trace.allocations.addr[live]
        ).all()
        for i in range(len(at)):
            mine = slice(int(at.block_start[i]), int(at.block_start[i + 1]))
            ends = at.block_addr[mine] + at.block_size[mine]
            assert at.block_addr[mine][0] == at.addr[i]
            assert ends[-1] == at.addr[i] + at.size[i]
            assert (at.block_addr[mine][1:] == ends[:-1]).all()
        assert at.active + at.pending + at.free == at.reserved


def test_what_is_freed_for_another_stream_is_pending() -> None:
    r = Recorder()
    r.segment(HIGH, 20 * MB)
    r.alloc(HIGH, 4 * MB, "a.py:1 f")
    r.alloc(HIGH + 8 * MB, 2 * MB, "a.py:2 f")
    r.add("free_requested", HIGH, 4 * MB)
    r.add("free_completed", HIGH, 4 * MB)
    snapshot = r.snapshot()
    at = segments_at(snapshot, snapshot.traces[0], 4)
    assert at.block_state.tolist() == [PENDING, INACTIVE, ACTIVE, INACTIVE]
    assert (at.reserved, at.active, at.pending, at.free) == (
        20 * MB,
        2 * MB,
        4 * MB,
        14 * MB,
    )
    assert at.block_addr.tolist() == [
        HIGH,
        HIGH + 4 * MB,
        HIGH + 8 * MB,
        HIGH + 10 * MB,
    ]


@pytest.mark.parametrize(
    ("live", "hole", "words"),
    [
        (2 * MB, 3 * MB, "192 MiB was free in 64 blocks, none larger than 3.00 MiB"),
        (20 * MB, 0, "Really full: 320 MiB of 320 MiB reserved was in use"),
    ],
)
def test_fragmentation_is_told_from_being_really_full(
    live: int, hole: int, words: str
) -> None:
    """Sixteen segments of 20 MiB, live blocks with holes behind them."""
    r = Recorder()
    for base in range(1 << 30, (1 << 30) + 16 * 32 * MB, 32 * MB):
        r.segment(base, 20 * MB)
        for at in range(base, base + 20 * MB, live + hole):
            r.alloc(at, live, "model.py:7 forward", "train.py:3 step")
    r.oom(100 * MB, 10 * MB)
    snapshot = r.snapshot()
    oom = explain_oom(snapshot, snapshot.traces[0], len(r.events) - 1)
    count = 16 * 20 * MB // (live + hole)
    assert words in oom.verdict
    assert (oom.requested, oom.device_free, oom.holders.total) == (
        100 * MB,
        10 * MB,
        count * live,
    )
    assert (oom.segments.free, oom.usable.tolist()) == (
        count * hole,
        [hole] * count * bool(hole),
    )
    assert oom.holders[0].label == "forward  model.py:7  from step train.py:3"
    assert oom.holders[0].count == count
