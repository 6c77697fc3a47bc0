"""Answers about a snapshot: tables, search, what is live, what leaks, compared with counting by hand."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.memory_by_hand import Recorder

from splatview.viewer_app.memory import analysis, load_snapshot
from splatview.viewer_app.memory.analysis.tables import BYS, Tables
from splatview.viewer_app.memory.loading import from_pickled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from splatview.viewer_app.memory import Snapshot


@pytest.fixture(scope="module")
def real(data_dir: Path) -> Snapshot:
    return load_snapshot(data_dir / "training_memory_snapshot.pickle", cache=False)


def test_live_bytes_are_the_sums_of_what_is_live(real: Snapshot) -> None:
    trace = real.traces[0]
    live = analysis.live_bytes(trace)
    assert len(live) == trace.moments
    for moment in (0, 1, 77, 5000, analysis.peak_moment(trace), trace.moments - 1):
        assert live[moment] == trace.allocations.size[analysis.live_ids(trace, moment)].sum()
    assert live.max() == live[analysis.peak_moment(trace)]
    with pytest.raises(ValueError, match=r"moment 22333 is not one of 0\.\.22332"):
        analysis.live_mask(trace, trace.moments)


@pytest.mark.parametrize("by", BYS)
def test_a_table_holds_every_allocation_once(real: Snapshot, by: analysis.By) -> None:
    trace = real.traces[0]
    size = trace.allocations.size
    for ids in (None, analysis.live_ids(trace, 3486), analysis.live_mask(trace, 3486)):
        table = Tables(real).group(trace, ids, by)
        seen = np.concatenate([row.allocations for row in table])
        everything = np.arange(len(size)) if ids is None else analysis.live_ids(trace, 3486)
        assert sorted(seen.tolist()) == everything.tolist()
        for row in table:
            mine = size[row.allocations]
            assert (row.bytes, row.count, row.largest) == (mine.sum(), len(mine), mine.max())
            assert row.label
        assert [row.bytes for row in table] == sorted((row.bytes for row in table), reverse=True)


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
        assert len(analysis.live_bytes(trace)) == trace.moments
        for by in BYS:
            assert sum(row.count for row in Tables(snapshot).group(trace, None, by)) == a
            assert len(analysis.compare((snapshot, trace, 0), (snapshot, trace, last), by)) <= a
        for by in analysis.COLOR_BYS:
            assert analysis.colors(snapshot, trace, by).classes.shape == (a,)
        for text in ("", "f", "a.py:1", "0x40000000", ">1KB", "live:0", "age:>1s", "category:other", "stream:0"):
            assert analysis.search(snapshot, trace, text).mask.shape == (a,)
        for user_first in (True, False):
            graph = analysis.flame(snapshot, trace, None, user_first=user_first)
            assert graph.count[0] == a and graph.allocations(0).tolist() == list(range(a))
        for moment in (0, last):
            at = analysis.segments_at(snapshot, trace, moment)
            assert at.block_size.sum() == at.size.sum() == trace.segments.total.sum()
        assert len(analysis.post_mortem(snapshot, trace)) == (make is _only_an_oom)
        assert not any(s.bytes for s in analysis.leaks(snapshot, trace))
        assert len(analysis.marks(snapshot, trace)) == (make is _only_an_oom)
        for i in range(a):
            assert analysis.describe(snapshot, trace, i, last).text()


def test_what_is_worked_out_is_kept_with_the_snapshot_and_goes_with_it(real: Snapshot) -> None:
    assert analysis.user_frames(real) is analysis.user_frames(real)
    r = Recorder()
    for i in range(100):
        r.alloc(4096 * (i + 1), 64, f"a.py:{i} f")
    r.oom(1 << 30, 0)
    snapshot = r.snapshot()
    trace = snapshot.traces[0]
    assert analysis.post_mortem(snapshot, trace)[0].holders and analysis.leaks(snapshot, trace)
    assert analysis.flame(snapshot, trace) and analysis.marks(snapshot, trace) is not None
    analysis.search(snapshot, trace, "f")
    for by in analysis.COLOR_BYS:
        analysis.colors(snapshot, trace, by)
    gone = weakref.ref(snapshot)
    gc.disable()  # nothing that is kept holds on to the snapshot: it goes at once
    try:
        del snapshot, trace
        assert gone() is None
    finally:
        gc.enable()
