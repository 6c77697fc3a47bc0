"""The recorded versions of a scene: the bar at the picture's lower edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.events import Key
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import KeyHelp
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.recording.recording import Player

HEIGHT = 30.0
"""Height of the bar, in points."""
_MEMO_KEY = "history"
"""Key in the memo of the bar's visibility: False where the user has hidden it."""
_BUTTON_WIDTH = 46.0
"""Width of a button, in points."""
_CAPTION_WIDTH = 92.0
"""Width of the caption, in points."""
_MIN_WIDE = 260.0
"""Points of width below which there is only the slider."""


class HistoryTool(Tool["GaussianView"]):
    """Shows an earlier version of the scene, in all views of it."""

    name: ClassVar[str] = "history"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("History", "Comma, full stop", "The snapshot before, after"),
        KeyHelp("History", "End", "What comes live"),
        KeyHelp("History", "T", "Show or hide the bar"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self._displayed_state: tuple[object, ...] | None = None
        self.track: Rect | None = None
        """The slider's rectangle."""

    @property
    def player(self) -> Player | None:
        """The recorded snapshots; None while there are fewer than two."""
        player = self.view.data.player
        if player is None or len(player.recording) < 2:
            return None
        return player

    @property
    def is_useful(self) -> bool:
        return self.player is not None

    @property
    def is_shown(self) -> bool:
        """True if the bar is there: it can be hidden while what comes live is shown."""
        player = self.player
        if player is None:
            return False
        is_in_the_past = player.position is not None and player.has_live
        return is_in_the_past or not self._is_hidden

    @property
    def _is_hidden(self) -> bool:
        return self.view.host.memo.get(_MEMO_KEY) is False

    def handle(self, event: Event, rect: Rect) -> bool | None:
        player = self.player
        if player is None or not isinstance(event, Key):
            return None
        if not event.pressed or event.mods:
            return None
        match event.name:
            case "comma":
                player.move(-1)
            case "period":
                player.move(1)
            case "end":
                player.live()
            case "t" if not event.repeat:
                self.view.host.memo.put(_MEMO_KEY, None if self._is_hidden else False)
            case _:
                return None
        return True

    def tick(self, now: float) -> bool:
        player = self.view.data.player
        displayed: tuple[object, ...] | None = None
        if player is not None:
            changes = player.recording.changes
            displayed = (player, player.position, player.playing, changes)
        is_changed = displayed != self._displayed_state
        self._displayed_state = displayed
        if is_changed and player is not None and player.playing:
            self.view.mark_moving()
        return is_changed

    # -- the bar -------------------------------------------------------------------

    def bar_height(self) -> float:
        return HEIGHT if self.is_shown else 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        player = self.player
        if player is None or not self.is_shown:
            return False
        previous = (player.position, player.playing)
        padding = (10 * scale, 0)
        with ui.board(f"history {id(self)}", rect, padding, theme.BAR) as is_open:
            if not is_open:
                return False
            imgui.set_cursor_pos_y((rect.height - imgui.get_frame_height()) / 2)
            if rect.width >= _MIN_WIDE * scale:
                self._draw_wide(player, scale)
            else:
                width = max(imgui.get_content_region_avail().x, 1.0)
                self.track = _draw_track(player, width)
        is_changed = previous != (player.position, player.playing)
        if is_changed and player.position is not None:
            self.view.mark_moving()
        return is_changed

    def _draw_wide(self, player: Player, scale: float) -> None:
        """Draw buttons and a caption beside the slider."""
        gap = imgui.get_style().item_spacing.x
        button_width = _BUTTON_WIDTH * scale
        caption = _caption(player)
        caption_width = max(_CAPTION_WIDTH * scale, imgui.calc_text_size(caption).x)
        _draw_play_button(player, button_width)
        imgui.same_line()
        used_width = caption_width + gap
        if player.has_live:
            used_width += button_width + gap
        width = max(imgui.get_content_region_avail().x - used_width, 1.0)
        self.track = _draw_track(player, width)
        imgui.same_line()
        imgui.align_text_to_frame_padding()
        left = imgui.get_cursor_pos_x()
        _draw_caption(player, caption)
        if player.has_live:
            imgui.same_line(left + caption_width + gap)
            _draw_live_button(player, button_width)


def _caption(player: Player) -> str:
    if player.position:
        return f"step {player.position.step:,}"
    return f"{len(player.recording):,} snapshots"


def _draw_caption(player: Player, caption: str) -> None:
    recording = player.recording
    ui.colored(caption, theme.DIM if player.index is None else theme.TEXT)
    storage = "in memory" if recording.path is None else "on disk"
    controls.tip(
        f"{len(recording):,} snapshots\n{recording.nbytes / 1e6:,.1f} MB {storage}"
    )


def _draw_play_button(player: Player, width: float) -> None:
    label = "Stop"
    tip = "Stop"
    if not player.playing:
        label = "Play"
        tip = "Play what was recorded"
    if imgui.button(label, ImVec2(width, 0)):
        player.play(not player.playing)
    controls.tip(tip)


def _draw_live_button(player: Player, width: float) -> None:
    color = theme.DIM
    tip = "Back to what comes"
    if player.index is None:
        color = theme.GOOD
        tip = "Shows what comes"
    imgui.push_style_color(imgui.Col_.text, color)
    if imgui.button("Live", ImVec2(width, 0)):
        player.live()
    imgui.pop_style_color()
    controls.tip(tip)


def _draw_track(player: Player, width: float) -> Rect:
    """Draw a slider over the snapshots, from the oldest to the newest.

    What comes live is after them. Returns the slider's rectangle.
    """
    snapshots = player.recording.snapshots
    last = len(snapshots) - 1 + player.has_live
    current = last if player.index is None else player.index
    imgui.set_next_item_width(width)
    no_input = imgui.SliderFlags_.no_input.value
    is_moved, index = imgui.slider_int("##track", current, 0, last, "", no_input)
    corner = imgui.get_item_rect_min()
    size = imgui.get_item_rect_size()
    if imgui.is_item_active():
        player.playing = False
    if is_moved and index < len(snapshots):
        player.seek(index)
    elif is_moved:
        player.live()
    if imgui.is_item_hovered():
        share = (ui.pointer().x - corner.x) / max(size.x, 1.0)
        hovered = int(share * (last + 1))
        if 0 <= hovered < len(snapshots):
            snapshot = snapshots[hovered]
            imgui.set_tooltip(f"Step {snapshot.step:,}\n{snapshot.count:,} Gaussians")
    return Rect(round(corner.x), round(corner.y), round(size.x), round(size.y))
