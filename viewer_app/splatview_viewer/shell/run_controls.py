"""Pause, step, resume: what the panel offers for the run whose stream is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from splatview_viewer.core.settings import Entry, Wish

def draw_run_controls(entry: Entry) -> Wish | None:
    """Draw the buttons for the run of an entry, as wide as there is room; what was pressed, if anything was."""
    if not entry.paused:
        pressed = imgui.button("Pause the run", ImVec2(-1, 0))
        imgui.set_item_tooltip("The run waits where its script calls splatview.wait_while_paused()")
        return True if pressed else None
    gap = imgui.get_style().item_spacing.x
    width = (imgui.get_content_region_avail().x - gap) / 2
    wish: Wish | None = None
    if imgui.button("Resume", ImVec2(width, 0)):
        wish = False
    imgui.set_item_tooltip("The run goes on, whoever paused it")
    imgui.same_line(0, gap)
    if imgui.button("Step", ImVec2(width, 0)):
        wish = "step"
    imgui.set_item_tooltip("The run goes on to the next time that it would wait")
    imgui.push_text_wrap_pos(0.0)
    imgui.push_style_color(imgui.Col_.text, imgui.get_color_u32(theme.DIM))
    imgui.text_unformatted(state_text(entry))
    imgui.pop_style_color()
    imgui.pop_text_wrap_pos()
    return wish


def state_text(entry: Entry) -> str:
    """What a paused run does."""
    if entry.waits == 0:
        return "Paused, but its script goes on: it never calls splatview.wait_while_paused()"
    return "Paused: the run waits" if entry.waits == 2 else "Paused: the run comes to the end of its step"
