"""The time area below the panes: a transport, and a lane each for training and path.

Its lanes are those of the active pane. The transport is for the chosen one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.lane import EmptyLane
from splatview_viewer.core.screen import Rect
from splatview_viewer.shell.run_state import run_state
from splatview_viewer.shell.runs import told_entry
from splatview_viewer.ui import controls, icons, lettering, theme
from splatview_viewer.ui.boards import board
from splatview_viewer.ui.sides import draw_badge
from splatview_viewer.ui.tracks import Track
from splatview_viewer.ui.widgets import fitted, pointer
from splatview_viewer.ui.words import write, write_right

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.lane import Lane, LaneButton
    from splatview_viewer.shell.user import User

_NO_LANES: tuple[Lane, ...] = (
    EmptyLane("Training", "training", "Snapshots of a training appear here"),
    EmptyLane("Path", "film", "Keyframes of a camera path appear here", "Key"),
)
"""The lanes of what has none."""
_MARGIN = 10.0
"""Points from the left and right edge to what is there."""
_LANE_TOPS = (10.0, 46.0)
_LANE_HEIGHT = 30.0
_NAME_LEFT = 134.0
_NAME_WIDTH = 96.0
_NAME_GAP = 6.0
"""Points between a lane's name and its track."""
_RIGHT_WIDTH = 140.0
"""Points from the end of a track to the right margin."""
_NARROW = 560.0
"""Points of width below which lanes have no captions, and icons for names."""
_BUTTON = (60.0, 26.0)
"""Points of the button at the right end of a lane."""
_SEEN_THROUGH = ImVec4(22 / 255, 24 / 255, 28 / 255, 0.92)
"""The ground over a picture, the same in both themes."""
_FULL_HEIGHT = 80.0
"""Points of height from which there is room for the lanes."""
_EDGE = 6.0
"""Points of the upper edge that fold the time area."""


def draw_time_area(user: User, rect: Rect, scale: float) -> bool:
    """Draw the time area; return True to draw the picture again."""
    if not rect.height:
        return False
    is_phone = user.interface.zones.form == "phone"
    ground = theme.BAR
    if is_phone:
        ground = _SEEN_THROUGH
    with board("time", rect, color=ground) as is_open:
        if not is_open:
            return False
        area = _LaneArea(user, rect, scale)
        if is_phone:
            with theme.over_picture():
                return area.draw_strip()
        _draw_upper_line(rect)
        if rect.height < _FULL_HEIGHT * scale:
            area.draw_folded()
            return False
        return area.draw_lanes()


def lanes_of(user: User) -> Sequence[Lane]:
    """Return the lanes of the active pane; two empty ones where it has none.

    What has none itself, such as a plot, has that of its run's training.
    """
    active = user.layout.active
    lanes = active.lanes()
    if lanes:
        return lanes
    record = active.record_view()
    if record is None:
        return _NO_LANES
    return [*record.view.lanes()[:1], *_NO_LANES[1:]]


def lane_of_command(name: str) -> str | None:
    """Return the name of the lane that a view's command is about: "path.key"."""
    return {"path": "Path", "history": "Training"}.get(name.partition(".")[0])


def _button_of(lane: Lane, user: User) -> LaneButton | None:
    """Return the button of a lane: "Live" is "Last" where nothing new comes."""
    button = lane.button
    if button is None or button.on is None:
        return button
    if run_state(told_entry(user), time.time()).live == "Live":
        return button
    return replace(button, text="Last", on=None, tip="The newest snapshot (End)")


def chosen_lane(user: User) -> Lane:
    """Return the lane that the transport is for.

    That is the one that the user chose, else the first that has something.
    """
    return _lane_of_transport(lanes_of(user), user)


def _lane_of_transport(lanes: Sequence[Lane], user: User) -> Lane:
    """Return the one of these lanes that the transport is for."""
    for lane in lanes:
        if lane.name == user.interface.state.lane:
            return lane
    for lane in lanes:
        if not lane.empty_text:
            return lane
    return lanes[0]


@dataclass(frozen=True, slots=True)
class _LaneArea:
    """The time area of one user in this frame."""

    user: User
    rect: Rect
    scale: float
    """Pixels per point."""

    def draw_lanes(self) -> bool:
        """Draw the transport and all lanes; return True to draw the picture again."""
        self._draw_fold_edge()
        lanes = lanes_of(self.user)
        played_lane = _lane_of_transport(lanes, self.user)
        if played_lane.has_transport:
            side = theme.BUTTON_HEIGHT * self.scale
            middle = self.rect.y + self.rect.height / 2
            self._draw_transport(played_lane, middle - side / 2)
        changed = False
        for lane, top in zip(lanes, _LANE_TOPS, strict=False):
            y = round(self.rect.y + top * self.scale)
            is_chosen = lane is played_lane and lane.has_transport
            changed |= self._draw_lane(lane, y, is_chosen=is_chosen)
        return changed

    def draw_folded(self) -> None:
        """Draw the handle, play and where the chosen lane is; a click opens all."""
        lane = chosen_lane(self.user)
        side = min(22 * self.scale, self.rect.height)
        y = self.rect.y + (self.rect.height - side) / 2
        left = self.rect.x + _MARGIN * self.scale
        if lane.has_transport:
            imgui.set_cursor_screen_pos(ImVec2(left, y))
            self._draw_play(lane, side / self.scale)
            left += 30 * self.scale
        imgui.set_cursor_screen_pos(ImVec2(left, self.rect.y))
        item = controls.item(
            "time handle", self.rect.x + self.rect.width - left, self.rect.height
        )
        controls.tip("Open the time area (T)")
        draw = imgui.get_window_draw_list()
        _draw_handle(draw, self.rect, _ink(item.hovered))
        caption = lane.caption or lane.empty_text
        width = self.rect.width / 2 - (left - self.rect.x) - 40 * self.scale
        with theme.font_size(theme.SMALL_SIZE):
            text = f"{lane.name}: {caption}"
            x = left + 4 * self.scale
            write(text, x, item.middle[1], theme.DIM, max(width, 1))
        if item.pressed:
            self.user.do(self.user.fold_time)

    def draw_strip(self) -> bool:
        """Draw play, track and button of the chosen lane, as a phone has them."""
        lane = chosen_lane(self.user)
        scale = self.scale
        left = round(self.rect.x + 8 * scale)
        if lane.has_transport:
            side = min(44 * scale, self.rect.height)
            imgui.set_cursor_screen_pos(ImVec2(self.rect.x + 4 * scale, self.rect.y))
            self._draw_play(lane, side / scale, flat=True)
            left += round(side)
        button_width = 72 * scale
        right = round(self.rect.x + self.rect.width - button_width - 4 * scale)
        height = round(min(28 * scale, self.rect.height))
        y = self.rect.y + (self.rect.height - height) // 2
        track = Rect(left, y, max(right - left, 1), height)
        changed = self._draw_track(lane, track)
        button = _button_of(lane, self.user)
        if button is not None:
            height = min(36 * scale, self.rect.height)
            y = self.rect.y + (self.rect.height - height) / 2
            size = (button_width, height)
            self._draw_button(lane, button, (right + 4 * scale, y), size, flat=True)
        return changed

    # -- parts -------------------------------------------------------------------------

    def _draw_transport(self, lane: Lane, y: float) -> None:
        """Draw back, play and on for the chosen lane, beside each other at a pixel y."""
        x = self.rect.x + _MARGIN * self.scale
        side = theme.BUTTON_HEIGHT * self.scale
        gap = 2 * self.scale
        imgui.set_cursor_screen_pos(ImVec2(x, y))
        back = f"{lane.name}: the one before"
        if controls.icon_button("back", "time back", reason=lane.reason, hint=back):
            lane.step(-1)
        imgui.set_cursor_screen_pos(ImVec2(x + side + gap, y))
        self._draw_play(lane, theme.BUTTON_HEIGHT, width=36)
        imgui.set_cursor_screen_pos(ImVec2(x + side + 2 * gap + 36 * self.scale, y))
        on = f"{lane.name}: the next one"
        if controls.icon_button("step", "time on", reason=lane.reason, hint=on):
            lane.step(1)

    def _draw_play(
        self, lane: Lane, side: float, *, width: float = 0.0, flat: bool = False
    ) -> None:
        """Draw the button that plays a lane, at imgui's cursor; sizes are points."""
        verb = "Play"
        if lane.playing:
            verb = "Stop"
        ground: ImVec4 | None = theme.FIELD
        points = icons.SIZE
        if flat:
            ground = None
            points = 18
        enabled = lane.reason is None
        size = ((width or side) * self.scale, side * self.scale)
        item = controls.item("time play", *size, enabled=enabled)
        controls.draw_ground(item, ground)
        draw = imgui.get_window_draw_list()
        icons.draw(draw, verb.lower(), item.middle, _ink(enabled), points)
        controls.tip(lane.reason or f"{verb} {lane.name.lower()} (P)")
        if item.pressed and enabled:
            lane.play(not lane.playing)

    def _draw_lane(self, lane: Lane, y: int, *, is_chosen: bool) -> bool:
        """Draw a lane from a pixel y on; return True to draw the picture again."""
        scale = self.scale
        is_narrow = self.rect.width < _NARROW * scale
        name_width = _NAME_WIDTH
        right_width = _RIGHT_WIDTH
        if is_narrow:
            name_width = _LANE_HEIGHT
            right_width = _BUTTON[0] + 6
        name_left = _MARGIN
        if lane.has_transport:
            name_left = _NAME_LEFT
        x = self.rect.x + name_left * scale
        self._draw_name(lane, (x, y), name_width, is_chosen=is_chosen)
        left = round(x + (name_width + _NAME_GAP) * scale)
        right = self.rect.x + self.rect.width - (_MARGIN + right_width) * scale
        height = round(_LANE_HEIGHT * scale)
        track = Rect(left, y, max(round(right) - left, 1), height)
        changed = self._draw_track(lane, track)
        end = self.rect.x + self.rect.width - _MARGIN * scale
        button = _button_of(lane, self.user)
        if button is not None:
            size = (_BUTTON[0] * scale, _BUTTON[1] * scale)
            corner = (end - size[0], y + (height - size[1]) / 2)
            self._draw_button(lane, button, corner, size)
            end = corner[0] - 8 * scale
        if not is_narrow:
            self._draw_caption(lane, end, right + 6 * scale, y + height / 2)
        return changed

    def _draw_name(
        self,
        lane: Lane,
        corner: tuple[float, float],
        width: float,
        *,
        is_chosen: bool,
    ) -> None:
        """Draw the field that chooses a lane, `width` points wide."""
        scale = self.scale
        imgui.set_cursor_screen_pos(ImVec2(*corner))
        name = f"lane {lane.name}"
        item = controls.item(
            name, width * scale, _LANE_HEIGHT * scale, enabled=lane.has_transport
        )
        if lane.has_transport:
            if item.pressed:
                self.user.interface.state.lane = lane.name
            controls.tip(f"Play, back and on are for this lane: {lane.name.lower()}")
        draw = imgui.get_window_draw_list()
        ink = theme.DIM
        ground = None
        if is_chosen:
            ink = theme.ON_CHOSEN
            ground = theme.CHOSEN_GROUND
        elif item.hovered:
            ink = theme.TEXT
            ground = theme.HOVER
        if ground is not None:
            rounding = theme.FIELD_ROUNDING * scale
            draw.add_rect_filled(item.low, item.high, theme.u32(ground), rounding)
        middle = item.middle[1]
        if lane.icon in ("A", "B"):
            draw_badge(lane.icon, item.x + 8 * scale, middle)
        else:
            icons.draw(
                draw, lane.icon, (item.x + 18 * scale, middle), ink, icons.TEXT_SIZE
            )
        if width < _NAME_WIDTH:
            return
        font = theme.font_size(theme.FONT_SIZE)
        if is_chosen:
            font = theme.bold()
        with font:
            write(lane.name, item.x + 34 * scale, middle, ink)

    def _draw_track(self, lane: Lane, rect: Rect) -> bool:
        """Draw the track of a lane, which is the chosen one once it is touched."""
        if lane.empty_text:
            track = Track(rect, self.scale)
            with track.drawing() as draw:
                track.write(draw, fitted(lane.empty_text, rect.width - 24 * self.scale))
            return False
        changed = lane.draw_track(rect, self.scale)
        point = pointer()
        is_inside = rect.contains(point.x, point.y) and imgui.is_window_hovered()
        if is_inside and imgui.is_mouse_clicked(imgui.MouseButton_.left):
            self.user.interface.state.lane = lane.name
        return changed

    def _draw_caption(
        self, lane: Lane, right: float, left: float, middle: float
    ) -> None:
        """Write where a lane is, up to a pixel x."""
        if not lane.caption:
            return
        with theme.font_size(theme.SMALL_SIZE):
            text = fitted(lane.caption, right - left)
            write_right(text, right, middle, theme.DIM)

    def _draw_button(
        self,
        lane: Lane,
        button: LaneButton,
        corner: tuple[float, float],
        size: tuple[float, float],
        *,
        flat: bool = False,
    ) -> None:
        """Draw the button of a lane: an icon or the dot of its state, and a text."""
        scale = self.scale
        imgui.set_cursor_screen_pos(ImVec2(*corner))
        enabled = button.reason is None
        item = controls.item(button.text, *size, enabled=enabled)
        ground: ImVec4 | None = theme.FIELD
        if flat:
            ground = None
        controls.draw_ground(item, ground)
        has_sign = bool(button.icon) or button.on is not None
        sign_width = 0.0
        if has_sign:
            sign_width = 20 * scale
        text_width = lettering.measure(button.text).x
        x = item.x + max((item.width - sign_width - text_width) / 2, 2 * scale)
        middle = item.middle[1]
        _draw_button_sign(button, x, middle)
        write(button.text, x + sign_width - 2 * scale, middle, _ink(enabled))
        controls.tip(button.reason or button.tip)
        if item.pressed and enabled:
            self.user.interface.state.lane = lane.name
            button.press()

    def _draw_fold_edge(self) -> None:
        """Draw the handle at the upper edge: a click folds the time area."""
        imgui.set_cursor_screen_pos(ImVec2(self.rect.x, self.rect.y))
        item = controls.item("time handle", self.rect.width, _EDGE * self.scale)
        controls.tip("Fold the time area (T)")
        if item.hovered:
            edge = Rect(self.rect.x, self.rect.y, self.rect.width, round(item.height))
            _draw_handle(imgui.get_window_draw_list(), edge, theme.TEXT)
        if item.pressed:
            self.user.do(self.user.fold_time)


def _ink(is_lit: bool) -> ImVec4:
    """Return the colour of letters: faint where they are not lit."""
    if is_lit:
        return theme.TEXT
    return theme.FAINT


def _draw_button_sign(button: LaneButton, x: float, middle: float) -> None:
    """Draw the icon of a lane's button or the dot of its state, from a pixel x on."""
    scale = theme.scale()
    draw = imgui.get_window_draw_list()
    if button.on is not None:
        color = theme.FAINT
        if button.on:
            color = theme.SUCCESS
        dot = ImVec2(x + 5 * scale, middle)
        draw.add_circle_filled(dot, 4 * scale, theme.u32(color), 16)
    elif button.icon:
        color = theme.FAINT
        if button.reason is None:
            color = theme.DIM
        icons.draw(draw, button.icon, (x + 6 * scale, middle), color, icons.TEXT_SIZE)


def _draw_upper_line(rect: Rect) -> None:
    """Draw the line between the panes and the time area."""
    right = ImVec2(rect.x + rect.width, rect.y)
    draw = imgui.get_window_draw_list()
    draw.add_line(ImVec2(rect.x, rect.y), right, theme.u32(theme.LINE))


def _draw_handle(draw: imgui.ImDrawList, rect: Rect, color: ImVec4) -> None:
    """Draw the short bar of a handle in the middle of a rectangle."""
    scale = theme.scale()
    x = rect.x + rect.width / 2
    y = rect.y + rect.height / 2
    draw.add_rect_filled(
        ImVec2(x - 22 * scale, y - 2 * scale),
        ImVec2(x + 22 * scale, y + 2 * scale),
        theme.u32(color),
        2 * scale,
    )
