"""A script's own controls in the panel: seen, set, folded, and the same for everyone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support import widgets
from support.frames import frame_of
from support.viewer import Viewer

import splatview
from splatview_ipc.kinds.controls import Control, encode
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import (
    Key,
    Mods,
    PointerMove,
    PointerPress,
    PointerRelease,
    Text,
)
from splatview_viewer.core.screen import Rect
from splatview_viewer.kinds.controls.content import ScriptControls
from splatview_viewer.kinds.controls.panel import ControlsPanel
from splatview_viewer.kinds.controls.rows import ControlRow, FolderRow, rows_of
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.boards import board

TIME = Control("time", "slider", 0.5, low=0.0, high=1.0)
SAVE = Control("save", "button", 3)
W = 340
H = 700
RECT = Rect(0, 0, W, H)

# -- rows ------------------------------------------------------------------------------


def test_folder_is_where_its_first_control_is() -> None:
    pose = Control("pose", "vector", tuple(map(float, range(6))), folder="a/b")
    controls = [
        Control("x", "checkbox", True, folder="a"),
        TIME,
        pose,
        Control("y", "checkbox", True, folder="/a/"),
    ]
    folder = FolderRow("a", "a", 0)
    assert rows_of(controls, ()) == [
        folder,
        ControlRow(0, 1),
        FolderRow("a/b", "b", 1),
        ControlRow(2, 2, slice(0, 3)),
        ControlRow(2, 2, slice(3, 6)),
        ControlRow(3, 1),
        ControlRow(1, 0),
    ]
    assert rows_of(controls, {"a"}) == [folder, ControlRow(1, 0)]


# -- values ----------------------------------------------------------------------------


class Content(ScriptControls):
    """Controls of no script; what is sent is noted."""

    def __init__(self, *controls: Control) -> None:
        super().__init__()
        self.sent: list[tuple[str, Any, int]] = []
        self.send = self._note
        self.come(*controls)

    def _note(self, name: str, value: Any, clicks: int) -> None:
        self.sent.append((name, value, clicks))

    def come(self, *controls: Control, **options: Any) -> bool:
        packed = torch.frombuffer(bytearray(encode(controls)), dtype=torch.uint8)
        return self.take(frame_of("controls", {"controls": packed}, **options))


def time_of(value: float) -> Control:
    return Control("time", "slider", value, low=0.0, high=1.0)


def test_value_that_was_set_stays_until_the_script_has_it() -> None:
    content = Content(TIME)
    content.settle(1.0)
    content.set(TIME, 0.7)
    content.set(TIME, 0.8)
    assert content.sent == [("time", 0.7, 0), ("time", 0.8, 0)]
    # An answer to an earlier value makes nothing jump back.
    content.come(time_of(0.7))
    assert content.value_of(content.controls[0]) == 0.8
    content.come(time_of(0.8))
    content.come(time_of(0.2))
    assert content.value_of(content.controls[0]) == 0.2
    assert not content.settle(9.0)


@pytest.mark.parametrize(("answers", "time_scale"), [(True, 1.0), (False, 10.0)])
def test_value_that_the_script_does_not_take_is_dropped_once_it_is_let_go(
    answers: bool, time_scale: float
) -> None:
    content = Content(TIME)
    content.settle(1.0)
    content.set(TIME, 0.7)
    if answers:
        content.come(TIME)
    for frame_index in range(3):
        assert not content.settle(1.0 + 0.9 * frame_index * time_scale)
        content.hold(TIME)
    assert content.value_of(TIME) == 0.7
    let_go_at = content.now
    assert not content.settle(let_go_at + 0.9 * time_scale)
    assert content.settle(let_go_at + 1.1 * time_scale)
    assert content.value_of(TIME) == 0.5


def test_odd_values_and_frames_are_refused() -> None:
    content = Content(TIME)
    with pytest.raises(ValueError, match="no value of the slider time"):
        content.set(TIME, 2.0)
    assert not content.come(SAVE, intact=False)
    assert content.controls == (TIME,)
    with pytest.raises(ViewerError, match="controls cannot be read"):
        content.take(frame_of("controls", {"controls": torch.zeros(9).byte()}))


# -- the panel -------------------------------------------------------------------------

CONTROLS = (
    TIME,
    Control("on", "checkbox", True),
    SAVE,
    Control("mode", "dropdown", "a", choices=("a", "b")),
    Control("note", "text", "x"),
    Control("count", "slider", 5, low=0, high=30, step=5),
    Control("steps", "number", 7, low=0),
    Control("huge", "slider", 1e30, low=-1e300, high=1e300),
    Control("wide", "number", 0.0, low=-1e300, high=1e300),
    Control("up", "vector", (0.0, -1.0, 0.0), folder="Camera"),
    Control("paint", "color", (0.0, 0.5, 1.0), folder="Camera/Inner"),
    Control("العربية\n", "text", "قيمة", folder="نصوص"),
    Control("a##b###c", "button", 0, folder="نصوص"),
)


class PanelRig:
    """The rows of a script's controls in a window, and events for them."""

    def __init__(self, screen: OffscreenScreen, *controls: Control) -> None:
        screen.resize(W, H)
        self.screen = screen
        self.surface = Surface()
        self.content = Content(*controls)
        self.panel = ControlsPanel(self.content, set())
        self.draw()

    def draw(self) -> None:
        for _ in range(2):
            widgets.drawn.clear()
            self.surface.draw_over(self.screen.framebuffer, self._draw_over, 1.0)

    def _draw_over(self, rect: Rect, scale: float) -> bool:
        with board("sections", RECT, scroll=True):
            self.panel.draw()
        return False

    def do(self, *events: Any) -> None:
        for event in events:
            self.surface.input.handle(event, RECT, covered=[RECT])
            self.draw()

    def press(self, name: str, dx: int = 0) -> None:
        """Click a widget, or drag from its middle."""
        x, y = widgets.middle(name)
        moves = [PointerMove(x + dx, y)] if dx else []
        self.do(PointerMove(x, y), PointerPress(x, y), *moves)
        self.do(PointerRelease(x + dx, y))

    def close(self) -> None:
        self.surface.close()


@pytest.fixture
def rig(screen: OffscreenScreen) -> Iterator[PanelRig]:
    with closing(PanelRig(screen, *CONTROLS)) as panel_rig:
        yield panel_rig


def test_user_sets_controls_of_all_forms(rig: PanelRig) -> None:
    rig.press("on")
    for _ in range(2):
        rig.press("save")
    rig.press("a##b###c")
    widgets.choose("mode", "b")
    rig.draw()
    rig.press("steps.0.0", 5)
    rig.press("count", 36)
    rig.press("up.0.1", 20)
    up = rig.content.value_of(CONTROLS[9])
    assert isinstance(up, tuple)
    assert up[0] == up[2] == 0
    assert up[1] > -1
    assert rig.content.sent[:6] == [
        ("on", False, 0),
        *[("save", 0, 1)] * 2,
        ("a##b###c", 0, 1),
        ("mode", "b", 0),
        ("steps", 12, 0),
    ]
    assert rig.content.value_of(CONTROLS[5]) == 20


@pytest.mark.parametrize("name", ["steps.0.0", "huge.0 0"])
def test_number_is_typed_with_all_its_digits(rig: PanelRig, name: str) -> None:
    x, y = widgets.middle(name)
    ctrl: Mods = frozenset({"ctrl"})
    rig.do(Key("ctrl", mods=ctrl), PointerMove(x, y))
    rig.do(PointerPress(x, y, mods=ctrl), PointerRelease(x, y, mods=ctrl))
    rig.do(Text("4294967295"))
    assert not rig.content.sent
    rig.do(Key("enter"), Key("enter", pressed=False))
    assert rig.content.sent == [(name.partition(".")[0], 4294967295, 0)]


def test_text_is_set_once_it_is_complete(rig: PanelRig) -> None:
    rig.press("note")
    rig.do(Text("y"), Text("z"))
    assert not rig.content.sent
    rig.do(Key("enter"), Key("enter", pressed=False))
    assert rig.content.sent == [("note", "xyz", 0)]
    rig.press("note")
    rig.do(Text("w"), Key("escape"), Key("escape", pressed=False))
    assert len(rig.content.sent) == 1


def test_folders_are_closed_by_a_click_and_nothing_is_set_after_the_end(
    rig: PanelRig,
) -> None:
    assert "paint" in widgets.drawn
    rig.press("Camera")
    assert "paint" not in widgets.drawn
    rig.content.has_ended = True
    rig.draw()
    rig.press("on")
    rig.press("save")
    rig.press("Camera")
    assert not rig.content.sent


def test_ten_thousand_controls_cost_as_much_as_those_in_sight(
    screen: OffscreenScreen,
) -> None:
    many = [
        Control(f"c{i}", "checkbox", False, folder="many" if i > 9000 else "")
        for i in range(10_000)
    ]
    with closing(PanelRig(screen, *many)) as rig:
        rig.press("c0")
        assert 10 < len(widgets.drawn) < 40
        # As the palette does, also where its folder is closed.
        ui.seek_row("c9999")
        rig.draw()
        rig.press("c9999")
        assert 10 < len(widgets.drawn) < 40
        assert [name for name, *_ in rig.content.sent] == ["c0", "c9999"]


# -- users -----------------------------------------------------------------------------


def content_of(viewer: Viewer) -> ScriptControls:
    """Return the controls that a viewer shows."""
    user = viewer.user
    (run_controls,) = user.catalogue.script_controls.controls_beside(user.layout.active)
    return run_controls.content


def test_viewer_and_script_agree_until_the_script_ends(
    runtime_dir: Path, open_viewer: Callable[..., Viewer]
) -> None:
    save = splatview.controls.button("save")
    splatview.publish(torch.zeros(8, 8, 3), "image")
    viewer = open_viewer((640, 800))
    viewer.user.choose_tab("data")
    viewer.until(partial(operator.contains, widgets.drawn, "save"))
    content = content_of(viewer)
    viewer.click("save")
    # Others are declared, and set by the script, later.
    time = splatview.controls.slider("time", 0, 1, 0.5)
    time.value = 0.25

    def agree() -> bool:
        values = [control.value for control in content.controls]
        return values == [1, 0.25]

    viewer.until(agree)
    assert save.clicked()
    assert not save.clicked()
    splatview.close()

    def has_ended() -> bool:
        return content.has_ended

    viewer.until(has_ended)
    viewer.find("time")
    assert not viewer.user.layout.active.faults.reason("section Controls")
