"""The plot of live memory, and the small one in the panel: areas over time, marks, and
numbers under the pointer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from imgui_bundle import ImVec4

from splatview_viewer.core.format import ago_text, ago_ticks, byte_ticks, size_text
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui.widgets import faint

if TYPE_CHECKING:
    from splatview_viewer.core.format import Tick
    from splatview_viewer.kinds.memory.live import MemoryColumns, MemoryHistory
    from splatview_viewer.kinds.memory.view import MemoryView
    from splatview_viewer.ui.widgets import Line

HOST = ImVec4(0.80, 0.62, 0.30, 1.0)
_ACTIVE = ImVec4(0.58, 0.44, 0.85, 0.35)
_RETRY = ImVec4(0.93, 0.70, 0.30, 1.0)
_STRIP_S = 120.0
"""Seconds that are seen in the panel."""
_MOST_MARKS = 50


def draw_plot(view: MemoryView, size: tuple[float, float]) -> plots.Plot | None:
    """Draw at imgui's cursor, as large as `size` pixels; return what the user did
    there.
    """
    history, (begin, end) = view.data.history, view.window()
    line = theme.FONT_SIZE * theme.scale()
    top = view.top(begin, end)
    many = max(int(size[0] / (7.5 * line)), 1)
    steps: list[Tick] = []
    for t, number in history.steps(begin, end, many):
        if not steps or (t - steps[-1][0]) * size[0] > 6 * line * (
            end - begin
        ):  # steps may follow at uneven times
            steps.append((t, f"step {number:,}"))
    up = plots.Axis(
        (0.0, top),
        ticks=byte_ticks(0.0, top, max(int(size[1] / (4 * line)), 1)),
        locked=True,
    )
    across = plots.Axis(
        (begin, end),
        ticks=[
            (history.last_time + at, text)
            for at, text in ago_ticks(
                begin - history.last_time, end - history.last_time, many
            )
        ],
    )
    with plots.plot("memory", size, across, up, second=steps, legend="row") as plot:
        if plot is None:
            return None
        _areas(
            plot,
            history,
            history.columns(begin, end, max(plot.rect.width, 8)),
            view.state.host,
        )
        if history.on_gpu:
            words = f"fragmentation {history.fragmentation():.0%}, {history.split_share():.0%} between blocks"
            plot.say(f"{words}###fragmentation")
        elif view.data.about.device == "cpu":
            plot.say("CUDA is not in use there")
        if not plot.small:
            about = view.data.about
            if 0 < about.total <= top:  # all that the GPU has
                x, y = plot.at(plot.x[0], about.total)
                with plot.drawing() as draw:
                    draw.add_line(
                        (x, y),
                        (x + plot.rect.width, y),
                        theme.u32(theme.FAULT, 0.8),
                        1.5 * plot.scale,
                    )
                    plot.words(
                        (x + plot.rect.width / 2, y + 12 * plot.scale),
                        f"{about.gpu}: {size_text(about.total)}",
                        theme.FAULT,
                    )
            _marks(plot, history)
        row = history.row_at(plot.pointer[0]) if plot.hovered else None
        if row is not None:
            plot.upright(plot.pointer[0], faint(theme.TEXT, 0.35))
            plot.tell(_lines(history, row))
    return plot


def draw_strip(history: MemoryHistory, key: str) -> bool:
    """Draw the last minutes across the panel; True when it was clicked.

    `key`: of the stream's entry.
    """
    end = history.last_time
    begin = max(end - _STRIP_S, min(history.first_time, end - 10.0))
    title, name = ("Memory", "allocated") if history.on_gpu else ("Host memory", "host")
    value = size_text(history.newest(name)) + (
        f" of {size_text(history.newest('reserved'))}" if history.on_gpu else ""
    )
    columns = history.columns(begin, end, 256)
    top = 1.1 * max(
        columns.reserved.max(initial=1.0)
        if history.on_gpu
        else columns.host.max(initial=1.0),
        1.0,
    )
    with plots.strip(
        f"memory {key}",
        title,
        value,
        (begin, end),
        (0.0, top),
        tip="The memory of this run. Click to see more",
    ) as (plot, clicked):
        if plot is not None:
            _areas(plot, history, columns, False)
            for name, color in (("retries", _RETRY), ("ooms", theme.FAULT)):
                for t in history.increase_times(name, begin, end)[-_MOST_MARKS:]:
                    plot.upright(t, color)
    return clicked


def _areas(
    plot: plots.Plot, history: MemoryHistory, columns: MemoryColumns, host: bool
) -> None:
    """Allocated, what waits to be freed, and reserved, one on the other; the host's
    memory.
    """
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


def _marks(plot: plots.Plot, history: MemoryHistory) -> None:
    """The highest point of what is seen, and where memory was short."""
    begin, end = plot.x
    for name, word, color in (
        ("retries", "had to free its cache", _RETRY),
        ("ooms", "out of memory", theme.FAULT),
    ):
        before = float("-inf")
        for t in history.increase_times(name, begin, end)[-_MOST_MARKS:]:
            plot.upright(t, faint(color, 0.75))
            x = plot.at(t)[0]
            if x > before:
                y = plot.rect.y + (46 if name == "ooms" else 70) * plot.scale
                card = plot.words((x, y), word, color)
                before = card.x + card.width
    if end < history.first_time or begin > history.last_time:
        return
    t, size = history.peak(begin, end, "peak" if history.on_gpu else "host")
    plot.dot(max(t, begin), size, theme.TEXT)
    plot.words(plot.at(max(t, begin), size), f"highest {size_text(size)}", theme.TEXT)


def _lines(history: MemoryHistory, row: int) -> list[Line]:
    """All that is known of one moment."""
    t = float(history["time"][row])
    step = int(history["step"][row])
    lines = [f"step {step:,}"] if step >= 0 else []
    if history.on_gpu:
        words = {
            "peak": "allocated, at most",
            "low": "at least",
            "active": "active",
            "requested": "requested",
            "reserved": "reserved",
        }
        lines += [
            f"{word}  {size_text(history[name][row])}" for name, word in words.items()
        ]
        lines.append(
            f"fragmentation  {history.fragmentation(row):.0%}, "
            f"{history.split_share(row):.0%} between blocks"
        )
    lines.append(f"host  {size_text(history['host'][row])}")
    stamp = (
        time.strftime("%H:%M:%S", time.localtime(t))
        + f"   {ago_text(history.last_time - t, 0.1)}"
    )
    return [(stamp, theme.DIM), *((text, theme.TEXT) for text in lines)]
