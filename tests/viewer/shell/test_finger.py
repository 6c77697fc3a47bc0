"""A finger on a panel of imgui's: it scrolls, taps and holds sliders, and the button is down only where it is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.shell.finger import REACH, Finger
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.core.events import Event

SIZE = 200
ROW = 30
SLIDER, BUTTON = (100, ROW + 8), (100, 2 * ROW + 8)
"""Points inside the second and the third row."""


class Panel:
    """Rows that are higher than their window: a word, a slider, a button, and words."""

    def __init__(self) -> None:
        self._context = imgui.create_context()
        imgui.set_current_context(self._context)
        io = imgui.get_io()
        io.set_ini_filename("")
        io.backend_flags |= imgui.BackendFlags_.renderer_has_textures.value
        io.display_size = ImVec2(SIZE, SIZE)
        imgui.get_style().font_size_base = theme.FONT_SIZE
        self.finger = Finger()
        self.held: set[str] = set()
        self.value, self.pressed, self.scroll = 0.5, 0, 0.0
        self.frame()

    def frame(self) -> None:
        io = imgui.get_io()
        io.delta_time = 1 / 60
        imgui.new_frame()
        imgui.set_next_window_pos(ImVec2(0, 0))
        imgui.set_next_window_size(ImVec2(SIZE, SIZE))
        imgui.push_style_var(imgui.StyleVar_.window_padding, ImVec2(0, 0))
        imgui.begin("panel", None, imgui.WindowFlags_.no_decoration.value & ~imgui.WindowFlags_.no_scrollbar.value
                    | imgui.WindowFlags_.no_move.value)
        for row in range(40):
            imgui.set_cursor_pos(ImVec2(0, row * ROW))
            if row == 1:
                _, self.value = imgui.slider_float("##slider", self.value, 0.0, 1.0)
            elif row == 2:
                self.pressed += imgui.button("button", ImVec2(SIZE - 20, 20))
            else:
                imgui.text(f"row {row}")
        self.scroll = imgui.get_scroll_y()
        imgui.end()
        imgui.pop_style_var()
        imgui.render()

    def take(self, *events: Event) -> list[bool]:
        """As the viewer's panel does; some pictures follow."""
        taken = []
        for event in events:
            taken.append(self.finger.handle(event, self.held, 1.0, True))
            if not taken[-1]:
                io = imgui.get_io()
                if isinstance(event, (PointerMove, PointerRelease)):
                    io.add_mouse_pos_event(event.x, event.y)
                if isinstance(event, PointerRelease):
                    io.add_mouse_button_event(0, False)
                    self.held.discard("left")
            for _ in range(3):
                self.frame()
        return taken

    def close(self) -> None:
        imgui.destroy_context(self._context)


@pytest.fixture
def panel() -> Iterator[Panel]:
    made = Panel()
    yield made
    made.close()


def down(at: tuple[float, float]) -> PointerPress:
    return PointerPress(*at, touch=True)


def test_a_tap_is_a_click(panel: Panel) -> None:
    assert panel.take(down(BUTTON)) == [True]
    assert panel.held == {"left"} and not imgui.is_mouse_down(0)
    assert panel.take(PointerMove(BUTTON[0] + 3, BUTTON[1] - 3), PointerRelease(BUTTON[0] + 3, BUTTON[1] - 3)) == [
        True, True]
    assert panel.pressed == 1 and panel.held == set() and panel.scroll == 0


def test_up_and_down_scrolls_as_far_as_the_finger_goes(panel: Panel) -> None:
    """Also from a slider, whose value stays."""
    for x, y in (SLIDER, BUTTON):
        before = panel.scroll
        panel.take(down((x, y)), *(PointerMove(x, y - step) for step in range(0, 101, 10)), PointerRelease(x, y - 100))
        assert panel.scroll - before == pytest.approx(100, abs=REACH)
        panel.take(down((x, 50)), *(PointerMove(x + 40, 50 + step) for step in range(50, 201, 10)),
                   PointerRelease(x, 250))
        assert panel.scroll == 0
    assert (panel.value, panel.pressed, panel.held) == (0.5, 0, set())


def test_sideways_holds_a_slider(panel: Panel) -> None:
    """From then on it may go anywhere."""
    x, y = SLIDER
    taken = panel.take(down(SLIDER), PointerMove(x + REACH, y + 1), PointerMove(x + 40, y + 60),
                       PointerRelease(x + 40, y + 60))
    assert taken == [True, True, False, False]
    assert panel.value > 0.65 and panel.scroll == 0 and panel.held == set()
