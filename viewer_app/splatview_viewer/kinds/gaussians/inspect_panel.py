"""The numbers of the inspected Gaussian: the section "Inspect"."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.ui import controls, plots, theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.color_field import draw_swatch
from splatview_viewer.ui.folds import draw_small_fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.kinds.gaussians.inspect import Inspect
    from splatview_viewer.kinds.gaussians.recorded_values import Course
    from splatview_viewer.render.picking import GaussianValues

_CHANNELS = ("R", "G", "B")
_CURVE_HEIGHT = 22
"""Points that a curve of past values is high."""


class _Curve(NamedTuple):
    """A number of which the past values are plotted."""

    label: str
    read: Callable[[Sequence[GaussianValues]], list[float]]
    """Returns the numbers of the versions, the newest last."""
    tip: str = ""


def _opacities(history: Sequence[GaussianValues]) -> list[float]:
    return [values.opacity for values in history]


def _sizes(history: Sequence[GaussianValues]) -> list[float]:
    return [float(values.scale.max()) for values in history]


def _distances(history: Sequence[GaussianValues]) -> list[float]:
    start = history[0].mean
    return [float(np.linalg.norm(values.mean - start)) for values in history]


def _energies(history: Sequence[GaussianValues]) -> list[float]:
    return [sum(values.energies) for values in history]


_CURVES = (
    _Curve("Opacity", _opacities),
    _Curve("Size", _sizes, "Its largest standard deviation, world units"),
    _Curve(
        "Moved",
        _distances,
        "How far it is from where it was at first, world units",
    ),
)
_ENERGY_CURVE = _Curve("SH energy", _energies)


def draw_panel(tool: Inspect) -> None:
    """Draw the panel's part."""
    _draw_index(tool)
    values = tool.values
    if tool.index is None:
        ui.wrapped("Alt + click a Gaussian, or choose Inspect (I).", theme.DIM)
        return
    if values is None:
        ui.wrapped("Reading", theme.DIM)
        return
    _draw_numbers(tool, values)
    quat = "  ".join(f"{component:.3f}" for component in values.quat)
    _draw_text("Rotation", quat, "Quaternion w, x, y, z")
    if values.energies:
        _draw_text(
            "SH energy",
            "  ".join(f"{energy:.3g}" for energy in values.energies),
            "Sum of squares of the coefficients of each degree, from 1 on:\n"
            "how much the colour depends on the view",
        )
    course = tool.course
    if len(course.values) > 1:
        _draw_curves(course)
    if draw_small_fold("Coefficients", "All coefficients of spherical harmonics"):
        _draw_coefficients(values)
    pressed = ui.buttons(
        "",
        ["Look at it", "Clear"],
        ["Move the camera to it", "Choose none (Escape)"],
        ["fit", "close"],
    )
    if pressed == 0:
        tool.fly_to_chosen()
    elif pressed == 1:
        tool.choose(None)


def _draw_index(tool: Inspect) -> None:
    """Draw the field for an index, and choose what the user enters."""
    ui.row("Index")
    enter = imgui.InputTextFlags_.enter_returns_true
    flags = enter | imgui.InputTextFlags_.chars_decimal
    text = "" if tool.index is None else str(tool.index)
    is_entered, typed = imgui.input_text_with_hint("##index", "None", text, flags)
    controls.tip("In the scene as it was published or saved. Type one and press Enter")
    if is_entered and typed != text:
        _choose_typed(tool, typed.strip())


def _choose_typed(tool: Inspect, text: str) -> None:
    """Choose the Gaussian of a typed index, or say why there is none."""
    if not text:
        tool.choose(None)
        return
    summary = tool.view.data.summary
    index = int(text) if text.isdecimal() else -1
    if summary is not None and not 0 <= index < summary.count:
        tool.view.host.notify(
            f"{text[:20]} is no index: this scene's go from 0 to {summary.count - 1:,}"
        )
        return
    tool.choose(index)


def _draw_numbers(tool: Inspect, values: GaussianValues) -> None:
    """Draw position, size, opacity and colour, one a line."""
    position = "  ".join(_position_text(component) for component in values.mean)
    _draw_text("Position", position, "World units")
    _draw_text(
        "Size",
        "  ".join(f"{length:.3g}" for length in values.scale),
        "Standard deviations along its three axes, world units",
    )
    _draw_text("Opacity", f"{values.opacity:.3f}")
    _draw_color(values)
    hit = tool.hit
    if hit is not None and hit.index == tool.index:
        _draw_text(
            "Seen",
            f"{hit.weight:.0%} of the pixel",
            "Where you clicked it makes up so much of what is seen.\n"
            f"The surface is {hit.depth:.4g} away there",
        )


def _position_text(component: float) -> str:
    if abs(component) < 1e4:
        return f"{component:.4g}"
    return f"{component:.2f}"


def _draw_color(values: GaussianValues) -> None:
    _draw_label("Colour")
    side = imgui.get_text_line_height()
    red, green, blue = values.color
    draw = imgui.get_window_draw_list()
    draw_swatch(draw, imgui.get_cursor_screen_pos(), (red, green, blue), side)
    imgui.dummy(ImVec2(side, side))
    imgui.same_line()
    imgui.text_unformatted("  ".join(f"{channel:.2f}" for channel in values.color))


def _draw_label(label: str) -> None:
    start = imgui.get_cursor_pos_x()
    ui.dim(label)
    imgui.same_line(start + theme.LABEL_WIDTH * theme.scale())


def _draw_text(label: str, text: str, tip: str = "") -> None:
    _draw_label(label)
    imgui.text_unformatted(text)
    if tip:
        controls.tip(tip)


def _draw_coefficients(values: GaussianValues) -> None:
    """Draw a table of all coefficients of spherical harmonics, from degree 0 on."""
    rows = np.concatenate([values.sh0[None], values.shN])
    flags = imgui.TableFlags_.sizing_stretch_same.value | imgui.TableFlags_.row_bg.value
    if not imgui.begin_table("##coefficients", 1 + len(_CHANNELS), flags):
        return
    for name in ("", *_CHANNELS):
        imgui.table_next_column()
        ui.dim(name)
    for i, row in enumerate(rows.tolist()):
        degree = math.isqrt(i)
        order = i - degree * (degree + 1)
        imgui.table_next_column()
        ui.dim(f"{degree}, {order}")
        controls.tip("Degree and order")
        for value in row:
            imgui.table_next_column()
            imgui.text_unformatted(f"{value:.3f}")
    imgui.end_table()


def _draw_curves(course: Course) -> None:
    """Plot some of the numbers over time."""
    span = _span_of(course)
    ui.dim(f"In {span}")
    if course.first_step is not None:
        ui.wrapped(
            f"From step {course.first_step:,}, when the number of Gaussians changed",
            theme.DIM,
        )
    history = list(course.values)
    for curve in _CURVES:
        _draw_curve(curve, history, span)
    if history[-1].energies:
        _draw_curve(_ENERGY_CURVE, history, span)


def _span_of(course: Course) -> str:
    """Return of what the numbers are: of snapshots, or of versions since the choice."""
    if course.snapshot_count:
        return f"{course.snapshot_count} snapshots"
    return f"{len(course.values)} versions"


def _draw_curve(curve: _Curve, history: Sequence[GaussianValues], span: str) -> None:
    values = np.nan_to_num(np.array(curve.read(history)))
    low = float(values.min())
    high = float(values.max())
    margin = 0.05 * (high - low) or 1.0
    _draw_label(curve.label)
    width = imgui.get_content_region_avail().x
    height = _CURVE_HEIGHT * theme.scale()
    with plots.bare(
        curve.label,
        (width, height),
        (0, len(values) - 1),
        (low - margin, high + margin),
    ) as plot:
        if plot is not None:
            versions = np.arange(len(values), dtype=np.float64)
            plot.line("##curve", versions, values, theme.ACCENT, 1.4)
    lines = [
        curve.tip,
        f"{low:.4g} to {high:.4g}, now {values[-1]:.4g}",
        f"in {span}",
    ]
    controls.tip("\n".join(line for line in lines if line))
