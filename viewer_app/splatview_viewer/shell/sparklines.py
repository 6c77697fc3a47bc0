"""Small curves of the run of what is shown: loss, Gaussians, memory.

They lie over one time: what the pointer is over in one is told in all of them. What has
no run and a place that its user chose, such as a snapshot, has its values there instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import size_text, value_text
from splatview_viewer.kinds.memory.view import MemoryData
from splatview_viewer.kinds.scalars.curves import Curve
from splatview_viewer.kinds.scalars.plots import (
    HorizontalAxis,
    pixel_columns,
    vertical_limits,
)
from splatview_viewer.kinds.scalars.view import ScalarsData
from splatview_viewer.shell.menu import MenuRow, draw_menu, open_on_item
from splatview_viewer.shell.runs import told_slot
from splatview_viewer.ui import controls, focus, theme
from splatview_viewer.ui.sides import draw_badge
from splatview_viewer.ui.widgets import wrapped
from splatview_viewer.ui.words import write, write_right

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.readings import Readings
    from splatview_viewer.kinds.memory.live import MemoryHistory
    from splatview_viewer.shell.user import User
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.slot import Slot

_HEAD_HEIGHT = 18.0
_PLOT_HEIGHT = 34.0
_FIRST_READING = 4.0
_READING_HEIGHT = 26.0
_MAX_CHOSEN = 3
"""Curves that are chosen at most."""
_AT_FIRST = 2
"""Curves that are seen while nothing was chosen."""
_COLUMNS = 160
"""Points across a plot, about."""
_SMOOTHING = 0.6
_MENU = "curves of the run"
GAUSSIANS = "Gaussians"
MEMORY = "Memory"


@dataclass(frozen=True, eq=False)
class Spark:
    """One curve, as it can be drawn."""

    title: str
    value: str
    """Its newest value, in words."""
    curve: Curve
    key: str
    """Of the entry that shows more; "" where there is none."""
    text: Callable[[float], str] = value_text
    """Puts a value into words."""
    clock: Curve | None = None
    """Knows which step was when; None: the steps of the curve do."""

    def step_at(self, time: float) -> float:
        """Return the step of a time."""
        clock = self.clock or self.curve
        return float(np.interp(time, clock["time"], clock["step"]))

    def value_at(self, time: float) -> str:
        """Return what it was at a time, in words."""
        times = self.curve["time"]
        row = int(np.searchsorted(times, time, "right")) - 1
        return self.text(float(self.curve["value"][max(row, 0)]))


@dataclass(frozen=True, eq=False)
class _Plot:
    """A curve in a plot of one size: shares of its width and of its height, from above."""

    x: tuple[float, ...]
    y: tuple[float, ...]


class Sparklines:
    """Draws the curves beside one user's pictures."""

    def __init__(self) -> None:
        self._time: float | None = None
        """Where the pointer was in the last picture, in seconds; None: nowhere."""
        self._keyed_share = 1.0
        """Where the arrows have put the cursor: 0 at the left, 1 at the right."""

    def draw(self, user: User) -> None:
        """Draw the curves into the window that is open, or what is read off instead."""
        view = user.view
        readings = None
        if view is not None and not view.empty:
            readings = view.view.readings()
        if readings is not None:
            _draw_readings(readings)
            return
        slot = told_slot(user)
        sparks: list[Spark] = []
        if slot is not None:
            sparks = sparks_of(user.catalogue, slot)
        if not sparks:
            with theme.font_size(theme.SMALL_SIZE):
                wrapped(
                    "Loss and the number of Gaussians stand here while a run trains.",
                    theme.FAINT,
                )
            return
        time = self._time
        self._time = None
        span = _span_of(sparks)
        for spark in _seen_sparks(user, sparks):
            self._draw_spark(user, spark, span, time)
        draw_menu(_MENU, _menu_rows(user, sparks))

    def _draw_spark(
        self,
        user: User,
        spark: Spark,
        span: tuple[float, float],
        time: float | None,
    ) -> None:
        """Draw a curve below its title and value, and take the pointer over it."""
        scale = theme.scale()
        width = imgui.get_content_region_avail().x
        height = (_HEAD_HEIGHT + _PLOT_HEIGHT) * scale
        item = controls.item(f"curve {spark.title}", width, height)
        open_on_item(_MENU)
        controls.tip(
            "Click: that step. Double click: all plots. Right click: which ones.\n"
            "By keyboard: arrows, Enter"
        )
        start, end = span
        share = (imgui.get_mouse_pos().x - item.x) / item.width
        is_keyed = focus.is_chosen()
        if is_keyed:
            share = self._keyed_share + 0.01 * focus.arrow_steps()
            self._keyed_share = min(max(share, 0.0), 1.0)
        if is_keyed or item.hovered:
            self._time = start + min(max(share, 0.0), 1.0) * (end - start)
        self._take_clicks(user, spark, item)
        middle = item.y + _HEAD_HEIGHT / 2 * scale
        title = spark.title
        value = spark.value
        if time is not None:
            title = f"{spark.title}, step {spark.step_at(time):,.0f}"
            value = spark.value_at(time)
        with theme.bold(theme.SMALL_SIZE):
            right = write_right(value, item.x + item.width, middle, theme.TEXT)
        with theme.font_size(theme.SMALL_SIZE):
            write(title, item.x, middle, theme.DIM, right - item.x - 8 * scale)
        top = item.y + _HEAD_HEIGHT * scale
        _draw_curve(spark, span, (item.x, top, item.width, _PLOT_HEIGHT * scale))
        if time is not None and end > start:
            x = round(item.x + (time - start) / (end - start) * item.width)
            bottom = ImVec2(x, item.y + item.height)
            draw = imgui.get_window_draw_list()
            draw.add_line(ImVec2(x, top), bottom, theme.u32(theme.FAINT))

    def _take_clicks(self, user: User, spark: Spark, item: controls.Item) -> None:
        """Go to the step that was clicked; show all plots after two clicks."""
        left = imgui.MouseButton_.left
        if item.hovered and imgui.is_mouse_double_clicked(left):
            if spark.key:
                user.do(user.show_beside, spark.key)
        elif item.pressed and self._time is not None:
            user.do(user.go_to_step, spark.step_at(self._time))


def _draw_readings(readings: Readings) -> None:
    """Draw values at one place, a row for each."""
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    right = corner.x + imgui.get_content_region_avail().x
    middle = corner.y + (_FIRST_READING + theme.ROW_HEIGHT / 2) * scale
    with theme.bold(theme.SMALL_SIZE):
        left = write_right(readings.place, right, middle, theme.TEXT)
    with theme.font_size(theme.SMALL_SIZE):
        write(readings.title, corner.x, middle, theme.DIM, left - corner.x)
    for reading in readings.values:
        middle += _READING_HEIGHT * scale
        x = corner.x
        if reading.badge:
            draw_badge(reading.badge, x, middle)
            x += 26 * scale
        with theme.bold():
            left = write_right(reading.value, right, middle, theme.TEXT)
        write(reading.name, x, middle, theme.DIM, left - x)
    height = (len(readings.values) + 1) * _READING_HEIGHT * scale
    imgui.dummy(ImVec2(right - corner.x, height))


def _draw_curve(
    spark: Spark, span: tuple[float, float], rect: tuple[float, float, float, float]
) -> None:
    """Draw a curve on its ground, with its last value as a dot.

    rect: x, y, width and height in pixels.
    """
    scale = theme.scale()
    x, y, width, height = rect
    draw = imgui.get_window_draw_list()
    low = ImVec2(x, y)
    high = ImVec2(x + width, y + height)
    draw.add_rect_filled(low, high, theme.u32(theme.PLOT), 4 * scale)
    plot = _plot_of(spark.curve, span)
    if not plot.x:
        return
    corner = (x + 2 * scale, y + 5 * scale)
    points = _points_of(plot, corner, (width - 8 * scale, height - 9 * scale))
    color = theme.u32(theme.ACCENT)
    draw.add_polyline(points, color, 1.5 * scale, 0)
    draw.add_circle_filled(points[-1], 2.6 * scale, color, 16)


@lru_cache(32)
def _points_of(
    plot: _Plot, corner: tuple[float, float], size: tuple[float, float]
) -> list[Any]:
    """Return the pixels of a plot in a rectangle."""
    left, top = corner
    width, height = size
    points = []
    for x, y in zip(plot.x, plot.y, strict=True):
        points.append(ImVec2(left + x * width, top + y * height))
    return points


@lru_cache(32)
def _plot_of(curve: Curve, span: tuple[float, float]) -> _Plot:
    """Return the points of a curve over a time. Cached: few curves change at once."""
    start, end = span
    axis = HorizontalAxis(start, max(end, start + 1e-3), _COLUMNS)
    weight = 0.0
    if len(curve) > _COLUMNS:
        weight = _SMOOTHING
    segments = pixel_columns(curve, axis, weight, "time")
    if not segments:
        return _Plot((), ())
    low, high = vertical_limits(segments, axis, False)
    x = np.concatenate([segment.x for segment in segments])
    y = np.concatenate([segment.smooth for segment in segments])
    x = ((x - start) / (axis.end - start)).clip(0, 1)
    y = ((high - y) / ((high - low) or 1.0)).clip(0, 1)
    return _Plot(tuple(x.tolist()), tuple(y.tolist()))


def _span_of(sparks: Sequence[Spark]) -> tuple[float, float]:
    """Return the time that all curves have: of what is logged, or else of all."""
    timed = [spark for spark in sparks if spark.title != MEMORY] or sparks
    start = min(float(spark.curve["time"][0]) for spark in timed)
    end = max(float(spark.curve["time"][-1]) for spark in timed)
    return start, end


# -- which ones ------------------------------------------------------------------------


def sparks_of(catalogue: Catalogue, slot: Slot) -> list[Spark]:
    """Return all curves of an entry's run: losses first, Gaussians, memory, others."""
    logged: list[Spark] = []
    memory: list[Spark] = []
    clock = None
    for plot_slot in catalogue.links.plots(slot):
        view = plot_slot.view
        if view is None or view.empty or plot_slot.entry.fault:
            continue
        content = view.content
        key = plot_slot.entry.key
        if isinstance(content, ScalarsData) and content.curves.all:
            clock = content.curves.clock
            logged = [_logged(curve, key) for curve in content.curves.all]
        elif isinstance(content, MemoryData):
            memory = [_memory_spark(content.history, key)]
    losses = [spark for spark in logged if "loss" in spark.title.lower()]
    other_sparks = [
        spark for spark in logged if spark not in losses and len(spark.curve) > 1
    ]
    key = ""
    if logged:
        key = logged[0].key
    counted = _counted(catalogue, slot, clock, key)
    return [*losses[:1], *counted, *memory, *losses[1:], *other_sparks]


def _logged(curve: Curve, key: str) -> Spark:
    title = curve.name[:1].upper() + curve.name[1:]
    return Spark(title, value_text(curve.newest_value), curve, key)


def _counted(
    catalogue: Catalogue, slot: Slot, clock: Curve | None, key: str
) -> list[Spark]:
    """Return the number of Gaussians of the run, up to its last step."""
    counted = catalogue.counts.of_run(slot.source.stream)
    if counted is None:
        return []
    curve = counted
    if clock is not None:
        curve = _extended(counted, float(clock["time"][-1]))
    return [Spark(GAUSSIANS, value_text(curve.newest_value), curve, key, clock=clock)]


@lru_cache(8)
def _extended(curve: Curve, end_time: float) -> Curve:
    """Return a curve whose last value holds until a time."""
    if end_time <= curve["time"][-1]:
        return curve
    last = curve.rows[-1:].copy()
    last[0, 1] = end_time
    return Curve(curve.name, np.asfortranarray(np.concatenate([curve.rows, last])))


def _memory_spark(history: MemoryHistory, key: str) -> Spark:
    newest_name = "host"
    curve_name = "host"
    if history.on_gpu:
        newest_name = "allocated"
        curve_name = "peak"
    newest = history.newest(newest_name)
    curve = _memory_curve(history, curve_name)
    return Spark(MEMORY, size_text(newest), curve, key, size_text)


@lru_cache(4)
def _memory_curve(history: MemoryHistory, name: str) -> Curve:
    """Return memory over time as a curve."""
    value = history[name]
    weights = np.ones(len(value))
    steps = history["step"]
    columns = [steps, history.time, value, value, value, weights, 0 * weights]
    return Curve(MEMORY, np.asfortranarray(np.stack(columns, axis=1)))


def _seen_sparks(user: User, sparks: Sequence[Spark]) -> list[Spark]:
    """Return the curves that are seen: those that were chosen, or the first ones."""
    titles = user.interface.state.sparks
    chosen_sparks = [spark for spark in sparks if spark.title in titles]
    return chosen_sparks[:_MAX_CHOSEN] or list(sparks[:_AT_FIRST])


def _menu_rows(user: User, sparks: Sequence[Spark]) -> list[MenuRow | None]:
    """Return the rows of the menu that chooses the curves."""
    if not imgui.is_popup_open(_MENU):
        return []
    seen_titles = [spark.title for spark in _seen_sparks(user, sparks)]
    rows: list[MenuRow | None] = []
    for spark in sparks:
        is_seen = spark.title in seen_titles
        reason = None
        if is_seen and len(seen_titles) == 1:
            reason = "one stays"
        elif not is_seen and len(seen_titles) >= _MAX_CHOSEN:
            reason = "three at most"
        titles = [title for title in seen_titles if title != spark.title]
        if not is_seen:
            titles.append(spark.title)
        choose = partial(user.do, choose_sparks, user, titles)
        icon = ""
        if is_seen:
            icon = "check"
        rows.append(MenuRow(spark.title, choose, icon, reason=reason))
    return rows


def choose_sparks(user: User, titles: list[str]) -> None:
    """Show these curves, now and in later sessions."""
    user.interface.state.sparks = titles
    user.interface.state.remember(user.catalogue.memo)
    user.mark_interface()
