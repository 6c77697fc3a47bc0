"""The plots of a stream of kind scalars, drawn with ImPlot inside an imgui frame."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui, implot

from splatview_viewer.geometry.controls import ZOOM_STEP
from splatview_viewer.kinds.scalars.columns import Axis, Columns, columns, limits, ticks
from splatview_viewer.kinds.scalars.words import value_text
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import board

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.scalars.curves import Curve
    from splatview_viewer.kinds.scalars.view import ScalarsView

_WIDE, _LOW, _HIGH = 430.0, 170.0, 360.0
"""Points: the width of a plot where there is room for several, and the least and the most height."""
_KEPT = 512
"""Curves whose columns are remembered."""
_X, _Y = implot.ImAxis_.x1.value, implot.ImAxis_.y1.value
_PLOT = (implot.Flags_.no_title | implot.Flags_.no_mouse_text | implot.Flags_.no_menus).value
_ON_DARK = ((0.45, 0.69, 0.98), (0.96, 0.69, 0.37), (0.46, 0.82, 0.57), (0.96, 0.55, 0.56), (0.74, 0.63, 0.97),
            (0.38, 0.80, 0.82), (0.91, 0.80, 0.42), (0.89, 0.60, 0.83))
_ON_LIGHT = ((0.10, 0.42, 0.80), (0.78, 0.40, 0.03), (0.09, 0.52, 0.25), (0.77, 0.18, 0.22), (0.43, 0.29, 0.76),
             (0.03, 0.49, 0.52), (0.54, 0.43, 0.02), (0.65, 0.22, 0.55))


def color_of(number: int) -> ImVec4:
    """The colour of a plot's curve of this number, for the theme in use."""
    colors = _ON_LIGHT if theme.PANEL.x > 0.5 else _ON_DARK
    return ImVec4(*colors[number % len(colors)], 1.0)


class Plots:
    """Draws one view's plots."""

    def __init__(self, view: ScalarsView) -> None:
        self._view = view
        self._context: Any = implot.create_context()
        self._x = implot.BoxedValue(), implot.BoxedValue()
        self._y: dict[str, tuple[implot.BoxedValue, implot.BoxedValue]] = {}
        self._columns: dict[tuple[Any, ...], tuple[Curve, Sequence[Columns]]] = {}
        self._changes = -1
        self._scale = 1.0

    def close(self) -> None:
        """Give back everything. Idempotent."""
        if self._context is not None:
            implot.destroy_context(self._context)
            self._context = None

    def draw(self, rect: Rect, scale: float) -> bool:
        """Draw all plots into `rect`, a window of imgui's. True when the picture has to be drawn again."""
        view = self._view
        implot.set_current_context(self._context)
        self._scale = scale
        if self._changes != view.content.changes or len(self._columns) > _KEPT:
            self._changes = view.content.changes
            self._columns.clear()
        pointer, view.pointer = view.pointer, None
        seen, window = (view.across, dict(view.up)), view.window()
        pad = imgui.get_style().window_padding
        with board(f"plots {id(view)}", rect, (pad.x, pad.y), scroll=True):
            plots = view.content.plots
            room = imgui.get_content_region_avail()
            gap = ImVec2(18 * scale, 12 * scale)
            across = view.settings.columns or max(1, min(round(room.x / (_WIDE * scale)), math.ceil(len(plots) ** 0.5)))
            rows = -(-len(plots) // across)
            width = (room.x - gap.x * (across - 1)) / across
            title = imgui.get_text_line_height_with_spacing()
            height = min(max((room.y - (gap.y + title) * rows) / rows, _LOW * scale), max(_HIGH * scale, room.y * 0.6))
            _style(scale)
            wheel = min(abs(imgui.get_io().mouse_wheel), 10.0)  # ImPlot asks only which way it turned
            implot.get_input_map().zoom_rate = 0.5 * (ZOOM_STEP**wheel - 1)
            imgui.push_style_var(imgui.StyleVar_.item_spacing, ImVec2(gap.x, imgui.get_style().item_spacing.y))
            for i, (name, curves) in enumerate(plots.items()):
                if i % across:
                    imgui.same_line()
                imgui.begin_group()
                _head(name, curves, width, scale)
                size = ImVec2(width, height)
                if imgui.is_rect_visible(size):
                    self._plot(name, curves, size, window, pointer)
                else:
                    imgui.dummy(size)
                imgui.end_group()
            imgui.pop_style_var()
        return view.pointer != pointer or seen != (view.across, view.up)

    def _plot(self, name: str, curves: Sequence[Curve], size: ImVec2, window: tuple[float, float],
              pointer: float | None) -> None:
        view, s = self._view, self._view.settings
        log_x = s.log_across and s.across != "clock"
        axis = Axis(*window, max(int(size.x), 8), log_x)
        drawn = [(curve, self._columns_of(curve, axis)) for curve in curves]
        low, high = view.up.get(name) or limits([c for _, cs in drawn for c in cs], axis, s.log_up, s.outliers)
        x, y = self._x, self._y.setdefault(name, (implot.BoxedValue(), implot.BoxedValue()))
        x[0].value, x[1].value, y[0].value, y[1].value = *window, low, high
        flags = _PLOT | (implot.Flags_.no_legend.value if len(curves) == 1 else 0)
        if not implot.begin_plot(f"##{name}", size, flags):
            return
        quiet = implot.AxisFlags_.no_highlight.value
        implot.setup_axis(_X, None, quiet)
        implot.setup_axis(_Y, None, quiet)
        if s.across == "clock":
            implot.setup_axis_scale(_X, implot.Scale_.time.value)
        elif log_x:
            implot.setup_axis_scale(_X, implot.Scale_.log10.value)
        if s.log_up:
            implot.setup_axis_scale(_Y, implot.Scale_.log10.value)
            if at := ticks(low, high):
                implot.setup_axis_ticks(_Y, at, [f"{value:g}" for value in at], False)
        if s.across == "time":
            implot.setup_axis_format(_X, "%g " + view.unit[1][:3].rstrip("su") if view.unit[0] > 1 else "%g s")
        implot.setup_axis_links(_X, *x)
        implot.setup_axis_links(_Y, *y)
        implot.setup_legend(implot.Location_.north_east.value)
        for i, (curve, parts) in enumerate(drawn):
            self._curve(curve, parts, color_of(i), len(curves) == 1)
        over_plot, over_y = implot.is_plot_hovered(), implot.is_axis_hovered(_Y)
        if over_plot:
            view.pointer = implot.get_plot_mouse_pos().x
        at = view.pointer if over_plot else pointer
        if at is not None and window[0] <= at <= window[1]:
            self._mark(curves, at, over_plot)
        boxed = imgui.is_mouse_released(imgui.MouseButton_.right) or over_y or name in view.up
        implot.end_plot()
        if (over_plot or over_y) and imgui.is_mouse_double_clicked(imgui.MouseButton_.left):
            view.across = None
            view.up.pop(name, None)
            return
        if _differ((x[0].value, x[1].value), window) and x[0].value < x[1].value:
            view.across = x[0].value, x[1].value
        if boxed and _differ((y[0].value, y[1].value), (low, high)) and y[0].value < y[1].value:
            view.up[name] = y[0].value, y[1].value

    def _columns_of(self, curve: Curve, axis: Axis) -> Sequence[Columns]:
        s = self._view.settings
        weight = self._smoothing(curve)
        key = id(curve), axis, s.across, weight
        found = self._columns.get(key)
        if found is None:
            smooth = self._view.content.smooth(curve, weight)
            found = self._columns[key] = curve, columns(curve, self._view.x_of(curve), smooth, axis)
        return found[1]

    def _smoothing(self, curve: Curve) -> float:
        """Only what was logged is smoothed."""
        return self._view.settings.smoothing if curve in self._view.content.curves.all else 0.0

    def _curve(self, curve: Curve, parts: Sequence[Columns], color: ImVec4, alone: bool) -> None:
        """The values, faint where they are smoothed, and over them the smoothed curve."""
        s, label = self._view.settings, f"##{curve.name}" if alone else curve.name.partition("/")[2] or curve.name
        raw = self._smoothing(curve) > 0
        floor = max(implot.get_plot_limits().y.min, 1e-300)
        for part in parts:
            if not len(part.x):
                continue
            value, smooth = part.value, part.smooth
            if s.log_up:  # what is not over 0 has no place there
                value, smooth = (np.where(v > 0, v, np.nan) for v in (value, smooth))
            if (band := part.band) is not None:
                x, low, high = band
                if s.log_up:
                    low, high = np.maximum(low, floor), np.maximum(high, floor)
                implot.plot_shaded(label, x, low, high, implot.Spec(fill_color=_faint(color, 0.20)))
            implot.plot_line(label, part.x, value, implot.Spec(line_color=_faint(color, 0.38 if raw else 1.0),
                                                               line_weight=(1.0 if raw else 1.6) * self._scale))
            if raw:
                implot.plot_line(label, part.x, smooth,
                                 implot.Spec(line_color=color, line_weight=1.8 * self._scale))
        if any(len(part.broken) for part in parts):
            self._broken(np.concatenate([part.broken for part in parts]))

    def _broken(self, at: np.ndarray) -> None:
        """Where a value is not finite: ticks along the upper edge."""
        implot.push_plot_clip_rect()
        draw, top, color = implot.get_plot_draw_list(), implot.get_plot_pos().y, theme.u32(theme.FAULT)
        low = implot.get_plot_limits().y.min
        last = -math.inf
        for x in at.tolist():
            px = implot.plot_to_pixels(x, max(low, 1e-300) if self._view.settings.log_up else low).x
            if px - last >= 1:
                draw.add_rect_filled(ImVec2(px - self._scale, top), ImVec2(px + self._scale, top + 6 * self._scale),
                                     color)
                last = px
        implot.pop_plot_clip_rect()

    def _mark(self, curves: Sequence[Curve], at: float, words: bool) -> None:
        """A line at the pointer through all plots, a dot on each curve, and in the one under it the numbers."""
        view, scale = self._view, self._scale
        implot.push_plot_clip_rect()
        draw, corner, size = implot.get_plot_draw_list(), implot.get_plot_pos(), implot.get_plot_size()
        anchor = implot.get_plot_limits().y.min
        x = implot.plot_to_pixels(at, anchor).x
        draw.add_line(ImVec2(x, corner.y), ImVec2(x, corner.y + size.y), theme.u32(theme.TEXT, 0.3), scale)
        lines: list[tuple[str, ImVec4]] = []
        for i, curve in enumerate(curves):
            row = _row_at(curve, view.x_of(curve), at)
            if row is None:
                continue
            if not lines:
                stamp = time.strftime("%H:%M:%S", time.localtime(float(curve["time"][row])))
                lines.append((f"step {curve['step'][row]:,.12g}   {stamp}", theme.DIM))
            weight = self._smoothing(curve)
            smooth = float(view.content.smooth(curve, weight)[row])
            value = float(curve["value"][row])
            text = value_text(value)
            if weight > 0:
                text = f"{value_text(smooth)}   ({text})"
            name = curve.name.partition("/")[2] or curve.name
            lines.append((text if len(curves) == 1 else f"{name}  {text}", color_of(i)))
            shown = smooth if math.isfinite(smooth) else value
            if math.isfinite(shown) and (shown > 0 or not view.settings.log_up):
                dot = implot.plot_to_pixels(float(view.x_of(curve)[row]), shown)
                draw.add_circle_filled(dot, 3.5 * scale, theme.u32(color_of(i)), 12)
        implot.pop_plot_clip_rect()
        if words and lines:
            _box(lines, ImVec2(x, imgui.get_mouse_pos().y), corner, size, scale)


def _row_at(curve: Curve, x: np.ndarray, at: float) -> int | None:
    """The row that tells about a place of the axis, of the newest run that has it."""
    for run in reversed(curve.runs):
        part = x[run]
        if part[0] <= at <= part[-1] or len(curve.runs) == 1:
            right = min(int(np.searchsorted(part, at)), len(part) - 1)
            near = right - 1 if right and at - part[right - 1] < part[right] - at else right
            return run.start + near
    return None


def _box(lines: Sequence[tuple[str, ImVec4]], at: ImVec2, corner: ImVec2, size: ImVec2, scale: float) -> None:
    draw, line, pad = imgui.get_window_draw_list(), imgui.get_text_line_height(), 8 * scale
    width = max(imgui.calc_text_size(text).x for text, _ in lines) + 2 * pad
    height = len(lines) * 1.15 * line + 2 * pad
    left = at.x + 12 * scale if at.x + 12 * scale + width < corner.x + size.x else at.x - 12 * scale - width
    top = min(max(at.y - height / 2, corner.y), corner.y + size.y - height)
    draw.add_rect_filled(ImVec2(left, top), ImVec2(left + width, top + height), theme.u32(theme.POPUP, 0.96), 5 * scale)
    for i, (text, color) in enumerate(lines):
        draw.add_text(ImVec2(left + pad, top + pad + i * 1.15 * line), theme.u32(color), text)


def _head(name: str, curves: Sequence[Curve], width: float, scale: float) -> None:
    """A plot's title, and on the right its newest value."""
    corner, draw, line = imgui.get_cursor_screen_pos(), imgui.get_window_draw_list(), imgui.get_text_line_height()
    right = value_text(curves[0].last) if len(curves) == 1 else ""
    taken = imgui.calc_text_size(right).x
    if broken := int(sum(curve["broken"].sum() for curve in curves)):
        words = f"{broken:,} not finite"
        before, taken = taken, taken + imgui.calc_text_size(words).x + (12 * scale if right else 0)
        draw.add_text(ImVec2(corner.x + width - taken, corner.y), theme.u32(theme.FAULT), words)
        draw.add_text(ImVec2(corner.x + width - before, corner.y), theme.u32(theme.TEXT), right)
        right = ""
    draw.push_clip_rect(corner, ImVec2(corner.x + max(width - taken - 8 * scale, 1), corner.y + 1.3 * line), True)
    draw.add_text(corner, theme.u32(theme.DIM), name)
    draw.pop_clip_rect()
    draw.add_text(ImVec2(corner.x + width - taken, corner.y), theme.u32(theme.TEXT), right)
    imgui.dummy(ImVec2(width, line))


def _differ(one: tuple[float, float], other: tuple[float, float]) -> bool:
    near = 1e-9 * max(abs(other[1] - other[0]), 1e-300)
    return abs(one[0] - other[0]) > near or abs(one[1] - other[1]) > near


def _faint(color: ImVec4, alpha: float) -> ImVec4:
    return ImVec4(color.x, color.y, color.z, color.w * alpha)


def _style(scale: float) -> None:
    """Plots as the theme has it."""
    style, c = implot.get_style(), implot.Col_
    style.use_local_time = style.use24_hour_clock = style.use_iso8601 = True
    style.plot_padding = style.label_padding = ImVec2(4 * scale, 4 * scale)
    style.legend_padding = style.legend_inner_padding = ImVec2(6 * scale, 4 * scale)
    style.plot_border_size = 0
    style.major_grid_size = style.minor_grid_size = ImVec2(scale, scale)
    style.minor_alpha = 0.35
    style.major_tick_len = style.minor_tick_len = ImVec2(0, 0)
    style.plot_min_size = ImVec2(60 * scale, 50 * scale)
    clear = ImVec4(0, 0, 0, 0)
    for which, color in ((c.frame_bg, clear), (c.plot_bg, theme.BAR), (c.plot_border, clear),
                         (c.legend_bg, _faint(theme.PANEL, 0.85)), (c.legend_border, clear),
                         (c.legend_text, theme.TEXT), (c.axis_text, theme.DIM),
                         (c.axis_grid, _faint(theme.TEXT, 0.09)), (c.axis_bg, clear),
                         (c.axis_bg_hovered, _faint(theme.TEXT, 0.06)), (c.axis_bg_active, _faint(theme.TEXT, 0.1)),
                         (c.selection, theme.ACCENT), (c.inlay_text, theme.TEXT)):
        style.set_color_(which.value, color)
