"""Shows the memory of a running trainer: what is allocated and reserved over time, as
it happens.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.events import Key
from splatview_viewer.core.format import size_text
from splatview_viewer.core.view import Info, KeyHelp, Section, frame_of, meta_phrases
from splatview_viewer.kinds.memory.live import MemoryFacts, MemoryHistory, read_frame
from splatview_viewer.kinds.memory.plot import draw_plot
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.plots import PlotView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Value

_SHORTEST_S = 0.05
_LONGEST_S = 1e7
"""Time that can be seen at once."""
_PATIENCE_S = 60.0
"""Timeout of a requested snapshot."""


@dataclass
class MemoryData:
    """The newest samples of a stream."""

    history: MemoryHistory = field(default_factory=MemoryHistory.empty)
    about: MemoryFacts = field(default_factory=MemoryFacts)
    ask: Callable[[], None] | None = None
    """Asks the trainer for a full snapshot."""


@dataclass(frozen=True)
class MemoryState:
    """The time that is seen, and how."""

    host: bool = False
    """The host's memory is seen beside the GPU's."""
    span: float | None = None
    """Seconds; None: all."""
    right: float | None = None
    """The right edge; None: the newest."""


class MemoryView(PlotView[MemoryData, MemoryState]):
    """One plot over time."""

    kind: ClassVar[str] = "memory"
    keys = (
        KeyHelp("Memory", "Wheel, pinch", "Zoom in time"),
        KeyHelp("Memory", "Drag", "Move in time"),
        KeyHelp("Memory", "F, double click", "See all of it"),
    )
    _now = 0.0
    _asked: tuple[int, float] | None = None
    """The number of snapshots when another one was requested, and the request's
    deadline."""

    def take(self, link: str, value: Value) -> bool:
        frame = frame_of(self.kind, value)
        found = read_frame(frame.tensors, frame.meta)
        if not frame.intact():
            return False
        self.data.history, self.data.about = found
        return True

    # -- what is seen ------------------------------------------------------------------

    def window(self) -> tuple[float, float]:
        """The times at the left and the right edge, seconds since the epoch."""
        history = self.data.history
        right = history.last_time if self.state.right is None else self.state.right
        return right - (
            history.duration if self.state.span is None else self.state.span
        ), right

    def top(self, begin: float, end: float) -> float:
        """The bytes at the upper edge.

        With the GPU's limit in sight it is seen as well.
        """
        history = self.data.history
        total = self.data.about.total
        names = ["reserved", "peak", "active"] if history.on_gpu else []
        if self.state.host or not names:
            names.append("host")
        most = max(history.peak(begin, end, name)[1] for name in names)
        if total and 0.6 * total < most <= 1.05 * total and history.on_gpu:
            return 1.06 * total
        return max(1.12 * most, 1.0)

    def see(self, begin: float, end: float) -> None:
        """Show this time, or what is near it where there is nothing.

        At the newest the plot follows new samples, also while it is zoomed.
        """
        history = self.data.history
        before = self.window()
        right = self.state.right
        span = min(max(end - begin, _SHORTEST_S), _LONGEST_S)
        moved = abs(span - (before[1] - before[0])) < 1e-6 * span
        if span >= 1.2 * history.duration:
            self.see_all()
            return
        if moved or right is not None:
            least = history.first_time + min(
                0.5 * span, history.last_time - history.first_time
            )
            right = None if end >= history.last_time else max(end, least)
        self.state = replace(self.state, span=span, right=right)

    def see_all(self) -> None:
        """Show all there is, and what comes."""
        self.state = replace(self.state, span=None, right=None)

    def plot(self, scale: float) -> None:
        room = imgui.get_content_region_avail()
        plot = draw_plot(self, (room.x, room.y))
        self.pointer = plot.pointer[0] if plot is not None and plot.hovered else None
        if plot is not None and plot.reset:
            self.see_all()
        elif plot is not None and plot.moved:
            self.see(*plot.x)

    def handle(self, event: Event, rect: Rect) -> bool:
        if isinstance(event, Key) and event.pressed and event.name in ("f", "home"):
            self.see_all()
        return False

    # -- full snapshots ----------------------------------------------------------------

    def ask(self) -> None:
        """Have the trainer take a full snapshot, and open it when it is there."""
        if self.data.ask is not None:
            self._asked = self.data.about.snapshots, self._now + _PATIENCE_S
            self.data.ask()

    def tick(self, now: float) -> bool:
        self._now = now
        if self._asked is None:
            return False
        taken = self.data.about.snapshots > self._asked[0]
        if taken or now > self._asked[1]:
            self._asked = None
        if taken and (file := self.data.about.snapshot_path) is not None:
            self.host.open(file)
        return self._asked is None

    def panel(self) -> Sequence[Section]:
        return (Section("", self._controls),)

    def _controls(self) -> None:
        about = self.data.about
        waits = self._asked is not None
        if self.data.history.on_gpu:
            host = ui.choice(
                "Host memory",
                "The memory of the process beside that of the GPU",
                self.state.host,
                {False: "Hidden", True: "Shown"},
            )
            self.state = replace(self.state, host=host)
        imgui.begin_disabled(about.device == "cpu" or waits or self.data.ask is None)
        if imgui.button(
            "Waiting for the snapshot" if waits else "Take a full snapshot",
            ImVec2(-1, 0),
        ):
            self.ask()
        imgui.end_disabled()
        if about.device == "cpu":
            ui.dim("CUDA is not in use there")
        else:
            imgui.set_item_tooltip(
                "Every allocation with its stack. The training stops for a moment."
            )
        file = about.snapshot_path
        if file is not None and imgui.button("Open the last one", ImVec2(-1, 0)):
            self.host.open(file)

    # -- words -------------------------------------------------------------------------

    def info(self) -> Info:
        history = self.data.history
        about = self.data.about
        out = []
        if history.on_gpu:
            out += [
                f"{size_text(history.newest('allocated'))} allocated",
                f"{size_text(history.newest('reserved'))} reserved, "
                f"{history.fragmentation():.0%} of it free, "
                f"{history.split_share():.0%} between blocks",
                f"highest {size_text(history.peak()[1])}",
            ]
        out.append(f"host {size_text(history.newest('host'))}")
        if about.gpu:
            out.append(f"{about.gpu}, {size_text(about.total)}")
        ooms = int(history.newest("ooms"))
        if ooms:
            out.append(f"out of memory {'once' if ooms == 1 else f'{ooms} times'}")
        out.append(f"{len(history):,} samples, {about.hz:g} a second")
        if about.trouble:
            out.append(about.trouble)
        if history.on_gpu:
            path = "statistics of PyTorch's allocator"
        else:
            path = "the host's statistics"
        readout = ""
        row = None if self.pointer is None else history.row_at(self.pointer)
        if row is not None:
            stamp = time.strftime("%H:%M:%S", time.localtime(history["time"][row]))
            name, what = ("allocated", "peak") if history.on_gpu else ("host", "host")
            step = int(history["step"][row])
            readout = f"{stamp}{f'   step {step:,}' if step >= 0 else ''}   {name} {size_text(history[what][row])}"
        return Info(
            [*out, *meta_phrases(about.metadata, ())],
            [f"device {about.device}"],
            readout,
            [path],
            self.timings,
        )
