"""What is written over the plot of live memory: axes, a legend, marks, and the numbers under the pointer."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.kinds.memory import plot
from splatview_viewer.kinds.memory.live import round_up
from splatview_viewer.kinds.snapshot.labels import UNITS, size_text
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.memory.live import History
    from splatview_viewer.kinds.memory.view import MemoryView

    Place = Callable[[float], float]

OOM = theme.FAULT
RETRY = ImVec4(0.95, 0.76, 0.38, 1.0)
_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)


def write(view: MemoryView, history: History, rect: Rect, scale: float) -> None:
    """Write over the plot in `rect`. Inside an imgui frame."""
    draw = imgui.get_background_draw_list()
    begin, end = view.window()
    bottom = view.bottom(rect)
    top, base = view.top(begin, end), rect.y + rect.height - bottom

    def x_of(t: float) -> float:
        return rect.x + (t - begin) / (end - begin) * rect.width

    def y_of(size: float) -> float:
        return base - size / top * (rect.height - bottom)

    draw.push_clip_rect(ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height), True)
    _sizes(draw, rect, y_of, top, scale)
    _times(draw, view, history, rect, x_of, base)
    _limit(draw, view, rect, y_of, top)
    _marks(draw, history, (begin, end), rect, x_of, y_of, scale)
    _legend(draw, view, history, rect, scale)
    _under_pointer(draw, view, history, rect, x_of, base, scale)
    draw.pop_clip_rect()


def _sizes(draw: imgui.ImDrawList, rect: Rect, y_of: Place, top: float, scale: float) -> None:
    """Lines at round sizes."""
    line = imgui.get_text_line_height()
    apart = top * 60 * scale / max(rect.height, 1)
    power = min(int(math.log(max(top, 1), 1024)), len(UNITS) - 1)
    unit = 1024.0**power
    apart = unit * round_up(apart / unit)
    for i in range(1, min(int(top / apart), 40) + 1):
        y = round(y_of(i * apart))
        draw.add_line(ImVec2(rect.x, y), ImVec2(rect.x + rect.width, y), theme.u32(theme.TEXT, 0.07))
        text = f"{i * apart / unit:g} {UNITS[power]}"
        width = imgui.calc_text_size(text).x
        draw.add_text(ImVec2(rect.x + rect.width - width - 8 * scale, y - line - 1), theme.u32(theme.TEXT, 0.6), text)


def _times(draw: imgui.ImDrawList, view: MemoryView, history: History, rect: Rect, x_of: Place, base: float) -> None:
    """Times, and under them the steps."""
    begin, end = view.window()
    line, pad = imgui.get_text_line_height(), 0.15 * imgui.get_text_line_height()
    draw.add_rect_filled(ImVec2(rect.x, base), ImVec2(rect.x + rect.width, rect.y + rect.height), theme.u32(theme.BAR))
    room = max(int(rect.width / (7.5 * line)), 1)
    least = (end - begin) / room
    apart = next((float(s) for s in _SECONDS if s >= least), 86400.0) if least > 0.5 else round_up(least)
    ago = view.settings.clock == "ago"
    zero = history.end if ago else time.localtime(end).tm_gmtoff * -1.0
    first, last = math.ceil((begin - zero) / apart), math.floor((end - zero) / apart)
    for i in range(first, min(last, first + 200) + 1):
        t = zero + i * apart
        text = _ago(-i * apart, apart) if ago else _clock(t, apart)
        width, x = imgui.calc_text_size(text).x, round(x_of(t))
        draw.add_line(ImVec2(x, base), ImVec2(x, base + 4 * pad), theme.u32(theme.DIM))
        left = min(max(x - width / 2, rect.x + 2), rect.x + rect.width - width - 2)
        draw.add_text(ImVec2(left, base + 2 * pad), theme.u32(theme.DIM), text)
    place = rect.x - line
    for t, number in history.steps(begin, end, max(int(rect.width / (6 * line)), 1)):
        x, text = round(x_of(t)), f"step {number:,}"
        draw.add_line(ImVec2(x, base - 3 * pad), ImVec2(x, base), theme.u32(theme.ACCENT))
        width = imgui.calc_text_size(text).x
        left = x - width / 2
        if left > place and left + width < rect.x + rect.width:
            draw.add_text(ImVec2(left, base + line + 2 * pad), theme.u32(theme.ACCENT), text)
            place = left + width + line


def _ago(seconds: float, apart: float) -> str:
    if abs(seconds) < 1e-9:
        return "now"
    if seconds < 0:
        return f"+{-seconds:g} s"
    if seconds < 120 or apart < 1:
        return f"-{seconds:g} s" if apart >= 1 else f"-{seconds:.{max(0, math.ceil(-math.log10(apart)))}f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 120:
        return f"-{minutes} min" + (f" {seconds} s" if seconds else "")
    return f"-{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def _clock(t: float, apart: float) -> str:
    text = time.strftime("%H:%M:%S" if apart < 60 else "%H:%M", time.localtime(t + 1e-6))
    return text if apart >= 1 else f"{text}{math.floor((t + 1e-6) % 1 * 1000) / 1000:.3f}".replace("0.", ".", 1)


def _limit(draw: imgui.ImDrawList, view: MemoryView, rect: Rect, y_of: Place, top: float) -> None:
    """All that the GPU has, where that is in sight."""
    total = view.content.about.total
    if not total or total > top:
        return
    y, text = round(y_of(total)), f"{view.content.about.gpu}: {size_text(total)}"
    draw.add_line(ImVec2(rect.x, y), ImVec2(rect.x + rect.width, y), theme.u32(OOM, 0.8), 1.5)
    _tag(draw, rect.x + rect.width / 2 - imgui.calc_text_size(text).x / 2, y + 3, text, OOM)


def _marks(draw: imgui.ImDrawList, history: History, window: tuple[float, float], rect: Rect, x_of: Place, y_of: Place,
           scale: float) -> None:
    """The highest point of what is seen, and where memory was short."""
    begin, end = window
    for name, word, color in (("retries", "had to free its cache", RETRY), ("ooms", "out of memory", OOM)):
        before = -math.inf
        for t in history.raised(name):
            if not begin <= t <= end:
                continue
            x = round(x_of(t))
            draw.add_line(ImVec2(x, rect.y), ImVec2(x, y_of(0)), theme.u32(color, 0.75), scale)
            if x > before:
                width, y = imgui.calc_text_size(word).x, (2.6 if name == "ooms" else 4.0) * imgui.get_text_line_height()
                left = x + 5 * scale if x + width + 80 * scale < rect.x + rect.width else x - 5 * scale - width
                _tag(draw, left, rect.y + y, word, color)
                before = x + width + 8 * scale
    name = "peak" if history.on_gpu else "host"
    if end < history.begin or begin > history.end:
        return
    t, size = history.peak(begin, end, name)
    x, y, text = x_of(max(t, begin)), y_of(size), f"highest {size_text(int(size))}"
    width = imgui.calc_text_size(text).x
    draw.add_circle(ImVec2(x, y), 3.5 * scale, theme.u32(theme.TEXT), 16, 1.5 * scale)
    left = x + 8 * scale if x + 8 * scale + width < rect.x + rect.width - 90 * scale else x - 8 * scale - width
    _tag(draw, left, y - imgui.get_text_line_height(), text, theme.TEXT)


def _tag(draw: imgui.ImDrawList, x: float, y: float, text: str, color: ImVec4) -> None:
    """Words that can be read whatever lies under them."""
    size, pad = imgui.calc_text_size(text), 0.2 * imgui.get_text_line_height()
    draw.add_rect_filled(ImVec2(x - pad, y - 0.5 * pad), ImVec2(x + size.x + pad, y + size.y + 0.5 * pad),
                         theme.u32(theme.BAR, 0.8), pad)
    draw.add_text(ImVec2(x, y), theme.u32(color), text)


def _legend(draw: imgui.ImDrawList, view: MemoryView, history: History, rect: Rect, scale: float) -> None:
    """What the colours are, and how much there is now."""
    if history.on_gpu:
        rows: list[tuple[Color | None, str]] = [
            (plot.ALLOCATED, f"allocated {size_text(int(history.now('allocated')))}"),
            (plot.RESERVED_LINE, f"reserved {size_text(int(history.now('reserved')))}"),
            (None, f"fragmentation {history.fragmentation():.0%}, {history.split():.0%} between blocks")]
        if view.settings.host:
            rows.insert(2, (plot.HOST, f"host {size_text(int(history.now('host')))}"))
    else:
        rows = [(plot.HOST, f"host memory {size_text(int(history.now('host')))}"),
                (None, "CUDA is not in use there" if view.content.about.device == "cpu" else "nothing allocated yet")]
    x, y, line = rect.x + 12 * scale, rect.y + 8 * scale, imgui.get_text_line_height()
    for color, text in rows:
        if color is not None:
            square = 0.62 * line
            draw.add_rect_filled(ImVec2(x, y + 0.2 * line), ImVec2(x + square, y + 0.2 * line + square),
                                 theme.u32(ImVec4(*color, 1.0)), 2 * scale)
            x += square + 6 * scale
        draw.add_text(ImVec2(x, y), theme.u32(theme.TEXT if color is not None else theme.DIM), text)
        x += imgui.calc_text_size(text).x + 18 * scale


def _under_pointer(draw: imgui.ImDrawList, view: MemoryView, history: History, rect: Rect, x_of: Place, base: float,
                   scale: float) -> None:
    row = view.row()
    if row is None or view.pointer is None:
        return
    t, x = float(history["time"][row]), view.pointer[0]
    draw.add_line(ImVec2(x, rect.y), ImVec2(x, base), theme.u32(theme.TEXT, 0.35), scale)
    lines = [time.strftime("%H:%M:%S", time.localtime(t)) + f"   {_ago(history.end - t, 0.1)}"]
    if (step := history["step"][row]) >= 0:
        lines.append(f"step {int(step):,}")
    if history.on_gpu:
        words = {"peak": "allocated, at most", "low": "at least", "active": "active", "requested": "requested",
                 "reserved": "reserved"}
        lines += [f"{word}  {size_text(int(history[name][row]))}" for name, word in words.items()]
        lines.append(f"fragmentation  {history.fragmentation(row):.0%}, {history.split(row):.0%} between blocks")
    lines.append(f"host  {size_text(int(history['host'][row]))}")
    line, pad = imgui.get_text_line_height(), 8 * scale
    width = max(imgui.calc_text_size(text).x for text in lines) + 2 * pad
    height = len(lines) * 1.15 * line + 2 * pad
    left = x + 14 * scale if x + 14 * scale + width < rect.x + rect.width else x - 14 * scale - width
    top = min(max(view.pointer[1] - height / 2, rect.y + 2 * line), base - height)
    draw.add_rect_filled(ImVec2(left, top), ImVec2(left + width, top + height), theme.u32(theme.PANEL, 0.94), 5 * scale)
    for i, text in enumerate(lines):
        draw.add_text(ImVec2(left + pad, top + pad + i * 1.15 * line),
                      theme.u32(theme.DIM if i == 0 else theme.TEXT), text)
