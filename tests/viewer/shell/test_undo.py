"""Undo brings back views and panes as they were, one gesture at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer, open_pictures, press_key

from splatview_viewer.core.events import (
    FileDrop,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.shell.stream_menus import take_out
from splatview_viewer.shell.undo import MAX_STEPS

CTRL: Mods = frozenset({"ctrl"})
REDO: Mods = frozenset({"ctrl", "shift"})
X = 700.0
Y = 300.0


@pytest.fixture
def pictures(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of two pictures, of which the first is shown."""
    return open_pictures(open_viewer, (1000, 600), tmp_path, "a", "b")


@pytest.fixture
def scene(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of a scene."""
    path = write_ply(tmp_path / "a.ply", ply_columns(truth(200)))
    viewer = open_viewer((920, 900), files=(path,))
    viewer.until(viewer.loaded)
    return viewer


def undo(viewer: Viewer) -> None:
    press_key(viewer, "z", CTRL)


def redo(viewer: Viewer) -> None:
    press_key(viewer, "z", REDO)


def rest(viewer: Viewer) -> None:
    """Let the time go by after which moves are no longer joined."""
    viewer.user.history.touched_at -= 5
    for step in viewer.user.history.done:
        step.changed_at -= 5


def state_of(viewer: Viewer) -> Any:
    view = viewer.user.view
    assert view is not None
    return view.view.state


def drag(viewer: Viewer, dx: float) -> None:
    viewer.do(PointerMove(X, Y), PointerPress(X, Y))
    for share in (0.25, 0.5, 0.75, 1):
        viewer.do(PointerMove(X + dx * share, Y))
    viewer.do(PointerRelease(X + dx, Y))


def test_nothing_can_be_undone_at_first(pictures: Viewer) -> None:
    assert pictures.user.history.undo_reason() == "nothing to undo"
    assert pictures.user.history.redo_reason() == "nothing to redo"
    undo(pictures)
    assert state_of(pictures) == pictures.image.state


def test_moves_within_a_second_are_one_step(pictures: Viewer) -> None:
    initial = state_of(pictures)
    drag(pictures, 40)
    pictures.do(Wheel(X, Y, 1))
    pictures.do(Wheel(X, Y, 1))
    moved = state_of(pictures)
    assert moved != initial
    assert pictures.user.history.undo_words == "camera"
    undo(pictures)
    assert state_of(pictures) == initial
    assert pictures.user.history.undo_reason() is not None
    redo(pictures)
    assert state_of(pictures) == moved


def test_moves_after_a_rest_are_another_step(pictures: Viewer) -> None:
    initial = state_of(pictures)
    drag(pictures, 40)
    first = state_of(pictures)
    rest(pictures)
    drag(pictures, -90)
    undo(pictures)
    assert state_of(pictures) == first
    undo(pictures)
    assert state_of(pictures) == initial


def test_change_that_no_user_made_is_no_step(pictures: Viewer) -> None:
    drag(pictures, 40)
    rest(pictures)
    count = len(pictures.user.history.done)
    image = pictures.image
    view_place = image.state.place
    pictures.do(PointerMove(X, Y))
    object.__setattr__(image, "state", type(image.state)())
    pictures.do()
    assert image.state.place != view_place
    assert len(pictures.user.history.done) == count


def test_new_change_leaves_nothing_to_redo(pictures: Viewer) -> None:
    drag(pictures, 40)
    undo(pictures)
    assert pictures.user.history.redo_reason() is None
    rest(pictures)
    drag(pictures, 20)
    assert pictures.user.history.redo_reason() is not None


def test_steps_are_bounded(pictures: Viewer) -> None:
    history = pictures.user.history
    for index in range(MAX_STEPS + 20):
        pictures.screen.push(Wheel(X, Y, 1 if index % 2 else -1))
        pictures.step()
        rest(pictures)
    assert len(history.done) == MAX_STEPS


def test_way_to_see_is_undone_by_itself(scene: Viewer) -> None:
    camera = state_of(scene).place
    press_key(scene, "v")
    press_key(scene, "v")
    assert state_of(scene).show == "alpha"
    undo(scene)
    assert state_of(scene).show == "depth"
    undo(scene)
    assert state_of(scene).show == "color"
    assert state_of(scene).place == camera


def test_drag_of_a_slider_is_one_step(scene: Viewer) -> None:
    x, y = scene.find("Scale")
    scene.do(PointerMove(x, y), PointerPress(x, y))
    for step in range(1, 6):
        scene.do(PointerMove(x + 8 * step, y))
    scene.do(PointerRelease(x + 40, y))
    assert state_of(scene).scale != 1.0
    undo(scene)
    assert state_of(scene).scale == 1.0
    assert scene.user.history.undo_reason() is not None


def test_flight_is_undone_to_where_it_began(scene: Viewer) -> None:
    drag(scene, 80)
    rest(scene)
    camera_place = state_of(scene).place
    press_key(scene, "f")
    view: Any = scene.user.view

    def has_arrived() -> bool:
        return not view.view.rig.motion.is_under_way

    scene.until(has_arrived)
    assert state_of(scene).place != camera_place
    undo(scene)
    assert state_of(scene).place == camera_place


def test_closed_pane_comes_back_as_it_was(pictures: Viewer) -> None:
    user = pictures.user
    second = pictures.state.entries[1].key
    user.show_beside(second)
    pictures.until(pictures.loaded)
    drag(pictures, 30)
    rest(pictures)
    pane = user.layout.active
    kept_state = state_of(pictures)
    pictures.click(f"close {user.layout.all.index(pane)}")
    assert len(user.layout) == 1
    # No view is made for it meanwhile.
    assert pane.view is None
    assert user.history.undo_words == "layout"
    undo(pictures)
    pictures.until(pictures.loaded)
    assert [viewport.key for viewport in user.layout][1] == second
    assert user.layout.active.key == second
    assert state_of(pictures) == kept_state
    redo(pictures)
    assert len(user.layout) == 1


def test_command_that_is_executed_late_is_undone(pictures: Viewer) -> None:
    """A busy machine draws seconds after the press that asked for it."""
    user = pictures.user
    rest(pictures)
    user.do(user.show_beside, pictures.state.entries[1].key)
    pictures.until(lambda: len(user.layout) == 2)
    undo(pictures)
    assert len(user.layout) == 1


def test_chosen_stream_is_undone(pictures: Viewer) -> None:
    first, second = (entry.key for entry in pictures.state.entries)
    pictures.click(second)
    pictures.until(pictures.loaded)
    assert pictures.state.selected == second
    undo(pictures)
    pictures.until(pictures.loaded)
    assert pictures.state.selected == first


def test_refused_file_leaves_nothing_to_undo(pictures: Viewer, tmp_path: Path) -> None:
    shown_key = pictures.state.selected
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    pictures.do(FileDrop((str(bad),)))
    pictures.until_refused()
    assert pictures.state.selected == shown_key
    assert pictures.user.history.undo_reason() == "nothing to undo"


def test_file_taken_out_of_the_list_comes_back(pictures: Viewer) -> None:
    user = pictures.user
    first, second = (entry.key for entry in pictures.state.entries)
    drag(pictures, 40)
    moved = state_of(pictures)
    rest(pictures)
    press_key(pictures, "shift")
    user.do(take_out, user, [first])
    pictures.until(lambda: len(pictures.state.entries) == 1)
    assert [entry.key for entry in pictures.state.entries] == [second]
    assert pictures.state.toasts[-1].text == "a.png is out of the list"
    pictures.click("Undo")
    pictures.until(pictures.loaded)
    assert (pictures.state.selected, state_of(pictures)) == (first, moved)
    assert pictures.state.toasts[-1].text == "Undid: list of streams"
    redo(pictures)
    assert [entry.key for entry in pictures.state.entries] == [second]


def test_crop_is_undone_by_the_button_of_its_message(scene: Viewer) -> None:
    commands = {
        command.name: command for command in scene.user.layout.active.commands()
    }
    for name in ("crop.box", "crop.none"):
        press_key(scene, "shift")
        scene.user.layout.active.run(commands[name])
        scene.do()
    assert scene.user.history.undo_words == "crop"
    assert not state_of(scene).selection.shapes
    scene.click("Undo")
    assert state_of(scene).selection.shapes
    assert [toast.text for toast in scene.state.toasts] == ["Undid: crop"]


def test_keyframes_are_undone(scene: Viewer) -> None:
    shown_view: Any = scene.user.view
    path = shown_view.view.path
    press_key(scene, "k")
    press_key(scene, "k")
    keyframes = list(path.path.keys)
    press_key(scene, "delete")
    assert path.path.keys == keyframes[:1]
    assert scene.state.toasts[-1].text == "Keyframe 2 removed"
    undo(scene)
    assert path.path.keys == keyframes
    undo(scene)
    undo(scene)
    assert path.path.keys == []
    redo(scene)
    assert path.path.keys == keyframes[:1]


def test_selections_of_two_panes_are_undone_one_after_the_other(scene: Viewer) -> None:
    user = scene.user
    press_key(scene, "enter", CTRL)
    scene.until(scene.loaded)
    commands = {command.name: command for command in user.layout.active.commands()}
    panes = list(user.layout)
    for pane in panes:
        press_key(scene, "shift")
        pane.run(commands["select.invert"])
        scene.do()
    selections = [pane.undoable_state().chosen for pane in panes]
    assert all(selections)
    assert user.history.undo_words == "selection"
    undo(scene)
    states = [pane.undoable_state().chosen for pane in panes]
    assert states == [selections[0], None]
    undo(scene)
    assert not any(pane.undoable_state().chosen for pane in panes)
    undo(scene)
    assert len(user.layout) == 1
    redo(scene)
    assert len(user.layout) == 2


def test_escape_ends_a_drag_as_if_it_had_not_been(pictures: Viewer) -> None:
    drag(pictures, 30)
    rest(pictures)
    initial = state_of(pictures)
    steps = len(pictures.user.history.done)
    pictures.do(PointerMove(X, Y), PointerPress(X, Y), PointerMove(X - 80, Y))
    assert state_of(pictures) != initial
    press_key(pictures, "escape")
    assert state_of(pictures) == initial
    pictures.do(PointerMove(X - 20, Y), PointerRelease(X - 20, Y))
    pictures.do(PointerMove(X - 60, Y))
    assert state_of(pictures) == initial
    assert len(pictures.user.history.done) == steps


def test_tied_panes_are_undone_together(pictures: Viewer) -> None:
    user = pictures.user
    user.do(user.compare, "beside", pictures.state.entries[1].key)
    press_key(pictures, "shift")

    def are_both_shown() -> bool:
        views = [viewport.view for viewport in user.layout]
        return len(views) == 2 and all(view and not view.empty for view in views)

    pictures.until(are_both_shown)
    rest(pictures)
    views: list[Any] = [viewport.view for viewport in user.layout]
    initial = [view.view.state.place for view in views]
    drag(pictures, 30)
    moved = [view.view.state.place for view in views]
    assert all(a != b for a, b in zip(moved, initial, strict=True))
    undo(pictures)
    assert [view.view.state.place for view in views] == initial
    redo(pictures)
    assert [view.view.state.place for view in views] == moved
