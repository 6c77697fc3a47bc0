"""The keyboard reaches every control, and touches none while nothing has the focus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from imgui_bundle import imgui
from support import widgets
from support.scene_files import ply_columns, truth, write_ply
from support.viewer import Viewer

from splatview_viewer.core.events import (
    Key,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
)
from splatview_viewer.core.screen import Rect

SHIFT: Mods = frozenset({"shift"})


@pytest.fixture
def viewer(open_viewer: Callable[..., Viewer], tmp_path: Path) -> Viewer:
    """Return a viewer of a scene."""
    path = write_ply(tmp_path / "a.ply", ply_columns(truth(200)))
    app = open_viewer((910, 620), files=(path,))
    app.until(app.loaded)
    return app


def press_key(viewer: Viewer, name: str, mods: Mods = frozenset()) -> None:
    viewer.do(Key(name, mods=mods), Key(name, pressed=False))


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


def go_to(viewer: Viewer, place: str) -> None:
    """Press Tab until a control has the focus."""
    for _ in range(60):
        if walk(viewer, "tab", 1) == [place]:
            return
    raise AssertionError(f"Tab never comes to {place}")


def test_keys_without_focus_do_not_touch_the_panel(viewer: Viewer) -> None:
    for name in ("space", "enter", "left", "right", "up", "down") * 5:
        viewer.screen.push(Key(name), Key(name, pressed=False))
    viewer.do()
    assert not is_focus_seen(viewer)
    chosen_tab = viewer.user.interface.state.tab
    viewer.click("Data")
    assert (chosen_tab, viewer.user.interface.state.tab) == ("look", "data")


def test_click_right_after_thirty_keys_is_pressed_once(viewer: Viewer) -> None:
    x, y = viewer.find("Light")
    light = viewer.user.state.light
    keys = [Key(name, pressed=on) for name in "wasdqezxcv" * 3 for on in (True, False)]
    viewer.do(*keys, PointerMove(x, y), PointerPress(x, y), PointerRelease(x, y))
    assert viewer.user.state.light is not light


def test_tab_walks_through_all_zones_of_the_interface(viewer: Viewer) -> None:
    focused_names = walk(viewer, "tab", 60)
    zones = [name.split(":")[0] for name in focused_names]
    assert {"streams", "tabs", "sections look", "footer", "strip 0"} <= set(zones)
    for control in ("Data", "Show", "Scale", "Field of view", "Save", "Keys"):
        assert any(control in name for name in focused_names), (control, focused_names)


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
    shown = viewer.user.view
    assert shown is not None
    go_to(viewer, "sections look: Scale")
    viewer.do(Key("enter"), Key("enter", pressed=False), *type_text("0.5"))
    assert shown.view.state.scale == 0.5
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
    assert shown.view.state.scale == 0.25


def test_key_right_after_a_click_that_opens_no_field_is_for_the_pane(
    viewer: Viewer,
) -> None:
    shown = viewer.user.view
    assert shown is not None
    x, y = viewer.find("Show")
    viewer.do(
        PointerMove(x, y),
        PointerPress(x, y),
        PointerRelease(x, y),
        Key("v"),
        Key("v", pressed=False),
    )
    assert shown.view.state.show == "depth"


def type_text(text: str) -> list[Key | Text]:
    """Return the events of typing a text, and of Enter."""
    events: list[Key | Text] = []
    for letter in text:
        name = "period" if letter == "." else letter
        events += [Key(name), Text(letter), Key(name, pressed=False)]
    return [*events, Key("enter"), Key("enter", pressed=False)]
