"""The lane of a camera path: a line with its keyframes and the playhead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.lane import LaneButton
from splatview_viewer.core.quantities import round_seconds
from splatview_viewer.geometry.path import MAX_KEYS
from splatview_viewer.ui import theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.tracks import Track

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.scene_view.path import PathTool

_KEY_REACH = 8.0
"""Points around a keyframe within which the pointer has it."""
_MIN_DRAG = 3.0
"""Points from which a press on a keyframe moves it."""
_TICK_DISTANCE = 60.0
_MAX_TICKS = 100
_SAME_TIME = 1e-3
"""Seconds by which the playhead may be off a keyframe and still be at it."""


class Timeline:
    """Edits the times of a path's keyframes, moves the playhead, and plays."""

    name = "Path"
    icon = "film"
    has_transport = True

    def __init__(self, tool: PathTool) -> None:
        self._tool = tool
        self._dragged: int | None = None
        """The index in `CameraPath.times` that the pointer moves."""

    @property
    def is_dragging(self) -> bool:
        """True while the pointer moves a keyframe."""
        return self._dragged is not None

    @property
    def empty_text(self) -> str:
        if self._tool.path.keys:
            return ""
        return "Press K to set a keyframe where the camera is"

    @property
    def caption(self) -> str:
        if not self._tool.path.keys:
            return ""
        duration = round(self._tool.path.duration, 1)
        return f"{self._tool.time:.1f} / {duration:g} s"

    @property
    def button(self) -> LaneButton:
        reason = None
        if len(self._tool.path.keys) >= MAX_KEYS:
            reason = f"{MAX_KEYS} keyframes are the most"
        tip = "Set a keyframe where the camera is (K)"
        return LaneButton("Key", self._tool.add_key, "plus", reason=reason, tip=tip)

    @property
    def reason(self) -> str | None:
        if len(self._tool.path.keys) < 2:
            return "A path needs two keyframes: press K at two places"
        return None

    @property
    def playing(self) -> bool:
        return self._tool.is_playing

    def play(self, on: bool) -> None:
        if on:
            self._tool.play()
        else:
            self._tool.stop()

    def step(self, count: int) -> None:
        """Choose the keyframe after the playhead, or the one before."""
        keys = self._tool.path.keys
        times = self._tool.path.times[: len(keys)]
        if not keys:
            return
        now = self._tool.time
        if count > 0:
            later_keys = [i for i, t in enumerate(times) if t > now + _SAME_TIME]
            self._tool.choose(min(later_keys, default=len(keys) - 1))
        else:
            earlier_keys = [i for i, t in enumerate(times) if t < now - _SAME_TIME]
            self._tool.choose(max(earlier_keys, default=0))

    def draw_track(self, rect: Rect, scale: float) -> bool:
        previous = self._tool.displayed_state
        track = Track(rect, scale)
        duration = max(self._tool.path.duration, 1e-6)
        if self._tool.path.keys:
            self._handle_pointer(track, duration)
        with track.drawing() as draw:
            if self.empty_text:
                track.write(draw, self.empty_text)
                return False
            _draw_ticks(draw, track, duration)
            self._draw_keys(draw, track, duration)
            track.draw_cursor(draw, min(self._tool.time / duration, 1.0))
        return previous != self._tool.displayed_state

    def _handle_pointer(self, track: Track, duration: float) -> None:
        """Choose and move keyframes, or the playhead, with the pointer."""
        is_held = track.take_pointer("Path track")
        steps = track.take_arrows()
        if steps:
            self.step(steps)
        pointer_x = ui.pointer().x
        seconds = track.to_share(pointer_x) * duration
        if is_held and imgui.is_item_activated():
            self._dragged = self._key_at(pointer_x, track, duration)
            self._tool.stop()
            self._tool.is_open = True
            if self._dragged is not None:
                self._tool.choose(self._dragged % len(self._tool.path.keys))
        elif is_held and self._dragged is not None:
            button = imgui.MouseButton_.left
            if imgui.is_mouse_dragging(button, _MIN_DRAG * track.scale):
                self._tool.move_key(self._dragged, seconds)
        if not is_held:
            self._dragged = None
        elif self._dragged is None:
            self._tool.seek(seconds)

    def _key_at(self, x: float, track: Track, duration: float) -> int | None:
        """Return the index of the keyframe under a column of the screen."""
        times = self._tool.path.times
        distances = [abs(track.to_x(time / duration) - x) for time in times]
        nearest = min(distances)
        if nearest >= _KEY_REACH * track.scale:
            return None
        return distances.index(nearest)

    def _draw_keys(self, draw: imgui.ImDrawList, track: Track, duration: float) -> None:
        path = self._tool.path
        times = path.times
        # Of more keyframes there are several in each pixel.
        if len(times) > MAX_KEYS + 1:
            return
        chosen_key = self._tool.chosen_key
        for index, time in enumerate(times):
            is_chosen = chosen_key is not None and index % len(path.keys) == chosen_key
            color = theme.TEXT if is_chosen else theme.ACCENT
            track.draw_key(draw, time / duration, color)


def _draw_ticks(draw: imgui.ImDrawList, track: Track, duration: float) -> None:
    """Draw round times at the track's lower edge."""
    seconds_apart = _TICK_DISTANCE * track.scale * duration / track.span
    step = round_seconds(max(seconds_apart, 0.1))
    count = min(int(duration / step + 1e-6) + 1, _MAX_TICKS)
    for index in range(count):
        track.draw_tick(draw, index * step / duration, f"{index * step:g} s")
