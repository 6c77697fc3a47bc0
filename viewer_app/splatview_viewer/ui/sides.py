"""The two sides of a comparison, A and B: their badges, and rows of the panel."""

from __future__ import annotations

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import controls, theme
from splatview_viewer.ui import widgets as ui

_BADGE_COLUMN = 30.0
"""Points from the left of a badge to the list beside it."""
_SWAP_GAP = 2.0
"""Points from the lists to the button at their right that swaps both sides."""


def draw_badge(letter: str, x: float, middle: float) -> None:
    """Draw the badge of a side, "A" or "B", from a pixel x on, around a pixel y."""
    color = theme.run_color("AB".index(letter))
    half = controls.BADGE_SIDE / 2 * theme.scale()
    controls.badge(letter, color, (x, middle - half))


def draw_side(letter: str, index: int, key: str, options: dict[str, str]) -> str:
    """Draw the list of one side after its badge; return the key that is chosen now.

    Args:
        letter: "A" or "B".
        index: of the side's colour in `theme.run_color`.
        key: chosen before this frame.
        options: maps each key to its name.
    """
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    width = imgui.get_content_region_avail().x
    drop = (theme.ROW_HEIGHT - controls.BADGE_SIDE) / 2 * scale
    controls.badge(letter, theme.run_color(index), (corner.x, corner.y + drop))
    imgui.set_cursor_screen_pos(ImVec2(corner.x + _BADGE_COLUMN * scale, corner.y))
    beside = _BADGE_COLUMN + _SWAP_GAP + theme.BUTTON_HEIGHT
    imgui.set_next_item_width(width - beside * scale)
    return ui.pick(letter, f"What {letter} is", key, options)
