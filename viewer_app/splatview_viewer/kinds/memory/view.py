"""Shows the memory of a running trainer: what is allocated and reserved over time, as it happens."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from splatview_viewer.core.events import Key
from splatview_viewer.core.settings import MemorySettings
from splatview_viewer.core.view import KeyHelp, meta_phrases
from splatview_viewer.kinds.memory.live import About, History, read_frame
from splatview_viewer.ui.format import size_text
from splatview_viewer.ui.plot_view import PlotContent, PlotView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.gpu.work import GpuWork

_SHORTEST_S, _LONGEST_S = 0.05, 1e7
"""Time that can be seen at once."""
_PATIENCE_S = 60.0
"""Timeout of a requested snapshot."""


class MemoryContent(PlotContent):
    """The newest samples of a stream."""

    kind: ClassVar[str] = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.history = History.nothing()
        self.about = About()
        self.ask: Callable[[], None] | None = None
        """Asks the trainer for a full snapshot."""

    def read(self, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> tuple[History, About]:
        return read_frame(tensors, meta)

    def take(self, value: tuple[History, About]) -> None:
        self.history, self.about = value


KEYS = (
    KeyHelp("Memory", "Wheel, pinch", "Zoom in time"),
    KeyHelp("Memory", "Drag", "Move in time"),
    KeyHelp("Memory", "F, double click", "See all of it"),
)
_MOVES = {"a": -0.1, "left": -0.1, "d": 0.1, "right": 0.1}
"""Share of what is seen that a key moves the plot."""
_ZOOMS = {"q": 1.5, "minus": 1.5, "e": 1 / 1.5, "equal": 1 / 1.5}


@dataclass(frozen=True)
class Seen:
    """The time that is seen."""

    span: float | None = None
    """Seconds; None: all."""
    right: float | None = None
    """The right edge; None: the newest."""


class MemoryView(PlotView[MemoryContent, MemorySettings, Seen]):
    """One plot over time."""

    kind: ClassVar[str] = "memory"
    keys: Sequence[KeyHelp] = KEYS

    def __init__(self, ctx: moderngl.Context | None, settings: MemorySettings | None = None, *,
                 work: GpuWork | None = None, beside: MemoryView | None = None) -> None:
        super().__init__(beside.content if beside is not None else MemoryContent(), settings or MemorySettings(),
                         Seen())
        self.opening = ""
        """The full snapshot to open for this user next."""
        self._now = 0.0
        self._asked: tuple[int, float] | None = None
        """The number of snapshots when another one was requested, and the request's deadline."""

    # -- what is seen -------------------------------------------------------------------------------------------

    def window(self) -> tuple[float, float]:
        """The times at the left and the right edge, seconds since the epoch."""
        history = self.content.history
        right = history.end if self.state.right is None else self.state.right
        return right - (history.duration if self.state.span is None else self.state.span), right

    def top(self, begin: float, end: float) -> float:
        """The bytes at the upper edge. With the GPU's limit in sight it is seen as well."""
        history, total = self.content.history, self.content.about.total
        names = ["reserved", "peak", "active"] if history.on_gpu else []
        if self.settings.host or not names:
            names.append("host")
        most = max(history.peak(begin, end, name)[1] for name in names)
        if total and 0.6 * total < most <= 1.05 * total and history.on_gpu:
            return 1.06 * total
        return max(1.12 * most, 1.0)

    def see(self, begin: float, end: float) -> None:
        """Show this time, or what is near it where there is nothing. At the newest the plot follows new samples, also
        while it is zoomed."""
        history, before, right = self.content.history, self.window(), self.state.right
        span = min(max(end - begin, _SHORTEST_S), _LONGEST_S)
        moved = abs(span - (before[1] - before[0])) < 1e-6 * span
        if span >= 1.2 * history.duration:
            self.state = Seen()
            return
        if moved or right is not None:
            least = history.begin + min(0.5 * span, history.end - history.begin)
            right = None if end >= history.end else max(end, least)
        self.state = Seen(span, right)

    def plot(self, scale: float) -> None:
        from imgui_bundle import imgui

        from splatview_viewer.kinds.memory.plot import draw_plot

        room = imgui.get_content_region_avail()
        plot = draw_plot(self, (room.x, room.y))
        self.pointer = plot.pointer[0] if plot is not None and plot.hovered else None
        if plot is not None and plot.reset:
            self.state = Seen()
        elif plot is not None and plot.moved:
            self.see(*plot.x)

    # -- hands ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        if self.empty or not isinstance(event, Key) or not event.pressed:
            return False
        before, (begin, end) = self.state, self.window()
        if event.name in ("f", "home"):
            self.state = Seen()
        elif event.name == "end":
            self.state = Seen(before.span)
        elif event.name in _MOVES:
            self.see(*(t + _MOVES[event.name] * (end - begin) for t in (begin, end)))
        elif event.name in _ZOOMS:
            middle, half = (begin + end) / 2, (end - begin) / 2 * _ZOOMS[event.name]
            self.see(middle - half, middle + half)
        return before != self.state

    # -- full snapshots ------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Have the trainer take a full snapshot, and open it when it is there."""
        if self.content.ask is not None:
            self._asked = self.content.about.snapshots, self._now + _PATIENCE_S
            self.content.ask()

    def tick(self, now: float) -> bool:
        content, self._now = self.content, now
        if self._asked is not None:
            if content.about.snapshots > self._asked[0]:
                self._asked, self.opening = None, content.about.snapshot
            elif now > self._asked[1]:
                self._asked = None
                return True
        return super().tick(now)

    def panel(self) -> bool:
        from imgui_bundle import ImVec2, imgui

        from splatview_viewer.ui import widgets as ui

        s, before, about, history = self.settings, replace(self.settings), self.content.about, self.content.history
        waits = self._asked is not None
        s.clock = ui.choice("Time", s.clock, {"ago": "Before now", "clock": "By the clock"})
        if history.on_gpu:
            s.host = ui.choice("Host memory", s.host, {False: "Hidden", True: "Shown"})
        imgui.begin_disabled(about.device == "cpu" or waits or self.content.ask is None)
        if imgui.button("Waiting for the snapshot" if waits else "Take a full snapshot", ImVec2(-1, 0)):
            self.ask()
        imgui.end_disabled()
        if about.device == "cpu":
            ui.dim("CUDA is not in use there")
        else:
            imgui.set_item_tooltip("Every allocation with its stack. The training stops for a moment.")
        if about.snapshot and about.file is not None and imgui.button("Open the last one", ImVec2(-1, 0)):
            self.opening = about.snapshot
        return s != before

    # -- words ---------------------------------------------------------------------------------------------------

    @property
    def details(self) -> list[str]:
        history, about = self.content.history, self.content.about
        if self.empty:
            return []
        out = []
        if history.on_gpu:
            out += [f"{size_text(history.now('allocated'))} allocated",
                    f"{size_text(history.now('reserved'))} reserved, {history.fragmentation():.0%} of it free, "
                    f"{history.split():.0%} between blocks",
                    f"highest {size_text(history.peak()[1])}"]
        out.append(f"host {size_text(history.now('host'))}")
        if about.gpu:
            out.append(f"{about.gpu}, {size_text(about.total)}")
        if ooms := int(history.now("ooms")):
            out.append(f"out of memory {'once' if ooms == 1 else f'{ooms} times'}")
        out.append(f"{len(history):,} samples, {about.hz:g} a second")
        if about.trouble:
            out.append(about.trouble)
        return [*out, *meta_phrases(about.others, ())]

    @property
    def readout(self) -> str:
        history = self.content.history
        row = history.row_at(self.pointer) if self.pointer is not None else None
        if row is None:
            return ""
        stamp = time.strftime("%H:%M:%S", time.localtime(history["time"][row]))
        step = int(history["step"][row])
        name, what = ("allocated", "peak") if history.on_gpu else ("host", "host")
        return f"{stamp}{f'   step {step:,}' if step >= 0 else ''}   {name} {size_text(history[what][row])}"

    @property
    def extras(self) -> list[str]:
        return [f"device {self.content.about.device}"] if not self.empty else []

    @property
    def path(self) -> list[str]:
        return ["statistics of PyTorch's allocator" if self.content.history.on_gpu else "the host's statistics"]
