"""A field that fills as a job goes on."""

from __future__ import annotations

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import lettering, theme


def draw_progress(share: float, text: str, width: float = 0.0) -> None:
    """Draw a field that is filled up to a share from 0 to 1, a text in its middle.

    width: pixels; what is left of the line without.
    """
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    width = width or imgui.get_content_region_avail().x
    height = theme.ROW_HEIGHT * scale
    high = ImVec2(corner.x + width, corner.y + height)
    rounding = theme.FIELD_ROUNDING * scale
    draw = imgui.get_window_draw_list()
    draw.add_rect_filled(corner, high, theme.u32(theme.FIELD), rounding)
    end = corner.x + min(max(share, 0.0), 1.0) * width
    # The whole field is drawn, so that its corners stay round.
    draw.push_clip_rect(corner, ImVec2(end, high.y), True)
    draw.add_rect_filled(corner, high, theme.u32(theme.FILL), rounding)
    draw.pop_clip_rect()
    size = lettering.measure(text)
    x = round(corner.x + (width - size.x) / 2)
    y = round(corner.y + (height - imgui.get_text_line_height()) / 2)
    lettering.write(draw, x, y, theme.u32(theme.TEXT), text)
    imgui.dummy(ImVec2(width, height))
