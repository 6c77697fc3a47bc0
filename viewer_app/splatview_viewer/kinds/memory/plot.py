"""Plots of live memory, large and in the panel: areas over time, marks, numbers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from imgui_bundle import ImVec4

from splatview_viewer.core.quantities import ago_text, ago_ticks, byte_ticks, size_text
from splatview_viewer.kinds.memory.reduction import (
    increase_times,
    pixel_columns,
    step_times,
)
from splatview_viewer.ui import plot_axes, plots, theme
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.quantities import Tick
    from splatview_viewer.kinds.memory.live import MemoryHistory
    from splatview_viewer.kinds.memory.reduction import MemoryColumns
    from splatview_viewer.kinds.memory.view import MemoryView
    from splatview_viewer.ui.text_cards import Line

HOST = ImVec4(0.80, 0.62, 0.30, 1.0)
_ACTIVE = ImVec4(0.58, 0.44, 0.85, 0.35)
_RETRY = ImVec4(0.93, 0.70, 0.30, 1.0)
_MAX_MARKS = 50
_READOUT_LABELS = {
    "peak": "allocated, at most",
    "low": "at least",
    "active": "active",
    "requested": "requested",
    "reserved": "reserved",
}


def draw_plot(view: MemoryView, size: tuple[float, float]) -> plots.Plot | None:
    """Draw at imgui's cursor; return what the user did in the plot.

    Args:
        view: what is drawn.
        size: pixels.
    """
    history = view.data.history
    start, end = view.visible_period()
    line_height = theme.FONT_SIZE * theme.scale()
    top = view.upper_limit(start, end)
    label_count = max(int(size[0] / (7.5 * line_height)), 1)
    min_gap = 6 * line_height * (end - start) / max(size[0], 1.0)
    steps = _step_labels(step_times(history, start, end, label_count), min_gap)
    byte_labels = byte_ticks(0.0, top, max(int(size[1] / (4 * line_height)), 1))
    y = plot_axes.Axis((0.0, top), ticks=byte_labels, locked=True)
    newest = history.last_time
    ages = ago_ticks(start - newest, end - newest, label_count)
    x = plot_axes.Axis((start, end), ticks=[(newest + age, text) for age, text in ages])
    with plots.plot("memory", size, x, y, second_ticks=steps, legend="row") as plot:
        if plot is None:
            return None
        columns = pixel_columns(history, start, end, max(plot.rect.width, 8))
        _draw_areas(plot, history, columns, view.state.shows_host)
        _draw_legend_line(plot, view)
        if not plot.small:
            _draw_limit(plot, view, top)
            _draw_marks(plot, history)
        if plot.hovered:
            row = history.row_at(plot.pointer[0])
        else:
            row = None
        if row is not None:
            plot.upright(plot.pointer[0], faint(theme.TEXT, 0.35))
            plot.set_card(_readout(history, row))
    return plot


def _step_labels(steps: Sequence[tuple[float, int]], min_gap: float) -> list[Tick]:
    """Return labels of steps that do not overlap: steps may follow at uneven times."""
    labels: list[Tick] = []
    for time_of_step, step in steps:
        if not labels or time_of_step - labels[-1][0] > min_gap:
            labels.append((time_of_step, f"step {step:,}"))
    return labels


def _draw_legend_line(plot: plots.Plot, view: MemoryView) -> None:
    """Write into the legend how fragmented the memory is, or that there is no CUDA."""
    history = view.data.history
    if history.on_gpu:
        text = (
            f"fragmentation {history.fragmentation():.0%}, "
            f"{history.split_share():.0%} between blocks"
        )
        plot.legend_line(f"{text}###fragmentation")
    elif view.data.facts.device == "cpu":
        plot.legend_line("CUDA is not in use there")


def _draw_limit(plot: plots.Plot, view: MemoryView, top: float) -> None:
    """Draw a line at all the memory that the GPU has, if that is within the plot."""
    memory_facts = view.data.facts
    if not 0 < memory_facts.total <= top:
        return
    x, y = plot.to_pixel(plot.x[0], memory_facts.total)
    with plot.drawing() as draw:
        draw.add_line(
            (x, y),
            (x + plot.rect.width, y),
            theme.u32(theme.FAULT, 0.8),
            1.5 * plot.scale,
        )
        plot.text_card(
            (x + plot.rect.width / 2, y + 12 * plot.scale),
            f"{memory_facts.gpu}: {size_text(memory_facts.total)}",
            theme.FAULT,
        )


def _draw_areas(
    plot: plots.Plot, history: MemoryHistory, columns: MemoryColumns, host: bool
) -> None:
    """Draw allocated, active and reserved bytes, one on the other, and the host's."""
    x = columns.x
    zero = 0 * columns.x
    if history.on_gpu:
        label = f"allocated {size_text(history.newest('allocated'))}###allocated"
        active = columns.active.clip(columns.peak)
        plot.shade(label, x, zero, columns.low, faint(theme.ACCENT, 0.5))
        plot.shade(label, x, columns.low, columns.peak, faint(theme.ACCENT, 0.25))
        plot.line(label, x, columns.peak, theme.ACCENT, 1.2)
        label = f"reserved {size_text(history.newest('reserved'))}###reserved"
        plot.shade(label, x, columns.peak, active, _ACTIVE)
        plot.shade(
            label, x, active, columns.reserved.clip(active), faint(theme.TEXT, 0.06)
        )
        plot.line(label, x, columns.reserved, theme.DIM, 1.0)
    if host or not history.on_gpu:
        label = f"host {size_text(history.newest('host'))}###host"
        if not history.on_gpu:
            plot.shade(label, x, zero, columns.host, faint(HOST, 0.5))
        plot.line(label, x, columns.host, HOST, 1.2)


def _draw_marks(plot: plots.Plot, history: MemoryHistory) -> None:
    """Mark the highest visible point, and where memory ran out."""
    start, end = plot.x
    _draw_events(plot, history, "retries", "had to free its cache", _RETRY, 70)
    _draw_events(plot, history, "ooms", "out of memory", theme.FAULT, 46)
    if end < history.first_time or start > history.last_time:
        return
    peak_time, size = history.peak(start, end, "peak" if history.on_gpu else "host")
    x = max(peak_time, start)
    plot.dot(x, size, theme.TEXT)
    plot.text_card(plot.to_pixel(x, size), f"highest {size_text(size)}", theme.TEXT)


def _draw_events(
    plot: plots.Plot,
    history: MemoryHistory,
    column: str,
    text: str,
    color: ImVec4,
    offset: float,
) -> None:
    """Draw a line where a count went up, with a text where there is room for it.

    Args:
        offset: points of the texts below the plot's upper edge.
    """
    right = float("-inf")
    for event_time in increase_times(history, column, *plot.x)[-_MAX_MARKS:]:
        plot.upright(event_time, faint(color, 0.75))
        x, _ = plot.to_pixel(event_time)
        if x > right:
            card = plot.text_card((x, plot.rect.y + offset * plot.scale), text, color)
            right = card.x + card.width


def _readout(history: MemoryHistory, row: int) -> list[Line]:
    """Return all that is known of one moment, a line for each value."""
    sampled_at = float(history["time"][row])
    stamp = time.strftime("%H:%M:%S", time.localtime(sampled_at))
    age = ago_text(history.last_time - sampled_at, 0.1)
    lines: list[Line] = [(f"{stamp}   {age}", theme.DIM)]
    step = int(history["step"][row])
    texts = [f"step {step:,}"] if step >= 0 else []
    if history.on_gpu:
        for column, label in _READOUT_LABELS.items():
            texts.append(f"{label}  {size_text(history[column][row])}")
        texts.append(
            f"fragmentation  {history.fragmentation(row):.0%}, "
            f"{history.split_share(row):.0%} between blocks"
        )
    texts.append(f"host  {size_text(history['host'][row])}")
    lines += [(text, theme.TEXT) for text in texts]
    return lines
