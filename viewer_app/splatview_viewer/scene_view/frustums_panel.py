"""The bar over the picture and the panel's part "Training cameras"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.scene_view.photo_order import draw_order
from splatview_viewer.ui import boards, choices, controls, lettering, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.render.cameras.content import CamerasContent
    from splatview_viewer.scene_view.frustums import Frustums
    from splatview_viewer.scene_view.state import TrainingDisplay

COMPARISONS = {
    "render": "Render",
    "photo": "Photo",
    "wipe": "Wipe",
    "side": "Beside",
    "error": "Error",
}
"""The values of `TrainingDisplay.comparison` and their labels."""
_TIPS = {
    "render": "Only what is rendered",
    "photo": "The photograph over it",
    "wipe": "The photograph right of a line that you drag",
    "side": "Both, side by side",
    "error": "How far they are apart: black is equal",
}
_WIDE = 860.0
"""Points of width from which the bar has room for long names."""
_LEAVE_WIDTH = 84.0
"""Points."""
_SEGMENTS_WIDTH = 330.0
_MEDIUM = 430.0
"""Points of width from which the bar has room for names at all."""


def draw_bar(
    tool: Frustums, cameras: CameraSet, index: int, rect: Rect, scale: float
) -> None:
    """Draw the bar of the camera that is looked through."""
    padding = 8 * scale
    gap = theme.ROW_GAP * scale
    has_names = rect.width >= _MEDIUM * scale
    with boards.board(f"cameras {id(tool)}", rect, (padding, 0), theme.BAR) as is_open:
        if not is_open:
            return
        imgui.set_cursor_pos_y((rect.height - theme.ROW_HEIGHT * scale) / 2)
        _draw_step(tool, "back", "camera before", -1, "The camera before (Page up)")
        imgui.same_line(0, 2 * scale)
        _draw_step(tool, "step", "camera after", 1, "The camera after (Page down)")
        imgui.same_line(0, gap)
        if has_names:
            name_width = 220 if rect.width >= _WIDE * scale else 110
            imgui.align_text_to_frame_padding()
            lettering.show(ui.fitted(cameras.label(index), name_width * scale))
            imgui.same_line(0, 2 * gap)
        _draw_comparison(tool, rect, scale)
        right = rect.width - padding - _LEAVE_WIDTH * scale
        psnr = tool.through.meter.text
        if has_names and psnr:
            imgui.same_line(right - imgui.calc_text_size(psnr).x - 2 * gap)
            imgui.align_text_to_frame_padding()
            imgui.text(psnr)
            controls.tip(
                "Peak signal-to-noise ratio of the whole photograph and what is "
                "rendered at its size"
            )
        imgui.same_line(right)
        hint = "Back to where you were (Escape)"
        if controls.button(
            "Leave", "close", name="Leave##bar", width=_LEAVE_WIDTH, hint=hint
        ):
            tool.leave()


def _draw_step(
    tool: Frustums, icon: str, name: str, camera_step: int, hint: str
) -> None:
    if controls.icon_button(icon, name, side=theme.ROW_HEIGHT, hint=hint):
        tool.step(camera_step)


def _draw_comparison(tool: Frustums, rect: Rect, scale: float) -> None:
    """Draw the ways to compare, side by side where they have room."""
    comparison = tool.state.comparison
    if rect.width >= _WIDE * scale:
        choice = choices.segments(
            "comparison of the bar",
            comparison,
            COMPARISONS,
            list(_TIPS.values()),
            width=_SEGMENTS_WIDTH * scale,
        )
    else:
        imgui.set_next_item_width(112 * scale)
        choice = ui.pick(
            "comparison of the bar", _TIPS[comparison], comparison, COMPARISONS
        )
    if choice != comparison:
        tool.change(comparison=choice)


def state_words(tool: Frustums, content: CamerasContent) -> str:
    """Return the cameras' number and what is seen of them: "30, shown"."""
    count = f"{len(content.cameras or ()):,}"
    if content.hints.texts:
        return f"{count}, doubtful"
    if tool.through.index is not None:
        return f"{count}, through {tool.through.index}"
    if tool.state.shown:
        return f"{count}, shown"
    return f"{count}, hidden"


def draw_panel(tool: Frustums, content: CamerasContent) -> None:
    """Draw the section "Training cameras"."""
    cameras = content.cameras
    assert cameras is not None
    for text in content.hints.texts:
        ui.wrapped(text, theme.FAULT)
    draw_order(tool, cameras)
    state = _draw_display(tool.state, cameras)
    tool.view.change(training=state)
    _draw_follow(tool, content)
    _draw_index(tool, len(cameras))
    if tool.through.index is not None:
        state = _draw_photo_controls(tool.state, tool.through.meter.text)
        tool.view.change(training=state)
        _draw_steps(tool)


def _draw_follow(tool: Frustums, content: CamerasContent) -> None:
    """Draw the box that follows the camera of the training."""
    if content.current is None:
        return
    tip = f"Look through the camera that is trained with, now {content.current}"
    is_following = ui.check("Follow", tip, tool.is_following)
    if is_following != tool.is_following:
        tool.follow(is_following)


def _draw_steps(tool: Frustums) -> None:
    """Draw the buttons to other cameras, and back to where the view looked before."""
    pressed = ui.buttons(
        "",
        ["Previous", "Next", "Leave"],
        [
            "The camera before (Page up)",
            "The camera after (Page down)",
            "Back to where you were (Escape)",
        ],
    )
    if pressed == 0:
        tool.step(-1)
    elif pressed == 1:
        tool.step(1)
    elif pressed == 2:
        tool.leave()


def _draw_display(state: TrainingDisplay, cameras: CameraSet) -> TrainingDisplay:
    """Draw how the frustums are shown; return the edited state."""
    is_shown = ui.check("Show", "The training's cameras in the scene", state.shown)
    state = replace(state, shown=is_shown)
    if not is_shown:
        return state
    if cameras.has_photos:
        tip = "The cameras' photographs in their frustums"
        state = replace(state, pictures=ui.check("Photos", tip, state.pictures))
    size = ui.slider(
        "Size", "Size of the frustums", state.size, (0.1, 10.0), "%.2f", reset=1.0
    )
    return replace(state, size=size)


def _draw_photo_controls(state: TrainingDisplay, psnr: str) -> TrainingDisplay:
    """Draw the comparison with the photograph; return the edited state."""
    comparison = choices.grid("comparison", state.comparison, COMPARISONS, 5, _TIPS)
    state = replace(state, comparison=comparison)
    if psnr:
        ui.row("PSNR")
        imgui.align_text_to_frame_padding()
        imgui.text(psnr.removesuffix(" PSNR"))
    if comparison == "wipe":
        position = ui.slider(
            "Line",
            "Where the photograph begins, which the line in the picture moves as well",
            state.divider_position,
            (0.0, 1.0),
            "%.2f",
            reset=0.5,
        )
        return replace(state, divider_position=position)
    if comparison == "photo":
        opacity = ui.slider(
            "Opacity",
            "Of the photograph over the scene",
            state.opacity,
            (0.0, 1.0),
            "%.2f",
            reset=1.0,
        )
        return replace(state, opacity=opacity)
    if comparison == "error":
        gain = ui.slider(
            "Amplify",
            "Factor on the difference from the photograph",
            state.gain,
            (1.0, 32.0),
            "%.1f \u00d7",
            reset=4.0,
        )
        return replace(state, gain=gain)
    return state


def _draw_index(tool: Frustums, count: int) -> None:
    """Draw the field for the number of a camera to look through."""
    ui.row("Look through")
    flags = imgui.InputTextFlags_.enter_returns_true
    is_entered, index = imgui.input_int("##camera", tool.last_index, 1, 10, flags)
    controls.tip(f"The number of a camera, 0 to {count - 1:,}, and Enter")
    if is_entered and index != tool.through.index and 0 <= index < count:
        tool.choose(index)
