"""Keys, palette, menus and the list of keys are made from the same tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer, press_key

from splatview_viewer.core.command import Command, command_of, parse_shortcut
from splatview_viewer.core.events import (
    KEYS,
    Key,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
    Resize,
    Text,
)
from splatview_viewer.geometry.flying import FLIGHT_KEYS
from splatview_viewer.kinds.cameras import commands as cameras
from splatview_viewer.kinds.gaussians import commands as gaussians
from splatview_viewer.kinds.image import commands as image
from splatview_viewer.kinds.memory import commands as memory
from splatview_viewer.kinds.scalars import commands as scalars
from splatview_viewer.kinds.snapshot import commands as snapshot
from splatview_viewer.kinds.snapshot.window_keys import MOVES
from splatview_viewer.shell.commands import COMMANDS, named
from splatview_viewer.shell.interface_state import InterfaceState
from splatview_viewer.shell.key_list import key_lines
from splatview_viewer.ui import icons

TABLES: dict[str, Sequence[Command[Any]]] = {
    "viewer": COMMANDS,
    "cameras": cameras.COMMANDS,
    "gaussians": gaussians.COMMANDS,
    "image": image.COMMANDS,
    "memory": memory.COMMANDS,
    "scalars": scalars.COMMANDS,
    "snapshot": snapshot.COMMANDS,
}
CTRL: Mods = frozenset({"ctrl"})


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of a picture."""
    path = tmp_path / "picture.png"
    Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(path)
    app = open_viewer((1000, 700), files=(path,))
    app.until(app.loaded)
    return app


@pytest.fixture
def scene(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of a scene."""
    path = write_ply(tmp_path / "a.ply", ply_columns(truth(100)))
    app = open_viewer((920, 700), files=(path,))
    app.until(app.loaded)
    return app


def test_shortcut_names_a_key_and_its_modifiers() -> None:
    shortcut = parse_shortcut("Ctrl Shift Page up")
    assert shortcut.matches(Key("page_up", mods=frozenset({"ctrl", "shift"})))
    assert not shortcut.matches(Key("page_up", mods=CTRL))
    with pytest.raises(ValueError, match="no key"):
        parse_shortcut("Ctrl Hyper")


@pytest.mark.parametrize("kind", TABLES)
def test_no_key_has_two_meanings(kind: str) -> None:
    commands = list(TABLES[kind])
    if kind != "viewer":
        commands += COMMANDS
    shortcuts = [parse_shortcut(keys) for command in commands for keys in command.keys]
    assert len(shortcuts) == len(set(shortcuts))
    names = [command.name for command in commands]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "held_keys"), [("gaussians", FLIGHT_KEYS), ("snapshot", MOVES)]
)
def test_keys_that_move_are_no_shortcuts(
    kind: str, held_keys: Mapping[str, object]
) -> None:
    for command in (*TABLES[kind], *COMMANDS):
        for keys in command.keys:
            shortcut = parse_shortcut(keys)
            assert shortcut.mods or shortcut.key not in held_keys, command


@pytest.mark.parametrize("kind", TABLES)
def test_commands_have_icons_that_exist(kind: str) -> None:
    for command in TABLES[kind]:
        assert not command.icon or icons.glyph(command.icon)


def test_image_obeys_its_commands(viewer: Viewer) -> None:
    palette = viewer.user.layout.active
    commands = {command.name: command for command in palette.commands()}
    palette.run(commands["image.zoom.4"])
    assert viewer.image.zoom == 4
    press_key(viewer, "f")
    fitted = viewer.image.zoom
    press_key(viewer, "1")
    assert (viewer.image.zoom, fitted > 4) == (1, True)
    assert palette.reason(commands["image.overlay"]) == "nothing is published over it"


def test_every_shortcut_is_in_the_list_of_keys(viewer: Viewer, scene: Viewer) -> None:
    for app in (viewer, scene):
        text = "\n".join(line.keys for line in key_lines(app.user))
        for command in COMMANDS:
            assert all(keys in text for keys in command.keys)


def test_list_of_keys_names_no_keys_twice(scene: Viewer) -> None:
    lines = key_lines(scene.user)
    keys = [line.keys for line in lines if line.keys != "Escape"]
    assert len(keys) == len(set(keys))


def test_held_key_runs_its_command_once(viewer: Viewer) -> None:
    viewer.do(Key("h"), Key("h", repeat=True), Key("h", repeat=True))
    assert not viewer.user.has_panel


def test_command_that_cannot_be_run_says_why(viewer: Viewer) -> None:
    reason = named("run.pause").reason(viewer.user)
    assert reason
    press_key(viewer, "space")
    assert any(reason in toast.text for toast in viewer.state.toasts)


def test_question_mark_shows_the_list_and_the_press_that_hides_it_does_no_more(
    viewer: Viewer,
) -> None:
    viewer.do(Text("?"))
    assert viewer.state.help
    pixels_before = viewer.pixels()
    viewer.click("Data")
    assert not viewer.state.help
    assert (viewer.pixels() != pixels_before).any()
    viewer.do(Text("?"))
    press_key(viewer, "escape")
    assert not viewer.state.help


def test_finger_scrolls_the_list_of_keys_on_a_phone(viewer: Viewer) -> None:
    viewer.do(Resize(390, 844, 1.0))
    viewer.do(Text("?"))
    viewer.do()
    pixels_before = viewer.pixels()
    viewer.do(PointerPress(200, 600, touch=True), PointerMove(200, 300))
    viewer.do(PointerRelease(200, 300))
    assert viewer.state.help
    assert (viewer.pixels() != pixels_before).any()
    viewer.do(PointerPress(200, 600, touch=True), PointerRelease(200, 600))
    viewer.do()
    assert not viewer.state.help


def test_escape_leaves_the_full_screen_last(
    scene: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[bool] = []
    desktop = type(scene.screen.desktop)
    monkeypatch.setattr(desktop, "is_full", True)
    monkeypatch.setattr(desktop, "leave_full", lambda _: left.append(True))
    view: Any = scene.user.view
    view.view.change(selection=replace(view.view.state.selection, marked=(0,)))
    press_key(scene, "escape")
    assert (view.view.state.selection.marked, left) == ((), [])
    press_key(scene, "escape")
    assert left == [True]


def test_panes_are_opened_walked_and_closed_by_keys(viewer: Viewer) -> None:
    layout = viewer.user.layout
    press_key(viewer, "enter", CTRL)
    assert len(layout) == 2
    active = layout.active
    press_key(viewer, "right_bracket", CTRL)
    assert layout.active is not active
    press_key(viewer, "tab", CTRL)
    assert layout.active is active
    viewer.user.run(named("pane.close"))
    press_key(viewer, "shift")
    assert len(layout) == 1
    assert named("pane.close").reason(viewer.user) == "there is one pane"


def test_about_card_tells_versions_and_copies_them(viewer: Viewer) -> None:
    viewer.user.run(named("about.show"))
    press_key(viewer, "shift")
    viewer.click("Copy")
    viewer.until(viewer.screen.desktop.pasted)
    labels = [line.split(":")[0] for line in viewer.screen.desktop.pasted().split("\n")]
    assert {"Viewer", "PyTorch", "gsplat", "OpenGL", "Licence"} <= set(labels)
    press_key(viewer, "escape")
    assert not viewer.user.interface.surface.has_popup


def test_units_of_memory_are_remembered(viewer: Viewer) -> None:
    viewer.user.run(named("units.switch"))
    press_key(viewer, "shift")
    state = InterfaceState()
    state.recall(viewer.user.catalogue.memo)
    assert state.decimal_bytes


def test_time_area_is_folded_by_its_key(viewer: Viewer) -> None:
    height = viewer.user.interface.zones.time.height
    press_key(viewer, "t")
    assert viewer.user.interface.zones.time.height < height
    press_key(viewer, "t")
    assert viewer.user.interface.zones.time.height == height


def test_every_key_of_the_tables_is_known() -> None:
    for command in COMMANDS:
        for keys in command.keys:
            assert parse_shortcut(keys).key in KEYS
    event = Key("z", mods=frozenset({"ctrl", "shift"}))
    command = command_of(COMMANDS, event)
    assert command is named("edit.redo")
