"""Shows what a running trainer has allocated and reserved, over time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.events import Key
from splatview_viewer.core.quantities import size_text
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
_REQUEST_TIMEOUT_S = 60.0
"""Seconds after which a requested snapshot is not opened any more."""


@dataclass
class MemoryData:
    """The newest samples of a stream."""

    history: MemoryHistory = field(default_factory=MemoryHistory.empty)
    facts: MemoryFacts = field(default_factory=MemoryFacts)
    request_snapshot: Callable[[], None] | None = None
    """Asks the trainer for a full snapshot."""


@dataclass(frozen=True)
class MemoryState:
    """The time that is seen, and how."""

    shows_host: bool = False
    """The host's memory is seen beside the GPU's."""
    span: float | None = None
    """Seconds; None: all."""
    right: float | None = None
    """The right edge; None: the newest."""


class _SnapshotRequest(NamedTuple):
    """A request for a full snapshot."""

    snapshots_before: int
    """The number of snapshots when it was made."""
    deadline: float


class MemoryView(PlotView[MemoryData, MemoryState]):
    """One plot over time."""

    kind: ClassVar[str] = "memory"
    keys = (
        KeyHelp("Memory", "Wheel, pinch", "Zoom in time"),
        KeyHelp("Memory", "Drag", "Move in time"),
        KeyHelp("Memory", "F, double click", "See all of it"),
    )
    _now = 0.0
    _request: _SnapshotRequest | None = None
    """The request for a full snapshot that was not answered yet."""

    def take(self, link: str, value: Value) -> bool:
        frame = frame_of(self.kind, value)
        history, about = read_frame(frame.tensors, frame.meta)
        if not frame.intact():
            return False
        self.data.history = history
        self.data.facts = about
        return True

    # -- what is seen ------------------------------------------------------------------

    def visible_period(self) -> tuple[float, float]:
        """Return the times at the left and right edge, seconds since the epoch."""
        history = self.data.history
        right = history.last_time if self.state.right is None else self.state.right
        span = history.duration if self.state.span is None else self.state.span
        return right - span, right

    def upper_limit(self, begin: float, end: float) -> float:
        """Return the bytes at the upper edge.

        With the GPU's limit in sight it is seen as well.
        """
        history = self.data.history
        total = self.data.facts.total
        names = ["reserved", "peak", "active"] if history.on_gpu else []
        if self.state.shows_host or not names:
            names.append("host")
        highest = max(history.peak(begin, end, name)[1] for name in names)
        is_near_limit = 0.6 * total < highest <= 1.05 * total
        if total and is_near_limit and history.on_gpu:
            return 1.06 * total
        return max(1.12 * highest, 1.0)

    def show_period(self, begin: float, end: float) -> None:
        """Show this time, or what is near it where there is nothing.

        At the newest the plot follows new samples, also while it is zoomed.
        """
        history = self.data.history
        old_begin, old_end = self.visible_period()
        span = min(max(end - begin, _SHORTEST_S), _LONGEST_S)
        if span >= 1.2 * history.duration:
            self.show_all()
            return
        right = self.state.right
        was_moved = abs(span - (old_end - old_begin)) < 1e-6 * span
        if was_moved or right is not None:
            margin = min(0.5 * span, history.last_time - history.first_time)
            right = max(end, history.first_time + margin)
            if end >= history.last_time:
                right = None
        self.state = replace(self.state, span=span, right=right)

    def show_all(self) -> None:
        """Show all there is, and what comes."""
        self.state = replace(self.state, span=None, right=None)

    def plot(self, scale: float) -> None:
        available = imgui.get_content_region_avail()
        plot = draw_plot(self, (available.x, available.y))
        self.pointer = None
        if plot is None:
            return
        if plot.hovered:
            self.pointer = plot.pointer[0]
        if plot.reset:
            self.show_all()
        elif plot.moved:
            self.show_period(*plot.x)

    def handle(self, event: Event, rect: Rect) -> bool:
        if isinstance(event, Key) and event.pressed and event.name in ("f", "home"):
            self.show_all()
        return False

    # -- full snapshots ----------------------------------------------------------------

    def request_snapshot(self) -> None:
        """Request a full snapshot of the trainer, and open it when it is there."""
        if self.data.request_snapshot is not None:
            deadline = self._now + _REQUEST_TIMEOUT_S
            self._request = _SnapshotRequest(self.data.facts.snapshots, deadline)
            self.data.request_snapshot()

    def tick(self, now: float) -> bool:
        self._now = now
        request = self._request
        if request is None:
            return False
        about = self.data.facts
        is_answered = about.snapshots > request.snapshots_before
        if is_answered or now > request.deadline:
            self._request = None
        if is_answered and about.snapshot_path is not None:
            self.host.open(about.snapshot_path)
        return self._request is None

    def panel(self) -> Sequence[Section]:
        return (Section("", self._controls),)

    def _controls(self) -> None:
        about = self.data.facts
        waits = self._request is not None
        if self.data.history.on_gpu:
            host = ui.choice(
                "Host memory",
                "The memory of the process beside that of the GPU",
                self.state.shows_host,
                {False: "Hidden", True: "Shown"},
            )
            self.state = replace(self.state, host=host)
        imgui.begin_disabled(
            about.device == "cpu" or waits or self.data.request_snapshot is None
        )
        if imgui.button(
            "Waiting for the snapshot" if waits else "Take a full snapshot",
            ImVec2(-1, 0),
        ):
            self.request_snapshot()
        imgui.end_disabled()
        if about.device == "cpu":
            ui.dim("CUDA is not in use there")
        else:
            imgui.set_item_tooltip(
                "Every allocation with its stack. The training stops for a moment."
            )
        path = about.snapshot_path
        if path is not None and imgui.button("Open the last one", ImVec2(-1, 0)):
            self.host.open(path)

    # -- words -------------------------------------------------------------------------

    def info(self) -> Info:
        history = self.data.history
        about = self.data.facts
        phrases = []
        if history.on_gpu:
            phrases += [
                f"{size_text(history.newest('allocated'))} allocated",
                f"{size_text(history.newest('reserved'))} reserved, "
                f"{history.fragmentation():.0%} of it free, "
                f"{history.split_share():.0%} between blocks",
                f"highest {size_text(history.peak()[1])}",
            ]
        phrases.append(f"host {size_text(history.newest('host'))}")
        if about.gpu:
            phrases.append(f"{about.gpu}, {size_text(about.total)}")
        ooms = int(history.newest("ooms"))
        if ooms:
            times = "once" if ooms == 1 else f"{ooms} times"
            phrases.append(f"out of memory {times}")
        phrases.append(f"{len(history):,} samples, {about.hz:g} a second")
        if about.trouble:
            phrases.append(about.trouble)
        phrases += meta_phrases(about.metadata, ())
        path = "the host's statistics"
        if history.on_gpu:
            path = "statistics of PyTorch's allocator"
        device = f"device {about.device}"
        return Info(phrases, [device], self._readout(), [path], self.timings)

    def _readout(self) -> str:
        """Return time, step and memory below the pointer; "" where it is not."""
        history = self.data.history
        row = None if self.pointer is None else history.row_at(self.pointer)
        if row is None:
            return ""
        texts = [time.strftime("%H:%M:%S", time.localtime(history["time"][row]))]
        step = int(history["step"][row])
        if step >= 0:
            texts.append(f"step {step:,}")
        if history.on_gpu:
            texts.append(f"allocated {size_text(history['peak'][row])}")
        else:
            texts.append(f"host {size_text(history['host'][row])}")
        return "   ".join(texts)
