"""The recorded versions of a scene: the lane of the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.core.lane import LaneButton
from splatview_viewer.core.quantities import round_up
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import controls
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.tracks import Track

if TYPE_CHECKING:
    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.recording.player import Player
    from splatview_viewer.recording.recording import Recording

NO_SNAPSHOTS = "Snapshots of a training appear here"
_TICK_DISTANCE = 110.0
"""Points between two ticks, about."""
_MAX_TICKS = 100
_MIN_MARK_DISTANCE = 3.0
"""Points between two marks of snapshots, at least."""


class HistoryTool(Tool["GaussianView"]):
    """Shows an earlier version of the scene, in all views of it."""

    name: ClassVar[str] = "history"

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.training = TrainingLane(self)
        self._displayed_state: tuple[object, ...] | None = None

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

    def move(self, offset: int) -> None:
        """Show the snapshot `offset` after the displayed one."""
        if self.player is not None:
            self.player.move(offset)

    def live(self) -> None:
        """Show what comes live; where nothing comes, the newest snapshot."""
        if self.player is not None:
            self.player.live()

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

    def lane(self) -> Lane | None:
        return self.training


class TrainingLane:
    """The recorded snapshots over the steps of their training; what comes is last."""

    name = "Training"
    icon = "training"
    has_transport = True

    def __init__(self, tool: HistoryTool) -> None:
        self._tool = tool
        self._recording_key: tuple[Recording, int] | None = None
        """The recording, and its changes, that `_steps` are of."""
        self._steps = np.zeros(0)
        """The steps of the snapshots."""
        self._grows = False
        """True if no step is less than the one before."""
        self._newest = 0.0
        """The newest step of the run, which stays while the past is shown."""
        self._version_places = np.zeros(0)
        """Where on the track the snapshots are, 0 to 1."""
        self._ends: tuple[float, float] | None = None
        """The steps at both ends of the track; None where they do not grow."""

    @property
    def empty_text(self) -> str:
        if self._tool.player is None:
            return NO_SNAPSHOTS
        return ""

    @property
    def reason(self) -> str | None:
        if self._tool.player is None:
            return "no snapshots are recorded"
        return None

    @property
    def caption(self) -> str:
        player = self._tool.player
        if player is not None and player.position is not None:
            return f"step {player.position.step:,}"
        step = self._live_step
        if step is None:
            return ""
        return f"step {step:,}"

    @property
    def _live_step(self) -> int | None:
        """The step of what is shown; None where the trainer names none."""
        summary = self._tool.view.data.summary
        if summary is None:
            return None
        return summary.step

    @property
    def button(self) -> LaneButton | None:
        player = self._tool.player
        if player is None:
            return None
        is_live = player.position is None
        if is_live:
            tip = "Shows what comes"
        else:
            tip = "Back to what comes (End)"
        return LaneButton("Live", player.live, on=is_live, tip=tip)

    @property
    def playing(self) -> bool:
        player = self._tool.player
        return player is not None and player.playing

    def play(self, on: bool) -> None:
        if self._tool.player is not None:
            self._tool.player.play(on)

    def step(self, count: int) -> None:
        self._tool.move(count)

    # -- the track -----------------------------------------------------------------

    def place(self, index: int | None) -> float:
        """Return where on the track a snapshot is, 0 to 1; None: what comes."""
        player = self._tool.player
        if player is None or index is None:
            return 1.0
        self._find_places(player)
        return float(self._version_places[min(index, len(self._version_places) - 1)])

    def _find_places(self, player: Player) -> None:
        """Find where the snapshots are."""
        recording = player.recording
        recording_key = (recording, recording.changes)
        if recording_key != self._recording_key:
            if self._recording_key is None or self._recording_key[0] is not recording:
                self._newest = 0.0
            self._recording_key = recording_key
            steps = [snapshot.step for snapshot in recording.snapshots]
            self._steps = np.array(steps, np.float64)
            self._grows = bool((np.diff(self._steps) >= 0).all())
            self._ends = None
            self._version_places = np.zeros(0)
        if player.position is None:
            self._newest = float(self._live_step or 0)
        end = max(float(self._steps[-1]), self._newest)
        # A track from 0 would leave little room for the end of a long training.
        if self._steps[0] <= end / 2:
            start = 0.0
        else:
            start = float(self._steps[0])
        if (start, end) == self._ends or (
            len(self._version_places) and not self._grows
        ):
            return
        if self._grows and end > start:
            self._ends = (start, end)
            self._version_places = (self._steps - start) / (end - start)
        else:
            # A run that was started again: the steps go back.
            last = max(len(self._steps) - 1 + player.has_live, 1)
            self._version_places = np.arange(len(self._steps)) / last

    def draw_track(self, rect: Rect, scale: float) -> bool:
        player = self._tool.player
        track = Track(rect, scale)
        if player is None:
            with track.drawing() as draw:
                track.write(draw, self.empty_text)
            return False
        previous = (player.position, player.playing)
        self._find_places(player)
        self._handle_pointer(player, track)
        with track.drawing() as draw:
            if self._ends is not None:
                for gap in player.recording.gaps:
                    track.draw_hatching(draw, *_shares_of(gap, self._ends))
                _draw_ticks(draw, track, *self._ends)
            _draw_marks(
                draw, track, track.to_x(0.0) + self._version_places * track.span
            )
            track.draw_cursor(draw, self.place(player.index))
        is_changed = previous != (player.position, player.playing)
        if is_changed and player.position is not None:
            self._tool.view.mark_moving()
        return is_changed

    def _handle_pointer(self, player: Player, track: Track) -> None:
        """Show the snapshot under the pointer while its button is held."""
        is_held = track.take_pointer("Training track")
        steps = track.take_arrows()
        if steps:
            self.step(steps)
        is_hovered = imgui.is_item_hovered()
        if not is_held and not is_hovered:
            return
        share = track.to_share(ui.pointer().x)
        index = self._index_at(player, share)
        if is_held:
            player.playing = False
            if index is None and player.position is not None:
                player.live()
            elif index is not None and index != player.index:
                player.seek(index)
        gap = self._gap_at(player, share)
        if is_hovered and gap is not None:
            start, end = gap
            text = (
                f"Steps {start:,} to {end:,} are not recorded: the scene was not shown\n"
                "Recorded in any case: splatview serve --record FOLDER"
            )
            controls.tell(text, ui.pointer().x)
        elif is_hovered and index is not None:
            snapshot = player.recording.snapshots[index]
            text = f"Step {snapshot.step:,}\n{snapshot.count:,} Gaussians"
            controls.tell(text, ui.pointer().x)

    def _gap_at(self, player: Player, share: float) -> tuple[int, int] | None:
        """Return the steps of the gap at a place; None: there is none."""
        if self._ends is None:
            return None
        for gap in player.recording.gaps:
            first, last = _shares_of(gap, self._ends)
            if first < share < last:
                return gap
        return None

    def _index_at(self, player: Player, share: float) -> int | None:
        """Return the index of the snapshot nearest to a place; None: what comes."""
        index = int(np.argmin(np.abs(self._version_places - share)))
        is_live_nearer = abs(1.0 - share) <= abs(self._version_places[index] - share)
        if player.has_live and (is_live_nearer or share >= 1.0):
            return None
        return index


def _shares_of(gap: tuple[int, int], ends: tuple[float, float]) -> tuple[float, float]:
    """Return where on a track with these ends a gap begins and ends."""
    start, end = ends
    first, last = gap
    return (first - start) / (end - start), (last - start) / (end - start)


def _draw_ticks(draw: imgui.ImDrawList, track: Track, start: float, end: float) -> None:
    """Draw round steps at the track's lower edge."""
    min_spacing = _TICK_DISTANCE * track.scale * (end - start) / track.span
    spacing = max(round_up(max(min_spacing, 1.0)), 1.0)
    first = int(np.ceil(start / spacing))
    for tick in range(first, first + _MAX_TICKS):
        step = tick * spacing
        if step > end:
            return
        track.draw_tick(draw, (step - start) / (end - start), f"{step:,.0f}")


def _draw_marks(draw: imgui.ImDrawList, track: Track, x: np.ndarray) -> None:
    """Draw the marks of snapshots at pixels x; where they are dense, some of them."""
    spacing = max(_MIN_MARK_DISTANCE * track.scale, 1.0)
    columns = np.unique(np.rint(x / spacing))
    shown_x = x if len(columns) == len(x) else columns * spacing
    for column in shown_x.tolist():
        track.draw_mark(draw, column)
