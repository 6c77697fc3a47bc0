"""Panes of the view of memory snapshots that say who holds memory: stacks, what grew, leaks, post-mortems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.repetitions import exhaustive
from support.snapshot_panes_rig import (  # noqa: F401
    MOMENT,
    WHOLE,
    Rig,
    full_fixture,
    press,
    real_fixture,
    rig_fixture,
)

from splatview.viewer_app.memory.analysis import compare, leaks, live_bytes, live_ids, post_mortem
from splatview.viewer_app.memory.loading import from_pickled
from splatview.viewer_app.views._snapshot.content import Content
from splatview.viewer_app.views._snapshot.panes import _flame
from splatview.viewer_app.views._snapshot.panes.compare import ComparePane
from splatview.viewer_app.views._snapshot.panes.leaks import LeaksPane
from splatview.viewer_app.views._snapshot.panes.oom import OomPane
from splatview.viewer_app.views._snapshot.panes.stacks import StacksPane

if TYPE_CHECKING:
    from splatview.viewer_app.memory.model import Snapshot

pytestmark = pytest.mark.usefixtures("timeline_kernels")


# -- stacks ------------------------------------------------------------------------------------------------------------


def test_a_row_lights_its_allocations_and_puts_them_out(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(StacksPane(), real)
    rig.look.go(MOMENT)
    rig.settle()
    trace = real.traces[0]
    assert pane._table.total == live_bytes(trace)[MOMENT]
    for by in ("stack", "file", "function", "line", "size", "category"):
        pane.by = by
        rig.settle()
        rig.click(pane._grid.middle(1))
        row = pane._table[1]
        assert (lit := rig.look.lit) is not None
        assert np.flatnonzero(lit).tolist() == sorted(row.allocations.tolist())
        assert trace.allocations.size[lit].sum() == row.bytes
        assert set(np.flatnonzero(lit)) <= set(live_ids(trace, MOMENT).tolist())
        rig.click(pane._grid.middle(1))
        assert rig.look.lit is None


def test_flame_graph_zooms_lights_and_goes_back(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(StacksPane(), real)
    graph = pane._graph
    assert graph.width[0] == live_bytes(real.traces[0]).max()  # no moment was chosen: the peak
    child = int(graph.at(1, 0))
    rig.click(pane._flame.middle(child))
    assert pane._flame.zoom == child
    assert real.traces[0].allocations.size[rig.look.lit].sum() == graph.width[child]
    wide = dict(pane._flame.drawn[1])[child]
    assert wide == pytest.approx(dict(pane._flame.drawn[0])[0])  # its caller is still there to go back to
    rig.click(pane._flame.middle(child), button=1)
    assert pane._flame.zoom == 0
    rig.click(pane._flame.middle(0))
    assert rig.look.lit is None


def test_flame_graph_of_a_search(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(StacksPane(), real)
    before = rig.pixels()
    rig.look.search = "softmax"
    rig.settle()
    assert (rig.pixels() != before).any()
    hits = pane._look[1].hit
    names = [real.frame(int(f)) for f in np.flatnonzero(hits)]
    assert names and all("softmax" in f"{f.name} {f.file}".lower() for f in names)


def test_of_everything_and_of_what_was_found(rig: Rig, real: Snapshot) -> None:
    pane = rig.show(StacksPane(), real)
    pane.of = "all"
    rig.settle()
    size = real.traces[0].allocations.size
    assert pane._table.total == size.sum() == pane._graph.width[0]
    mask = size > 1 << 20
    rig.look.find(mask)
    pane.of = "found"
    rig.settle()
    assert pane._table.total == size[mask].sum() == pane._graph.width[0]
    rig.look.find(None)
    rig.settle()
    assert pane.of == "moment"


@pytest.mark.parametrize("stacks", [20_000, exhaustive(100_000)])
def test_many_stacks_are_few_boxes(rig: Rig, stacks: int) -> None:
    """Tens of thousands of stacks: what is narrower than a pixel is not drawn, what is wider is."""
    entries = [{"action": "alloc", "addr": 4096 * (i + 1), "size": 512 if i else 1 << 40, "stream": 0, "time_us": i,
                "frames": [{"filename": "a.py", "line": i, "name": "leaf"},
                           {"filename": "a.py", "line": i % (3 * stacks // 1000), "name": "middle"}]}
               for i in range(stacks)]
    pane = rig.show(StacksPane(), from_pickled({"segments": [], "device_traces": [entries]}))
    assert len(pane._graph) > stacks
    drawn = pane._flame.drawn
    assert [len(row) for row in drawn] == [1, 1, 1]
    pane._flame.zoom = int(np.flatnonzero((pane._graph.depth == 1) & (pane._graph.width < 1 << 30))[0])
    rig.settle()
    widths = [w for row in pane._flame.drawn for _, w in row]
    assert 300 < len(widths) < 2 * WHOLE.width and min(widths) >= 1


def test_frames_of_ones_own_are_warm() -> None:
    shades = _flame.shades(np.array([0, 1, 0, 7]), np.array([True, False, True, False]))
    red, blue = shades & 255, shades >> 16 & 255
    assert (red[[0, 2]] > blue[[0, 2]]).all() and (red[[1, 3]] < blue[[1, 3]]).all()
    assert shades[0] == shades[2]


# -- compare, leaks, post-mortem ---------------------------------------------------------------------------------------


def test_compare_two_moments(rig: Rig, real: Snapshot) -> None:
    pane, trace = rig.show(ComparePane(), real), real.traces[0]
    live = live_bytes(trace)
    assert pane._shown.before == live[0] and pane._shown.after == live.max()  # from the beginning to the peak
    rig.look.mark(MOMENT)
    rig.look.mark(3000)
    rig.settle()
    assert pane._shown.changes.sum() == live[MOMENT] - live[3000]
    rig.click(pane._grid.middle(0))
    row = compare((real, trace, 3000), (real, trace, MOMENT))[0]
    assert rig.look.lit is not None
    assert np.flatnonzero(rig.look.lit).tolist() == np.union1d(*row.allocations).tolist()


def test_compare_with_another_open_snapshot(rig: Rig, real: Snapshot, full: Snapshot) -> None:
    other = Content(full)
    try:
        pane = rig.show(ComparePane(), real)
        assert other in rig.content.others()
        pane.other = other
        rig.look.go(MOMENT)
        rig.settle()
        assert pane._shown.before == live_bytes(full.traces[0]).max()
        assert pane._shown.after == live_bytes(real.traces[0])[MOMENT]
        pane.when = "end"
        rig.settle()
        assert pane._shown.before == live_bytes(full.traces[0])[-1]
        rig.click(pane._grid.middle(0))
        assert rig.look.lit is not None and rig.look.lit.any()
    finally:
        other.close()
    rig.settle()
    assert pane.other is None  # it was closed


def test_leaks_light_what_was_left_behind(rig: Rig, real: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    pane, suspects = rig.show(LeaksPane(), real), leaks(real, real.traces[0])
    assert suspects
    rig.click(pane._grid.middle(0))
    assert rig.look.lit is not None
    assert np.flatnonzero(rig.look.lit).tolist() == sorted(suspects[0].ids.tolist())
    press(monkeypatch, rig, "To the oldest")
    assert rig.look.moment == suspects[0].oldest + 1
    assert rig.look.selected in suspects[0].ids


def test_post_mortem(rig: Rig, full: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    pane = rig.show(OomPane(), full)
    (oom,) = post_mortem(full, full.traces[0])
    assert oom.kind == "fragmentation"
    rig.click(pane._grid.middle(0))
    assert rig.look.lit is not None
    assert np.flatnonzero(rig.look.lit).tolist() == oom.holders[0].allocations.tolist()
    press(monkeypatch, rig, "Go there")
    assert rig.look.moment == oom.moment
