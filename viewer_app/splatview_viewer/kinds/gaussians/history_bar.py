"""What the bar of a recording looks like: play, the snapshots as ticks, the step that is shown, back to live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from imgui_bundle import ImVec4

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.recording.player import Player
    from splatview_viewer.recording.recording import Snapshot

_PAD, _PLAY, _END = 10.0, 22.0, 46.0
"""Points: at both ends and between the parts; the width of the two buttons."""
_WORDS = 92.0
"""Points: the width of the words in the middle, where there is room."""
_NARROW = 260.0
"""Points of width below which there is only the track."""
_TICK = 8.0
"""Points between two ticks at least."""


class Bar:
    """One view's bar."""

    def __init__(self, name: str) -> None:
        """`name`: for imgui, unlike all others."""
        self._name = name

    def draw(self, player: Player, rect: Rect, scale: float) -> bool:
        """Draw in an imgui frame; True when something was chosen."""
        with board(self._name, rect, color=theme.BAR) as opened:
            return opened and self._parts(player, rect, scale)

    def _parts(self, player: Player, rect: Rect, scale: float) -> bool:
        pad, changed = _PAD * scale, False
        left, right = rect.x + pad, rect.x + rect.width - pad
        if right - left < 8 * scale:
            return False
        if rect.width >= _NARROW * scale:
            changed |= self._play(player, left, rect, scale)
            left += (_PLAY + 4) * scale
            if player.has_live:
                right -= (_END + 4) * scale
                changed |= self._live(player, right, rect, scale)
            words = _step(player)
            width = max(_WORDS * scale, imgui.calc_text_size(words).x)
            right -= width + pad
            imgui.set_cursor_screen_pos(ImVec2(right + pad, rect.y))
            imgui.invisible_button("words", ImVec2(width, rect.height))
            if imgui.is_item_hovered():
                imgui.set_tooltip(_kept(player))
            self._write(words, right + pad + width - imgui.calc_text_size(words).x, rect,
                        theme.DIM if player.at is None else theme.TEXT)
        return self._track(player, (left, right), rect, scale) or changed

    def _play(self, player: Player, x: float, rect: Rect, scale: float) -> bool:
        imgui.set_cursor_screen_pos(ImVec2(x, rect.y))
        pressed = imgui.invisible_button("play", ImVec2(_PLAY * scale, rect.height))
        imgui.set_item_tooltip("Stop" if player.playing else "Play what was recorded")
        color = theme.u32(theme.TEXT if imgui.is_item_hovered() or player.playing else theme.DIM)
        draw, r = imgui.get_window_draw_list(), 5 * scale
        cx, cy = x + _PLAY * scale / 2, rect.y + rect.height / 2
        if player.playing:
            for dx in (-0.75, 0.25):
                draw.add_rect_filled(ImVec2(cx + dx * r, cy - r), ImVec2(cx + (dx + 0.5) * r, cy + r), color)
        else:
            draw.add_triangle_filled(ImVec2(cx - 0.7 * r, cy - r), ImVec2(cx + r, cy), ImVec2(cx - 0.7 * r, cy + r),
                                     color)
        if pressed:
            player.play(not player.playing)
        return pressed

    def _live(self, player: Player, x: float, rect: Rect, scale: float) -> bool:
        x += 8 * scale
        imgui.set_cursor_screen_pos(ImVec2(x, rect.y))
        pressed = imgui.invisible_button("live", ImVec2((_END - 4) * scale, rect.height))
        live = player.at is None
        imgui.set_item_tooltip("Shows what comes" if live else "Back to what comes")
        dot = theme.ALIVE if live else theme.GONE
        at = x + 7 * scale
        imgui.get_window_draw_list().add_circle_filled(ImVec2(at, rect.y + rect.height / 2), 3.5 * scale,
                                                       theme.u32(dot), 16)
        self._write("Live", at + 8 * scale, rect, theme.TEXT if live or imgui.is_item_hovered() else theme.DIM)
        if pressed:
            player.live()
        return pressed

    def _track(self, player: Player, ends: tuple[float, float], rect: Rect, scale: float) -> bool:
        """The snapshots, one beside the other from the oldest to the newest; with a live one after them."""
        left, right = ends[0] + 6 * scale, ends[1] - 6 * scale
        if right - left < 4 * scale:
            return False
        snapshots = player.recording.snapshots
        places = len(snapshots) - 1 + player.has_live
        apart = (right - left) / places
        imgui.set_cursor_screen_pos(ImVec2(ends[0], rect.y))
        imgui.invisible_button("track", ImVec2(ends[1] - ends[0], rect.height))
        held, over = imgui.is_item_active(), imgui.is_item_hovered()
        pointed = round(min(max((imgui.get_mouse_pos().x - left) / apart, 0.0), places)) if held or over else 0
        changed = False
        if held:
            before = player.position
            player.playing = False
            if pointed < len(snapshots):
                player.seek(pointed)
            else:
                player.live()
            changed = player.position is not before
        if (held or over) and pointed < len(snapshots):
            imgui.set_next_window_pos(ImVec2(left + pointed * apart, rect.y - 4 * scale), 0, ImVec2(0.5, 1.0))
            imgui.set_tooltip(_about(snapshots[pointed]))
        self._draw_track(player, (left, right), apart, rect, scale)
        return changed

    def _draw_track(self, player: Player, ends: tuple[float, float], apart: float, rect: Rect, scale: float) -> None:
        draw, y = imgui.get_window_draw_list(), rect.y + rect.height / 2
        left, right = ends
        at = player.at
        here = right if at is None else left + at * apart
        half = max(1.0, scale)
        draw.add_rect_filled(ImVec2(left, y - half), ImVec2(right, y + half), theme.u32(theme.GONE, 0.6), half)
        draw.add_rect_filled(ImVec2(left, y - half), ImVec2(here, y + half),
                             theme.u32(theme.ACCENT, 0.9 if at is not None else 0.45), half)
        count = len(player.recording)
        every = max(round(_TICK * scale / apart + 0.499), 1)
        color, tall = theme.u32(theme.DIM, 0.9), 4 * scale
        for i in range(0, count, every):
            x = round(left + i * apart)
            draw.add_rect_filled(ImVec2(x, y - tall), ImVec2(x + max(1.0, round(scale)), y + tall), color)
        draw.add_circle_filled(ImVec2(here, y), 5.5 * scale, theme.u32(theme.BAR), 24)
        draw.add_circle_filled(ImVec2(here, y), 4.5 * scale,
                               theme.u32(theme.ACCENT if at is not None else theme.ALIVE), 24)

    def _write(self, text: str, x: float, rect: Rect, color: ImVec4) -> None:
        y = rect.y + (rect.height - imgui.get_text_line_height()) / 2
        imgui.get_window_draw_list().add_text(ImVec2(round(x), round(y)), theme.u32(color), text)


def _step(player: Player) -> str:
    """What is shown, in words."""
    if player.position is not None:
        return f"step {player.position.step:,}"
    count = len(player.recording)
    return f"{count:,} snapshots"


def _kept(player: Player) -> str:
    """How much there is."""
    recording = player.recording
    where = "in memory" if recording.snapshots[-1].file is None else "on disk"
    return f"{len(recording):,} snapshots\n{recording.nbytes / 1e6:,.1f} MB {where}"


def _about(snapshot: Snapshot) -> str:
    return f"Step {snapshot.step:,}\n{snapshot.count:,} Gaussians"
