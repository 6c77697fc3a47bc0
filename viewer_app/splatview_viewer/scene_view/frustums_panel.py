"""The bar over the picture and the panel's part "Training cameras"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import theme
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
    "side": "Side by side",
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
_WIDE = 760.0
"""Points of width from which the bar has room for long names."""
_MEDIUM = 430.0
"""Points of width from which the bar has room for names at all."""


def draw_bar(
    tool: Frustums, cameras: CameraSet, index: int, rect: Rect, scale: float
) -> None:
    """Draw the bar of the camera that is looked through."""
    padding = 10 * scale
    gap = 6 * scale
    has_names = rect.width >= _MEDIUM * scale
    with ui.board(f"cameras {id(tool)}", rect, (padding, 0), theme.BAR) as is_open:
        if not is_open:
            return
        imgui.set_cursor_pos_y((rect.height - imgui.get_frame_height()) / 2)
        _draw_step(tool, "<", -1, "The camera before (Page up)", scale)
        imgui.same_line(0, gap)
        _draw_step(tool, ">", 1, "The camera after (Page down)", scale)
        imgui.same_line(0, gap)
        if has_names:
            name_width = 220 if rect.width >= _WIDE * scale else 110
            imgui.align_text_to_frame_padding()
            imgui.text(ui.fitted(cameras.label(index), name_width * scale))
            imgui.same_line(0, 2 * gap)
        _draw_comparison(tool, scale)
        button_width = imgui.calc_text_size("Leave").x
        button_width += 2 * imgui.get_style().frame_padding.x
        right = rect.width - padding - button_width
        psnr = tool.through.meter.text
        if has_names and psnr:
            imgui.same_line(right - imgui.calc_text_size(psnr).x - 3 * gap)
            imgui.align_text_to_frame_padding()
            imgui.text(psnr)
            imgui.set_item_tooltip(
                "Peak signal-to-noise ratio of the whole photograph and what is "
                "rendered at its size"
            )
        imgui.same_line(right)
        if imgui.button("Leave"):
            tool.leave()
        imgui.set_item_tooltip("Back to where you were (Escape)")


def _draw_step(tool: Frustums, label: str, step: int, tip: str, scale: float) -> None:
    if imgui.button(label, ImVec2(26 * scale, 0)):
        tool.step(step)
    imgui.set_item_tooltip(tip)


def _draw_comparison(tool: Frustums, scale: float) -> None:
    imgui.set_next_item_width(112 * scale)
    keys = list(COMPARISONS)
    labels = list(COMPARISONS.values())
    _, choice = imgui.combo("##comparison", keys.index(tool.state.comparison), labels)
    tool.change(comparison=keys[choice])
    imgui.set_item_tooltip(_TIPS[keys[choice]])


def draw_hints(content: CamerasContent) -> None:
    """Draw what seems to be wrong with the published cameras."""
    for text in content.hints.texts:
        ui.wrapped(text, theme.FAULT)


def draw_panel(tool: Frustums, content: CamerasContent) -> None:
    """Draw the panel's part."""
    cameras = content.cameras
    assert cameras is not None
    state = _draw_display(tool.state, cameras)
    if tool.through.index is not None:
        state = _draw_photo_controls(state, tool.through.meter.text)
    tool.view.change(training=state)
    if content.current is not None:
        tip = f"Look through the camera that is trained with, now {content.current}"
        is_following = ui.check("Follow", tip, tool.is_following)
        if is_following != tool.is_following:
            tool.follow(is_following)
    _draw_index(tool, len(cameras))


def _draw_display(state: TrainingDisplay, cameras: CameraSet) -> TrainingDisplay:
    """Draw how the frustums are shown; return the edited state."""
    is_shown = ui.check("Show", "The training's cameras in the scene", state.shown)
    state = replace(state, shown=is_shown)
    if not is_shown:
        return state
    if cameras.photos or any(cameras.paths):
        tip = "The cameras' photographs in their frustums"
        state = replace(state, pictures=ui.check("Photos", tip, state.pictures))
    size = ui.slider(
        "Size", "Size of the frustums", state.size, (0.1, 10.0), "%.2f", reset=1.0
    )
    return replace(state, size=size)


def _draw_photo_controls(state: TrainingDisplay, psnr: str) -> TrainingDisplay:
    """Draw the comparison with the photograph; return the edited state."""
    comparison = ui.choice(
        "Compare",
        "The scene with the photograph of the camera that is looked through",
        state.comparison,
        COMPARISONS,
    )
    state = replace(state, comparison=comparison)
    if psnr:
        ui.row("PSNR")
        imgui.text(psnr.removeprefix("PSNR "))
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
    imgui.set_item_tooltip(f"The number of a camera, 0 to {count - 1}, and Enter")
    if is_entered and index != tool.through.index and 0 <= index < count:
        tool.is_following = False
        tool.enter(index)
