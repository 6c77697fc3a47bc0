"""The order of the training cameras in the panel: by number, or the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.quantities import psnr_text
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.progress import draw_progress
from splatview_viewer.ui.words import write, write_right

if TYPE_CHECKING:
    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.scene_view.frustums import Frustums

_ROWS = 5
"""The worst photographs that are listed."""
_ROW_HEIGHT = 26.0
_PSNR_WIDTH = 70.0
_ORDERS = {False: "Number", True: "Worst first"}


def draw_order(tool: Frustums, cameras: CameraSet) -> None:
    """Draw the button that goes to the worst photograph, the order, and the worst."""
    survey = tool.survey
    tip = "Measure all photographs, and look through the camera of the worst one"
    reason = tool.reason_no_worst()
    title = "Go to the worst photograph"
    if ui.buttons("", [title], [tip], ["image"], [reason]) == 0:
        tool.go_to_worst()
    tip = "Order of the cameras for Page up and Page down: by number, or by PSNR"
    is_by_psnr = ui.segments("Order", tip, survey.is_by_psnr, _ORDERS)
    if is_by_psnr != survey.is_by_psnr:
        tool.order_by_psnr(is_by_psnr)
    if survey.is_running:
        _draw_running(tool)
    elif survey.is_by_psnr and not survey.is_current and survey.psnrs:
        _draw_outdated(tool)
    if survey.is_by_psnr:
        for index in survey.worst_first[:_ROWS]:
            if index < len(cameras):
                _draw_row(tool, cameras, index)


def _draw_running(tool: Frustums) -> None:
    """Draw how many photographs were measured, and a button that gives up."""
    survey = tool.survey
    gap = theme.ROW_GAP * theme.scale()
    width = imgui.get_content_region_avail().x
    draw_progress(survey.progress, f"Measured {survey.count_words}", width * 0.68 - gap)
    imgui.same_line(0, gap)
    button_width = imgui.get_content_region_avail().x / theme.scale()
    if controls.button("Cancel", "close", name="Cancel##survey", width=button_width):
        survey.cancel()


def _draw_outdated(tool: Frustums) -> None:
    """Say that the scene is another one by now, and offer to measure it."""
    pressed = ui.buttons(
        "",
        ["Measure again"],
        ["The scene has changed since its photographs were measured"],
        ["redo"],
    )
    if pressed == 0:
        tool.order_by_psnr(True)


def _draw_row(tool: Frustums, cameras: CameraSet, index: int) -> None:
    """Draw a photograph of the list; a click looks through its camera."""
    scale = theme.scale()
    width = imgui.get_content_region_avail().x
    target = controls.item(f"photograph {index}", width, _ROW_HEIGHT * scale)
    is_chosen = tool.through.index == index
    ground = None
    color = theme.TEXT
    if is_chosen:
        ground = theme.CHOSEN_GROUND
        color = theme.ON_CHOSEN
    controls.draw_ground(target, ground)
    controls.tip(f"Look through camera {index}")
    x = target.x + 8 * scale
    middle = target.middle[1]
    name_width = width - (_PSNR_WIDTH + 16) * scale
    # Numbers of less digits end below those of more.
    missing_digits = len(str(len(cameras) - 1)) - len(str(index))
    x += missing_digits * imgui.calc_text_size("0").x
    write(ui.fitted(cameras.label(index), name_width), x, middle, color)
    text = psnr_text(tool.survey.psnrs[index]).removesuffix(" PSNR")
    write_right(text, target.x + width - 8 * scale, middle, color)
    if target.pressed and not is_chosen:
        tool.choose(index)
