"""The top bar: the run, its state and buttons, and what a narrow bar leaves out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from support import widgets
from support.viewer import Viewer

import splatview
from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.run_state import run_state
from splatview_viewer.shell.runs import told_entry

MIDDLE = "Find a command"


def drawn(viewer: Viewer) -> dict[str, Rect]:
    """Draw once more, and return the places of all controls."""
    widgets.drawn.clear()
    viewer.user.mark()
    viewer.do()
    return dict(widgets.drawn)


def publish(viewer: Viewer, name: str = "render") -> None:
    """Publish a picture, and wait until it is shown."""
    splatview.publish(torch.zeros((8, 8, 3), dtype=torch.uint8), name, meta={"step": 7})
    viewer.until_listed(name)
    viewer.until(viewer.loaded)


def until_ended(viewer: Viewer) -> None:
    splatview.close()
    viewer.until_run_ended()


@pytest.fixture
def wide(open_viewer: Callable[..., Viewer]) -> Viewer:
    return open_viewer((1600, 800))


def test_buttons_stay_where_they_are_whatever_the_words(wide: Viewer) -> None:
    fixed = ("Menu", "Choose a run", "Pause", "Step", MIDDLE, "panel.toggle")
    empty = drawn(wide)
    publish(wide)
    training = drawn(wide)
    until_ended(wide)
    ended = drawn(wide)
    for name in fixed:
        assert empty[name] == training[name] == ended[name]
    assert training["Pause"].width == 92
    assert training["Step"].width == 70


def test_run_that_ended_cannot_be_paused(wide: Viewer) -> None:
    publish(wide)
    until_ended(wide)
    entry = told_entry(wide.user)
    assert entry is not None
    assert run_state(entry, entry.ended_at).mode == "ended"
    wide.click("Pause")
    assert not entry.paused


def test_list_of_runs_shows_what_was_shown_last_of_one(
    wide: Viewer, tmp_path: Path
) -> None:
    publish(wide, "first")
    publish(wide, "second")
    run = wide.state.entries[0].run_name
    wide.click(next(e.key for e in wide.state.entries if e.name == "first"))
    Image.new("RGB", (8, 8)).save(tmp_path / "file.png")
    wide.user.open(tmp_path / "file.png")
    wide.until(wide.loaded)
    drawn(wide)
    wide.click("Choose a run")
    wide.click(run)
    assert wide.state.selected_entry is not None
    drawn(wide)
    assert wide.state.selected_entry.name == "first"


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (1600, set()),
        (1100, {MIDDLE}),
        (900, {MIDDLE, "edit.undo", "edit.redo"}),
    ],
)
def test_narrow_bar_leaves_out_less_important_controls(
    open_viewer: Callable[..., Viewer], width: int, left_out: set[str]
) -> None:
    viewer = open_viewer((width, 700))
    publish(viewer)
    rects = drawn(viewer)
    wide_enough = {MIDDLE, "edit.undo", "edit.redo", "Pause", "Step", "panel.toggle"}
    for name in wide_enough - left_out:
        assert name in rects
        assert rects[name].x + rects[name].width <= width
    for name in left_out - {MIDDLE}:
        assert name not in rects
    if MIDDLE in left_out:
        # Only its icon is left.
        assert rects[MIDDLE].width == 30


def test_phone_has_large_buttons(open_viewer: Callable[..., Viewer]) -> None:
    viewer = open_viewer((390, 844))
    publish(viewer)
    rects = drawn(viewer)
    for name in ("Menu", "Pause", "Find", "More"):
        assert rects[name].width == 44
    assert rects["Choose a run"].width > 100


def test_latency_is_told_of_versions_that_come_while_they_are_shown(
    wide: Viewer,
) -> None:
    """A version that waits until a user chooses it was never late."""
    publish(wide, "first")
    publish(wide, "second")
    keys = {entry.name: entry.key for entry in wide.state.entries}
    for name in ("first", "second"):
        wide.user.select(keys[name])
        wide.until(wide.loaded)
    assert wide.state.displayed_timings.latency_ms is None
    publish(wide, "second")
    wide.until(lambda: wide.state.timings.latency_ms)
