"""Two snapshots of memory are shown together, and survive a pointer that leaves."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import widgets
from support.memory_data import event, snapshot
from support.placement import placement_of
from support.snapshot_cases import settle, until_compared
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import (
    FileDrop,
    PointerLeave,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.kinds.snapshot.panes.compare import (
    is_row_chosen,
    shown_growth,
    toggle_row,
)
from splatview_viewer.kinds.snapshot.state import TABS
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.shell.finger import REACH
from splatview_viewer.shell.stream_texts import letters_of
from splatview_viewer.shell.time_area import lanes_of

pytestmark = pytest.mark.usefixtures("timeline_kernels")


def write_snapshot(folder: Path, name: str, leaks_every: int) -> Path:
    """Write a snapshot of a program that frees all but some of what it allocates."""
    events = []
    for index in range(60):
        events.append(event("alloc", 4096 * index, time_us=10 * index))
        if index % leaks_every:
            freed = {"time_us": 10 * index + 5}
            events.append(event("free_completed", 4096 * index, **freed))
    file = folder / name
    file.write_bytes(pickle.dumps(snapshot(events)))
    return file


def choose_line(viewer: Viewer, view: SnapshotView, moment: int) -> None:
    """Choose a moment, and draw what is there."""
    view.change(moment=moment)
    settle(viewer, view)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [
        write_snapshot(tmp_path, "before.pickle", 10),
        write_snapshot(tmp_path, "after.pickle", 3),
    ]


def test_memory_of_two_files_opens_with_both(
    open_viewer: Callable[..., Viewer], files: list[Path]
) -> None:
    viewer = open_viewer((1000, 760), files=tuple(files), compares=True)
    view = viewer.until_shows(SnapshotView)
    until_compared(viewer, view)
    settle(viewer, view)
    partner = view.two_runs.partner
    assert partner is not None
    assert view.content.snapshot.name == "before.pickle"
    assert partner.content.snapshot.name == "after.pickle"
    assert view.info().subtitle == "before.pickle and after.pickle"
    assert [lane.icon for lane in lanes_of(viewer.user)] == ["A", "B"]
    grown = view.pane_memory["compare", "shown"].answer
    assert grown.bytes_after > grown.bytes_before
    # The chain of the only pane unties both.
    for is_tied in (False, True):
        viewer.click("tie 0")
        assert (view.state.tied_time, view.state.tied_bytes) == (is_tied, is_tied)
    # B is A after a swap, and what grew has shrunk.
    viewer.click("swap")
    settle(viewer, view)
    swapped = view.pane_memory["compare", "shown"].answer
    assert (swapped.bytes_before, swapped.bytes_after) == (
        grown.bytes_after,
        grown.bytes_before,
    )
    viewer.click("Alone")
    settle(viewer, view)
    assert view.two_runs.partner is None
    assert len(lanes_of(viewer.user)) == 1


def test_texts_of_every_tab_are_whole_on_a_phone(
    open_viewer: Callable[..., Viewer], files: list[Path]
) -> None:
    viewer = open_viewer((390, 844), files=(files[0],))
    view = viewer.until_shows(SnapshotView)
    faults = []
    # Without an OOM there is no tab of it.
    for tab in set(TABS) - {"oom"}:
        view.change(tab=tab)
        settle(viewer, view)
        placement = placement_of(viewer)
        faults += [fault for fault in placement.faults() if fault.startswith("text")]
        assert TABS[tab] in {text.name for text in placement.texts}
    assert not faults
    # A finger reaches the columns that a phone has no room for.
    view.change(tab="events")
    settle(viewer, view)
    x, y = widgets.middle("events 1")
    viewer.do(PointerPress(200, y, touch=True), PointerMove(100, y + 2))
    viewer.do(PointerRelease(100, y + 2))
    assert widgets.middle("events 1") == pytest.approx((x - 100, y), abs=REACH)


def test_second_file_that_is_dropped_fills_b(
    open_viewer: Callable[..., Viewer], files: list[Path], tmp_path: Path
) -> None:
    viewer = open_viewer((1000, 760))
    content = files[1].read_bytes()
    files[1].write_bytes(content[:200])
    # Dropped at once, the second file comes while the first is being read.
    viewer.do(FileDrop(tuple(map(str, files))))
    view = viewer.until_shows(SnapshotView)
    viewport = viewer.user.layout.active
    viewer.until_refused()
    assert viewport.refusal is not None
    assert "truncated or damaged" in viewport.refusal.reason
    files[1].write_bytes(content)
    viewer.do(FileDrop((str(files[1]),)))
    until_compared(viewer, view)
    settle(viewer, view)
    user = viewer.user
    assert viewer.shows(SnapshotView) is view
    assert user.interface.state.tab == "compare"
    assert letters_of(user) == {str(files[0]): "A", str(files[1]): "B"}
    choose_line(viewer, view, 40)
    readings = view.readings()
    assert readings is not None
    assert (readings.title, readings.place) == ("At the line", "after event 39")
    assert [(r.badge, r.name) for r in readings.values] == [
        ("A", "live"),
        ("B", "live"),
    ]
    # The chosen stack stays chosen when the line moves.
    grown = shown_growth(view)
    assert grown is not None
    toggle_row(view, grown, 0)
    name = grown.comparison.names[0]
    choose_line(viewer, view, 55)
    grown = shown_growth(view)
    assert grown is not None
    row = grown.comparison.row_of(name)
    assert row is not None
    assert is_row_chosen(view, grown, row)
    # SQL asks both.
    viewer.click("Ask by SQL")
    settle(viewer, view)
    result = view.pane_memory["sql", "shown"].answer
    assert result.columns == ("who", "line", "a_bytes", "b_bytes", "growth")
    assert sum(row[-1] for row in result.rows) == grown.comparison.changes.sum()
    # A third one opens by itself.
    third = write_snapshot(tmp_path, "third.pickle", 5)
    viewer.do(FileDrop((str(third),)))
    viewer.until(lambda: viewer.shows(SnapshotView) not in (None, view))
    assert user.layout.active.key == str(third)


def publish_all() -> None:
    """Publish a stream of each kind that trainers publish."""
    count = 50
    splatview.publish(torch.rand(40, 60, 3), "render")
    splatview.publish(
        {
            "means": torch.rand(count, 3),
            "quats": torch.rand(count, 4),
            "scales": torch.full((count, 3), -3.0),
            "opacities": torch.full((count,), 2.0),
            "sh0": torch.rand(count, 1, 3),
        },
        "gaussians",
    )
    splatview.log(1, loss=0.5)
    viewmats = torch.eye(4).repeat(2, 1, 1)
    intrinsics = torch.tensor([[50.0, 0, 30], [0, 50, 20], [0, 0, 1]]).repeat(2, 1, 1)
    splatview.publish_cameras(viewmats, intrinsics, 60, 40)


def test_pointer_that_leaves_two_panes_breaks_none(
    open_viewer: Callable[..., Viewer], files: list[Path], monkeypatch: Any
) -> None:
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    publish_all()
    viewer = open_viewer((1000, 760), files=tuple(files))
    user = viewer.user
    viewer.until(lambda: len(viewer.state.entries) >= 6)
    keys = [entry.key for entry in viewer.state.entries]
    user.show_beside(keys[0])
    for first, second in itertools.product(keys, keys[-1:]):
        for viewport, key in zip(user.layout, (first, second), strict=True):
            viewport.select(key)
        viewer.until(lambda: all(v.working() is not None for v in user.layout))
        viewer.do()
        for viewport in user.layout:
            x = viewport.rect.x + viewport.rect.width / 2
            y = viewport.rect.y + viewport.rect.height / 2
            viewer.do(PointerMove(x, y), Wheel(x, y, 1))
        viewer.do(PointerLeave())
        viewer.do(PointerLeave(), Wheel(-1, -1, 1))
        for viewport in user.layout:
            assert viewport.entry is not None
            assert not viewport.entry.fault
            names = ("overlay", "input", "info", "lanes", "sections")
            assert [viewport.faults.reason(name) for name in names] == [""] * len(names)
