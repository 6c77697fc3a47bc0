"""Two snapshots of memory are shown together, and survive a pointer that leaves."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.memory_data import event, snapshot
from support.viewer import Viewer

import splatview
from splatview_viewer.core.events import PointerLeave, PointerMove, Wheel
from splatview_viewer.kinds.snapshot.view import SnapshotView
from splatview_viewer.shell.time_area import lanes_of
from splatview_viewer.workspace.sources import FileSource

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


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return [
        write_snapshot(tmp_path, "before.pickle", 10),
        write_snapshot(tmp_path, "after.pickle", 3),
    ]


def settle(viewer: Viewer, view: SnapshotView) -> None:
    """Draw until the view shows everything."""
    viewer.do()
    viewer.until(lambda: view.complete)


def test_memory_of_two_files_opens_with_both(
    open_viewer: Callable[..., Viewer], files: list[Path]
) -> None:
    sources = tuple(FileSource(file) for file in files)
    sources[0].first_state = {"shows": "both"}
    viewer = open_viewer((1300, 900), files=sources, tab="compare")
    viewer.until(lambda: viewer.shows(SnapshotView) is not None)
    view = viewer.shows(SnapshotView)
    assert view is not None
    viewer.until(lambda: view.two_runs.partner is not None)
    settle(viewer, view)
    partner = view.two_runs.partner
    assert partner is not None
    assert view.content.snapshot.name == "before.pickle"
    assert partner.content.snapshot.name == "after.pickle"
    assert view.info().subtitle == "before.pickle and after.pickle"
    assert [lane.icon for lane in lanes_of(viewer.user)] == ["A", "B"]
    grown = view.pane_memory["compare", "shown"].answer
    assert grown.bytes_after > grown.bytes_before
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
    viewer = open_viewer((1300, 900), files=tuple(files))
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
