"""Segments and blocks at any moment, and what the post-mortem of an OOM makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_by_hand import MB, Recorder

from splatview.viewer_app.memory import analysis, load_snapshot
from splatview.viewer_app.memory.analysis import ACTIVE, INACTIVE, PENDING, post_mortem, segments_at

if TYPE_CHECKING:
    from pathlib import Path

    from splatview.viewer_app.memory import Snapshot


@pytest.fixture(scope="module")
def real(data_dir: Path) -> Snapshot:
    return load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)


@pytest.mark.parametrize("rounded", [True, False], ids=["sizes known", "sizes inferred"])
def test_at_the_end_the_blocks_are_those_of_the_snapshot(real: Snapshot, rounded: bool) -> None:
    trace = real.traces[0]
    if not rounded:
        trace = replace(trace, allocations=replace(trace.allocations, rounded=0 * trace.allocations.rounded))
    at = segments_at(real, trace, len(trace.events))
    order = np.argsort(trace.segments.addr)
    assert at.addr.tolist() == trace.segments.addr[order].tolist()
    assert at.size.tolist() == trace.segments.total[order].tolist()
    assert at.active_of_segment().tolist() == trace.segments.active[order].tolist()
    b, order = trace.blocks, np.argsort(trace.blocks.addr)
    assert at.block_addr.tolist() == b.addr[order].tolist()
    assert at.block_size.tolist() == b.size[order].tolist()
    assert at.block_state.tolist() == b.state[order].tolist()
    assert at.block_allocation.tolist() == b.allocation[order].tolist()


def test_blocks_fill_the_segments_and_hold_what_is_live_at_every_moment(real: Snapshot) -> None:
    trace = real.traces[0]
    for moment in (0, 1, 500, 3486, 9999, 13134, 20000):
        at = segments_at(real, trace, moment)
        live = at.block_allocation[at.block_state == ACTIVE]
        assert sorted(live.tolist()) == analysis.live_ids(trace, moment).tolist()
        assert (at.block_addr[at.block_state == ACTIVE] == trace.allocations.addr[live]).all()
        for i in range(len(at)):
            mine = slice(int(at.block_start[i]), int(at.block_start[i + 1]))
            ends = at.block_addr[mine] + at.block_size[mine]
            assert at.block_addr[mine][0] == at.addr[i] and ends[-1] == at.addr[i] + at.size[i]
            assert (at.block_addr[mine][1:] == ends[:-1]).all()
            assert at.at(int(at.addr[i])) == at.at(int(at.addr[i] + at.size[i]) - 1) == i
        assert at.active + at.pending + at.free == at.reserved
    with pytest.raises(ValueError, match="moment -1 is not one of"):
        segments_at(real, trace, -1)


def test_pending_blocks_and_figures() -> None:
    r = Recorder()
    r.segment(1 << 30, 20 * MB)
    r.alloc(1 << 30, 4 * MB, "a.py:1 f")
    r.alloc((1 << 30) + 8 * MB, 2 * MB, "a.py:2 f")
    r.add("free_requested", 1 << 30, 4 * MB)
    r.free((1 << 30) + 8 * MB)
    r.add("free_completed", 1 << 30, 4 * MB)
    r._live.clear()
    snapshot = r.snapshot()
    trace = snapshot.traces[0]
    states = [segments_at(snapshot, trace, m).block_state.tolist() for m in range(len(trace.events) + 1)]
    assert states == [[], [INACTIVE], [ACTIVE, INACTIVE], [ACTIVE, INACTIVE, ACTIVE, INACTIVE],
                      [PENDING, INACTIVE, ACTIVE, INACTIVE], [PENDING, INACTIVE, PENDING, INACTIVE],
                      [PENDING, INACTIVE], [INACTIVE]]
    at = segments_at(snapshot, trace, 4)
    assert (at.reserved, at.active, at.pending, at.free) == (20 * MB, 2 * MB, 4 * MB, 14 * MB)
    assert (at.largest_free, at.free_blocks, at.fragmentation) == (10 * MB, 2, 1 - 10 / 14)
    empty = segments_at(snapshot, trace, 0)
    assert (len(empty), empty.reserved, empty.largest_free, empty.fragmentation, empty.at(5)) == (0, 0, 0, 0.0, -1)


def test_ranges_of_one_expandable_segment_are_one() -> None:
    r = Recorder()
    r.add("segment_map", 1 << 30, 20 * MB)
    r.add("segment_map", (1 << 30) + 20 * MB, 20 * MB)
    r.add("segment_alloc", (1 << 30) + 40 * MB, 20 * MB)
    r.alloc((1 << 30) + 10 * MB, 20 * MB, "a.py:1 f")  # over both ranges
    r.free((1 << 30) + 10 * MB)
    r.add("segment_unmap", 1 << 30, 20 * MB)
    snapshot = r.snapshot()
    at = segments_at(snapshot, snapshot.traces[0], 4)
    assert at.size.tolist() == [40 * MB, 20 * MB] and at.expandable.tolist() == [True, False]
    assert at.block_size.tolist() == [10 * MB, 20 * MB, 10 * MB, 20 * MB]
    assert segments_at(snapshot, snapshot.traces[0], 7).size.tolist() == [20 * MB, 20 * MB]


def _checkered(live: int, hole: int) -> Recorder:
    """Sixteen segments of 20 MiB, live blocks with holes behind them."""
    r = Recorder()
    for i in range(16):
        base = (1 << 30) + i * 32 * MB
        r.segment(base, 20 * MB)
        for k in range(20 * MB // (live + hole)):
            r.alloc(base + k * (live + hole), live, "model.py:7 forward", "train.py:3 step")
            if hole:
                r.alloc(base + k * (live + hole) + live, hole, "tmp.py:1 scratch")
    for addr in [a for a, v in r._live.items() if v[1][0].startswith("tmp")]:
        r.free(addr)
    return r


def test_fragmentation_is_told_from_being_really_full() -> None:
    r = _checkered(2 * MB, 3 * MB)
    r.oom(100 * MB, 10 * MB)
    snapshot = r.snapshot()
    (oom,) = post_mortem(snapshot, snapshot.traces[0])
    assert oom.kind == "fragmentation" and "192 MiB was free in 64 blocks, none larger than 3.00 MiB" in oom.verdict
    assert (oom.asked, oom.device_free, oom.reserved, oom.live) == (100 * MB, 10 * MB, 320 * MB, 128 * MB)
    assert (oom.cached, oom.usable, oom.largest_free, oom.free_blocks) == (192 * MB, 192 * MB, 3 * MB, 64)
    assert oom.holders[0].label == "forward  model.py:7  from step train.py:3" and oom.holders[0].count == 64

    r = _checkered(20 * MB, 0)
    r.oom(100 * MB, 10 * MB)
    snapshot = r.snapshot()
    (oom,) = post_mortem(snapshot, snapshot.traces[0])
    assert oom.kind == "full" and oom.verdict.startswith("Really full: 320 MiB of 320 MiB reserved was in use")


def test_the_driver_s_rest_counts_and_a_limit_is_named() -> None:
    r = _checkered(2 * MB, 3 * MB)
    r.oom(200 * MB, 10 * MB)
    r.oom(100 * MB, 1 << 36)
    r.oom(300 * MB, 1 << 36)
    snapshot = r.snapshot()
    together, limited, limited_full = post_mortem(snapshot, snapshot.traces[0])
    assert together.kind == "fragmentation" and "in one piece" in together.verdict
    assert limited.kind == "fragmentation" and "set_per_process_memory_fraction" in limited.verdict
    assert limited_full.kind == "full" and "a limit" in limited_full.verdict


def test_memory_of_another_stream_is_elsewhere_and_pending_is_pending() -> None:
    r = Recorder()
    r.segment(1 << 30, 100 * MB, stream=7)
    r.alloc(1 << 30, 10 * MB, "a.py:1 f", stream=7)
    r.oom(50 * MB, MB)
    snapshot = r.snapshot()
    (oom,) = post_mortem(snapshot, snapshot.traces[0])
    assert oom.kind == "elsewhere" and "90.0 MiB was free, but in other pools, for other streams" in oom.verdict
    r = Recorder()
    r.segment(1 << 30, 100 * MB)
    r.alloc(1 << 30, 100 * MB, "a.py:1 f")
    r.add("free_requested", 1 << 30, 100 * MB)
    r.oom(50 * MB, MB)
    r._live.clear()
    snapshot = r.snapshot()
    (oom,) = post_mortem(snapshot, snapshot.traces[0])
    assert oom.kind == "pending" and "record_stream" in oom.verdict


def test_small_segments_are_of_no_use_to_large_requests() -> None:
    r = Recorder()
    for i in range(32):
        r.segment((1 << 30) + i * 2 * MB, 2 * MB)
    r.oom(20 * MB, MB)
    r.oom(1024, 0)
    snapshot = r.snapshot()
    large, small = post_mortem(snapshot, snapshot.traces[0])
    assert (large.usable, large.kind) == (0, "elsewhere")
    assert (small.usable, small.kind) == (64 * MB, "limit")


def test_no_oom_no_post_mortem(real: Snapshot) -> None:
    assert post_mortem(real, real.traces[0]) == []
