"""The bar of a recording: play, the snapshots on a slider, the step that is shown, back to live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.geometry.controls import Rect
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.recording.player import Player

_BUTTON, _WORDS = 46.0, 92.0
"""Points: the width of a button, and of the words."""
_NARROW = 260.0
"""Points of width below which there is only the slider."""
_TICK = 8.0
"""Points between two ticks at least."""
_GRAB_PADDING = 2.0
"""Pixels around the grab of imgui's sliders."""


def draw_bar(name: str, player: Player, rect: Rect, scale: float) -> tuple[bool, Rect]:
    """Draw in an imgui frame. Return whether another snapshot was chosen, and where the slider goes from the first
    snapshot to the last."""
    before = player.position, player.playing
    with ui.board(name, rect, (10 * scale, 0), theme.BAR) as opened:
        if not opened:
            return False, Rect(rect.x, rect.y, 0, 0)
        wide, gap = rect.width >= _NARROW * scale, imgui.get_style().item_spacing.x
        imgui.set_cursor_pos_y((rect.height - imgui.get_frame_height()) / 2)
        words = f"step {player.position.step:,}" if player.position else f"{len(player.recording):,} snapshots"
        room = max(_WORDS * scale, imgui.calc_text_size(words).x)
        if wide:
            if imgui.button("Stop" if player.playing else "Play", ImVec2(_BUTTON * scale, 0)):
                player.play(not player.playing)
            imgui.set_item_tooltip("Stop" if player.playing else "Play what was recorded")
            imgui.same_line()
        taken = room + gap + player.has_live * (_BUTTON * scale + gap) if wide else 0.0
        track = _track(player, max(imgui.get_content_region_avail().x - taken, 1.0), scale)
        if wide:
            imgui.same_line()
            imgui.align_text_to_frame_padding()
            left = imgui.get_cursor_pos_x()
            ui.colored(words, theme.DIM if player.at is None else theme.TEXT)
            snapshots = player.recording.snapshots
            where = "in memory" if snapshots[-1].file is None else "on disk"
            imgui.set_item_tooltip(f"{len(snapshots):,} snapshots\n{player.recording.nbytes / 1e6:,.1f} MB {where}")
            if player.has_live:
                imgui.same_line(left + room + gap)
                imgui.push_style_color(imgui.Col_.text, theme.ALIVE if player.at is None else theme.DIM)
                if imgui.button("Live", ImVec2(_BUTTON * scale, 0)):
                    player.live()
                imgui.pop_style_color()
                imgui.set_item_tooltip("Shows what comes" if player.at is None else "Back to what comes")
    return before != (player.position, player.playing), track


def _track(player: Player, width: float, scale: float) -> Rect:
    """A slider over the snapshots from the oldest to the newest, with a live one after them, and a tick for each."""
    snapshots = player.recording.snapshots
    places = len(snapshots) - 1 + player.has_live
    here = places if player.at is None else player.at
    imgui.set_next_item_width(width)
    moved, place = imgui.slider_int("##track", here, 0, places, "", imgui.SliderFlags_.no_input.value)
    low, high = imgui.get_item_rect_min(), imgui.get_item_rect_max()
    grab = max((width - 2 * _GRAB_PADDING) / (places + 1), imgui.get_style().grab_min_size)
    left, length = low.x + _GRAB_PADDING + grab / 2, max(width - 2 * _GRAB_PADDING - grab, 1.0)
    if imgui.is_item_active():
        player.playing = False
    if moved:
        player.seek(place) if place < len(snapshots) else player.live()
    pointed = round((imgui.get_mouse_pos().x - left) / length * places)
    if imgui.is_item_hovered() and 0 <= pointed < len(snapshots):
        imgui.set_next_window_pos(ImVec2(left + pointed * length / places, low.y - 4 * scale), pivot=ImVec2(0.5, 1.0))
        imgui.set_tooltip(f"Step {snapshots[pointed].step:,}\n{snapshots[pointed].count:,} Gaussians")
    draw, apart = imgui.get_window_draw_list(), length / places
    for i in range(0, len(snapshots), max(round(_TICK * scale / apart + 0.499), 1)):
        x = round(left + i * apart)
        draw.add_line(ImVec2(x, high.y - 5 * scale), ImVec2(x, high.y), theme.u32(theme.DIM, 0.9), scale)
    return Rect(round(left), round(low.y), round(length), round(high.y - low.y))
