"""The keyboard reaches every control, and touches none while nothing has the focus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from imgui_bundle import imgui
from support import widgets
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer, press_key

from splatview_viewer.core.events import (
    Key,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import TABS
from splatview_viewer.shell.viewport import Viewport
from splatview_viewer.ui import controls

SHIFT: Mods = frozenset({"shift"})


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of a scene."""
    path = write_ply(tmp_path / "a.ply", ply_columns(truth(200)))
    app = open_viewer((910, 620), files=(path,))
    app.until(app.loaded)
    return app


def draw_nothing(viewport: Viewport, *_: Any) -> None:
    """Leave the picture of a viewport as it is."""


def is_focus_seen(viewer: Viewer) -> bool:
    return viewer.user.interface.surface.input.has_focus


def focused_rect(viewer: Viewer) -> Rect:
    """Return the rectangle of the control that has the focus."""
    viewer.user.mark(2)
    viewer.do()
    viewer.user.interface.surface.use()
    rect = imgui.get_current_context().nav_scoring_rect
    width = round(rect.max.x - rect.min.x)
    height = round(rect.max.y - rect.min.y)
    return Rect(round(rect.min.x), round(rect.min.y), width, height)


def focused_name(viewer: Viewer) -> str:
    """Return the name of the control that has the focus."""
    widgets.drawn.clear()
    rect = focused_rect(viewer)
    for name, drawn in widgets.drawn.items():
        if abs(drawn.x - rect.x) + abs(drawn.y - rect.y) <= 2:
            return name
    return f"? at {rect}"


def zone_of(viewer: Viewer) -> str:
    viewer.user.interface.surface.use()
    return imgui.get_current_context().nav_window.root_window.name.removeprefix("##")


def walk(viewer: Viewer, key: str, steps: int, mods: Mods = frozenset()) -> list[str]:
    """Press a key so many times; return the zone and control after each."""
    focused_names = []
    for _ in range(steps):
        press_key(viewer, key, mods)
        focused_names.append(f"{zone_of(viewer)}: {focused_name(viewer)}")
    return focused_names


def go_to(viewer: Viewer, control: str) -> None:
    """Press Tab until a control has the focus."""
    for _ in range(60):
        if walk(viewer, "tab", 1) == [control]:
            return
    raise AssertionError(f"Tab never comes to {control}")


def go_to_zone(viewer: Viewer, zone: str) -> None:
    """Press F6 until a control of a zone has the focus."""
    for _ in range(15):
        press_key(viewer, "f6")
        if zone_of(viewer) == zone:
            return
    raise AssertionError(f"F6 never comes to {zone}")


def test_keys_without_focus_do_not_touch_the_panel(viewer: Viewer) -> None:
    for name in ("space", "enter", "left", "right", "up", "down") * 5:
        viewer.screen.push(Key(name), Key(name, pressed=False))
    viewer.do()
    assert not is_focus_seen(viewer)
    chosen_tab = viewer.user.interface.state.tab
    viewer.click("Data")
    assert (chosen_tab, viewer.user.interface.state.tab) == ("look", "data")


def test_tab_reaches_every_control_of_every_tab(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled_controls = note_controls(monkeypatch)
    # The pictures of the scene would take most of the time.
    monkeypatch.setattr(Viewport, "draw", draw_nothing)
    surface = viewer.user.interface.surface
    for tab in TABS:
        viewer.user.choose_tab(tab)
        press_key(viewer, "escape")
        reached = set[int]()
        for _ in range(150):
            press_key(viewer, "tab")
            surface.use()
            reached.add(imgui.get_current_context().nav_id)
            if len(reached) > 20 and zone_of(viewer) == "top bar":
                break
        enabled_controls.clear()
        viewer.user.mark()
        viewer.do()
        missed = [name for key, name in enabled_controls.items() if key not in reached]
        # The button at the end of a row opens the menu that the Menu key opens.
        assert [name for name in missed if "more" not in name] == [], tab
        assert len(reached) > 25, tab


def note_controls(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Return the controls that can be used of each picture, by imgui's numbers."""
    names: dict[int, str] = {}

    def note(name: str) -> None:
        context = imgui.get_current_context()
        window = context.current_window.root_window.name
        is_disabled = context.current_item_flags & _DISABLED
        if not is_disabled and "learnt" not in window:
            names[imgui.get_item_id()] = f"{window}: {name}"

    def noting(draw: Callable[..., Any]) -> Callable[..., Any]:
        def noted(name: str, *values: Any, **options: Any) -> Any:
            result = draw(name, *values, **options)
            if options.get("enabled", True):
                note(name)
            return result

        return noted

    monkeypatch.setattr(controls, "item", noting(controls.item))
    for kind in ("slider_float", "drag_float", "input_double", "input_int"):
        monkeypatch.setattr(imgui, kind, noting(getattr(imgui, kind)))
    return names


_DISABLED = 1 << 10
"""Of imgui's item flags."""


def test_arrows_move_what_is_dragged_otherwise(
    viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Viewport, "draw", draw_nothing)
    shown_view: Any = viewer.user.view
    commands = {
        command.name: command for command in viewer.user.layout.active.commands()
    }
    viewer.user.layout.active.run(commands["crop.box"])
    viewer.user.go_to_setting("data", "Crop", "Centre")
    viewer.do()
    center = shown_view.view.state.selection.box.center
    press_key(viewer, "right")
    moved = shown_view.view.state.selection.box.center
    assert (moved[0] > center[0], moved[1:]) == (True, center[1:])
    viewer.user.go_to_setting("look", "Show", "Background")
    viewer.do()
    viewer.click("Background")
    for _ in range(5):
        if walk(viewer, "tab", 1)[0].endswith("Background board channel 0"):
            break
    press_key(viewer, "right")
    # From the colour around pictures, 0E0F11.
    red, _, _ = shown_view.view.state.background
    assert round(red * 255) == 15
    press_key(viewer, "escape")
    viewer.click("Data")
    go_to_zone(viewer, "tabs")
    go_to(viewer, "sections data: handle opacity least")
    press_key(viewer, "right")
    assert 0 < shown_view.view.state.selection.opacity[0] < 1
    press_key(viewer, "k")
    press_key(viewer, "k")
    assert shown_view.view.path.chosen_key == 1
    go_to_zone(viewer, "time")
    go_to(viewer, "time: Path track")
    press_key(viewer, "left")
    assert shown_view.view.path.chosen_key == 0
    width = viewer.user.interface.state.panel_width
    go_to_zone(viewer, "edge")
    press_key(viewer, "right")
    assert viewer.user.interface.state.panel_width > width


def test_shift_tab_walks_back(viewer: Viewer) -> None:
    forth = walk(viewer, "tab", 12)
    back = walk(viewer, "tab", 11, SHIFT)
    assert back == forth[-2::-1]


def test_f6_goes_from_zone_to_zone(viewer: Viewer) -> None:
    zones = [name.split(":")[0] for name in walk(viewer, "f6", 6)]
    assert zones[:3] == ["top bar", "streams", "tabs"]
    assert {"sections look", "footer"} <= set(zones)
    back = walk(viewer, "f6", 1, SHIFT)[0].split(":")[0]
    assert back == zones[-2]


def test_focused_control_is_pressed_by_enter(viewer: Viewer) -> None:
    go_to(viewer, "tabs: Data")
    press_key(viewer, "enter")
    assert viewer.user.interface.state.tab == "data"


def test_arrows_move_a_focused_slider(viewer: Viewer) -> None:
    view = viewer.user.view
    assert view is not None
    go_to(viewer, "sections look: Scale")
    initial = view.view.state.scale
    press_key(viewer, "right")
    step = view.view.state.scale - initial
    assert step > 0
    press_key(viewer, "left")
    assert view.view.state.scale == pytest.approx(initial, rel=1e-5)
    press_key(viewer, "right", SHIFT)
    assert view.view.state.scale > initial + 2 * step
    press_key(viewer, "backspace")
    assert view.view.state.scale == 1.0


def test_escape_and_a_click_into_the_picture_end_the_focus(viewer: Viewer) -> None:
    press_key(viewer, "tab")
    assert is_focus_seen(viewer)
    press_key(viewer, "escape")
    assert not is_focus_seen(viewer)
    press_key(viewer, "tab")
    assert is_focus_seen(viewer)
    viewer.do(PointerPress(600, 300), PointerRelease(600, 300))
    assert not is_focus_seen(viewer)


def test_what_is_typed_right_after_a_slider_is_clicked_is_its_number(
    viewer: Viewer,
) -> None:
    shown_view = viewer.user.view
    assert shown_view is not None
    go_to(viewer, "sections look: Scale")
    viewer.do(Key("enter"), Key("enter", pressed=False), *type_text("0.5"))
    assert shown_view.view.state.scale == 0.5
    # The focus has scrolled it into view.
    x, y = viewer.find("Scale")
    mods: Mods = frozenset({"ctrl"})
    viewer.do(
        Key("ctrl"),
        PointerMove(x, y, mods),
        PointerPress(x, y, mods=mods),
        PointerRelease(x, y, mods=mods),
        Key("ctrl", pressed=False),
        *type_text("0.25"),
    )
    assert shown_view.view.state.scale == 0.25


def test_key_right_after_a_click_that_opens_no_field_is_for_the_pane(
    viewer: Viewer,
) -> None:
    shown_view = viewer.user.view
    assert shown_view is not None
    x, y = viewer.find("Show")
    viewer.do(
        PointerMove(x, y),
        PointerPress(x, y),
        PointerRelease(x, y),
        Key("v"),
        Key("v", pressed=False),
    )
    assert shown_view.view.state.show == "depth"


def type_text(text: str) -> list[Key | Text]:
    """Return the events of typing a text, and of Enter."""
    events: list[Key | Text] = []
    for letter in text:
        name = "period" if letter == "." else letter
        events += [Key(name), Text(letter), Key(name, pressed=False)]
    return [*events, Key("enter"), Key("enter", pressed=False)]
