"""The theme's colours, dark and light: what is written can be read."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from imgui_bundle import ImVec2, imgui
from support.contrast import contrast

from splatview_viewer.core.screen import Rect
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell.surface import Surface
from splatview_viewer.ui import controls
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.theme import COLORS, RUN_COLORS

GROUNDS = ("BAR", "PANEL", "FIELD", "POPUP", "PLOT")
INKS = ("TEXT", "DIM", "FAINT", "ACCENT", "RUN_B", "SUCCESS", "WAITS", "FAULT")
PAIRS = [
    *((ink, ground) for ink in INKS for ground in GROUNDS),
    ("TEXT", "HOVER"),
    ("ON_CHOSEN", "CHOSEN_GROUND"),
    ("TEXT", "FILL"),
    ("ON_ACCENT", "ACCENT"),
]
"""Names of letters' colours, and of what they are written on."""


def contrast_of(first: str, second: str) -> float:
    """Return the contrast of two colours of six hexadecimal digits."""
    return contrast(np.array([[*bytes.fromhex(first)], [*bytes.fromhex(second)]]))


@pytest.mark.parametrize("is_light", [False, True], ids=["dark", "light"])
@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_letters_stand_out_from_their_ground(
    ink: str, ground: str, is_light: bool
) -> None:
    assert contrast_of(COLORS[ink][is_light], COLORS[ground][is_light]) >= 4.5


@pytest.mark.parametrize("is_light", [False, True], ids=["dark", "light"])
def test_icons_of_what_cannot_be_used_stand_out(is_light: bool) -> None:
    def draw(rect: Rect, scale: float) -> bool:
        with board("icon", rect):
            imgui.set_cursor_screen_pos(ImVec2(16, 16))
            controls.icon_button("undo", "undo", reason="nothing was done")
        return False

    with closing(OffscreenScreen(64, 64)) as screen, closing(Surface()) as surface:
        surface.light = is_light
        surface.draw_over(screen.framebuffer, draw, 1.0)
        surface.draw_over(screen.framebuffer, draw, 1.0)
        pixels = screen.pixels()[16:46, 16:46, :3].astype(int)
    assert contrast(pixels) >= 4.5


@pytest.mark.parametrize("is_light", [False, True], ids=["dark", "light"])
def test_curves_of_all_runs_stand_out_from_a_plot(is_light: bool) -> None:
    for colors in RUN_COLORS:
        assert contrast_of(colors[is_light], COLORS["PLOT"][is_light]) >= 4.5
