"""The heads of sections, and of rarely needed rows in them."""

from __future__ import annotations

from imgui_bundle import imgui

from splatview_viewer.ui import controls, icons, lettering, theme

_HEAD_GAP = 2.0
"""Points above a head."""
_is_head_clicked_right = False


def draw_fold(title: str, opened: bool = False, tip: str = "", state: str = "") -> bool:
    """Draw the head of a section, which a click opens and closes.

    Args:
        title: its name.
        opened: True to open it at first.
        tip: shown beside the panel.
        state: a few words at its right.

    Returns:
        True while it is open.
    """
    global _is_head_clicked_right
    gap = _HEAD_GAP * theme.scale()
    imgui.set_cursor_pos_y(imgui.get_cursor_pos_y() + gap)
    is_open = controls.head(title, opened, state, tip)
    _is_head_clicked_right = imgui.is_item_clicked(imgui.MouseButton_.right)
    # Heads follow each other closely, and rows follow their head at once.
    spacing = imgui.get_style().item_spacing
    imgui.set_cursor_pos_y(imgui.get_cursor_pos_y() - spacing.y)
    return is_open


def is_head_clicked_right() -> bool:
    """Return whether the last `draw_fold` was clicked on the right."""
    return _is_head_clicked_right


def draw_small_fold(title: str, tip: str = "") -> bool:
    """Draw the head of rarely needed rows of a section; return True while it is open."""
    storage = imgui.get_state_storage()
    key = imgui.get_id(f"{title} is open")
    is_open = storage.get_bool(key, False)
    if draw_small_head(title, is_open, tip):
        is_open = not is_open
        storage.set_bool(key, is_open)
    return is_open


def draw_small_head(title: str, is_open: bool, tip: str = "") -> bool:
    """Draw the head of some rows of a section; return True if it was pressed.

    Args:
        title: its name, also for imgui.
        is_open: True while the rows are below it.
        tip: shown beside the panel.
    """
    scale = theme.scale()
    width = imgui.get_content_region_avail().x
    target = controls.item(title, width, theme.ROW_HEIGHT * scale)
    draw = imgui.get_window_draw_list()
    ink = theme.TEXT if target.hovered else theme.DIM
    caret = "down" if is_open != target.pressed else "right"
    icons.draw(
        draw, caret, (target.x + 6 * scale, target.middle[1]), ink, icons.CARET_SIZE
    )
    y = target.middle[1] - imgui.get_text_line_height() / 2
    text = lettering.fitted(title, width - 20 * scale)
    lettering.write(draw, round(target.x + 20 * scale), round(y), theme.u32(ink), text)
    controls.tip(tip)
    return target.pressed
