"""Going back through what was recorded of a scene: the bar at the lower edge of the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.events import Key
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import KeyHelp
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.recording.recording import Player

HEIGHT = 30.0
"""Points."""
_SHOWN = "history"
"""Key in the memo of the bar's visibility."""
_BUTTON = 46.0
_WORDS = 92.0
"""Points: the width of a button, and of the words."""
_NARROW = 260.0
"""Points of width below which there is only the slider."""


class HistoryTool(Tool["GaussianView"]):
    """Has the view's scene be an earlier one. Whoever looks at the scene as well sees that too."""

    name: ClassVar[str] = "history"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("History", "Comma, full stop", "The snapshot before, after"),
        KeyHelp("History", "End", "What comes live"),
        KeyHelp("History", "T", "Show or hide the bar"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self._seen: tuple[object, ...] | None = None
        self.track: Rect | None = None
        """Place of the slider."""

    @property
    def player(self) -> Player | None:
        """The recorded snapshots; None while there are fewer than two."""
        player = self.view.data.player
        return player if player is not None and len(player.recording) > 1 else None

    @property
    def is_useful(self) -> bool:
        return self.player is not None

    @property
    def shown(self) -> bool:
        """True if the bar is there: it can be hidden while nothing recorded is shown."""
        player = self.player
        if player is None:
            return False
        return self.view.host.memo.get(_SHOWN) is not False or (
            player.position is not None and player.has_live
        )

    def handle(self, event: Event, rect: Rect) -> bool | None:
        player = self.player
        if (
            player is None
            or not isinstance(event, Key)
            or not event.pressed
            or event.mods
        ):
            return None
        match event.name:
            case "comma":
                player.move(-1)
            case "period":
                player.move(1)
            case "end":
                player.live()
            case "t" if not event.repeat:
                self.view.host.memo.put(
                    _SHOWN, None if self.view.host.memo.get(_SHOWN) is False else False
                )
            case _:
                return None
        return True

    def tick(self, now: float) -> bool:
        player = self.view.data.player
        seen = player and (
            player,
            player.position,
            player.playing,
            player.recording.changes,
        )
        changed = seen != self._seen
        self._seen = seen
        if changed and player is not None and player.playing:
            self.view.mark_moving()
        return changed

    def bar_height(self) -> float:
        return HEIGHT if self.shown else 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        player = self.player
        if player is None or not self.shown:
            return False
        before = (player.position, player.playing)
        kept = player.recording
        with ui.board(
            f"history {id(self)}", rect, (10 * scale, 0), theme.BAR
        ) as opened:
            if not opened:
                return False
            wide = rect.width >= _NARROW * scale
            gap = imgui.get_style().item_spacing.x
            imgui.set_cursor_pos_y((rect.height - imgui.get_frame_height()) / 2)
            if player.position:
                words = f"step {player.position.step:,}"
            else:
                words = f"{len(kept):,} snapshots"
            room = max(_WORDS * scale, imgui.calc_text_size(words).x)
            if wide:
                if imgui.button(
                    "Stop" if player.playing else "Play", ImVec2(_BUTTON * scale, 0)
                ):
                    player.play(not player.playing)
                imgui.set_item_tooltip(
                    "Stop" if player.playing else "Play what was recorded"
                )
                imgui.same_line()
            if wide:
                taken = room + gap + player.has_live * (_BUTTON * scale + gap)
            else:
                taken = 0.0
            self.track = _track(
                player, max(imgui.get_content_region_avail().x - taken, 1.0), scale
            )
            if wide:
                imgui.same_line()
                imgui.align_text_to_frame_padding()
                left = imgui.get_cursor_pos_x()
                ui.colored(words, theme.DIM if player.at is None else theme.TEXT)
                where = "in memory" if kept.path is None else "on disk"
                imgui.set_item_tooltip(
                    f"{len(kept):,} snapshots\n{kept.nbytes / 1e6:,.1f} MB {where}"
                )
                if player.has_live:
                    imgui.same_line(left + room + gap)
                    imgui.push_style_color(
                        imgui.Col_.text, theme.ALIVE if player.at is None else theme.DIM
                    )
                    if imgui.button("Live", ImVec2(_BUTTON * scale, 0)):
                        player.live()
                    imgui.pop_style_color()
                    imgui.set_item_tooltip(
                        "Shows what comes"
                        if player.at is None
                        else "Back to what comes"
                    )
        changed = before != (player.position, player.playing)
        if changed and player.position is not None:
            self.view.mark_moving()
        return changed


def _track(player: Player, width: float, scale: float) -> Rect:
    """A slider over the snapshots from the oldest to the newest, with a live one after them."""
    snapshots = player.recording.snapshots
    places = len(snapshots) - 1 + player.has_live
    here = places if player.at is None else player.at
    imgui.set_next_item_width(width)
    moved, place = imgui.slider_int(
        "##track", here, 0, places, "", imgui.SliderFlags_.no_input.value
    )
    low = imgui.get_item_rect_min()
    size = imgui.get_item_rect_size()
    if imgui.is_item_active():
        player.playing = False
    if moved:
        player.seek(place) if place < len(snapshots) else player.live()
    if imgui.is_item_hovered():
        share = (ui.pointer().x - low.x) / max(size.x, 1.0)
        pointed = int(share * (places + 1))
        if 0 <= pointed < len(snapshots):
            snapshot = snapshots[pointed]
            imgui.set_tooltip(f"Step {snapshot.step:,}\n{snapshot.count:,} Gaussians")
    return Rect(round(low.x), round(low.y), round(size.x), round(size.y))
