"""The view of a trainer's memory: a plot of what is allocated and reserved over time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from imgui_bundle import imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.core.view import Info, KeyHelp, Section, frame_of, meta_phrases
from splatview_viewer.kinds.memory.commands import COMMANDS
from splatview_viewer.kinds.memory.live import MemoryFacts, MemoryHistory, read_frame
from splatview_viewer.kinds.memory.plot import draw_plot
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.plot_view import PlotView

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.view import Value

_MIN_SPAN_S = 0.05
"""Length of the shortest period that the plot can show."""
_MAX_SPAN_S = 1e7
"""Length of the longest period that the plot can show."""
_REQUEST_TIMEOUT_S = 60.0
"""Time after which a requested snapshot is no longer opened when it arrives."""


@dataclass
class MemoryData:
    """The content of a stream of memory samples, which all its views share."""

    history: MemoryHistory = field(default_factory=MemoryHistory.empty)
    """Samples over time."""
    facts: MemoryFacts = field(default_factory=MemoryFacts)
    """The stream's metadata: the GPU, and snapshots that were taken."""
    request_snapshot: Callable[[], None] | None = None
    """Asks the trainer for a full snapshot.

    The workspace sets it. None while the trainer cannot be asked.
    """


@dataclass(frozen=True)
class MemoryState:
    """The period that a user has chosen to see, and of which memory."""

    shows_host: bool = False
    """True to show the host's memory beside the GPU's."""
    span: float | None = None
    """Length of the visible period in seconds; None for all samples."""
    right: float | None = None
    """End of the visible period, in seconds since the epoch.

    With None the plot follows the newest sample.
    """


class _SnapshotRequest(NamedTuple):
    """A request for a full snapshot that the trainer has not answered yet."""

    snapshots_before: int
    """Number of snapshots that the trainer had taken before the request."""
    deadline: float
    """Time after which the answer is no longer opened, by `tick`'s clock."""


class MemoryView(PlotView[MemoryData, MemoryState]):
    """A plot of the trainer's memory over time, which a user can zoom and move."""

    kind: ClassVar[str] = "memory"
    keys = (
        KeyHelp("Memory", "Wheel, pinch", "Zoom in time"),
        KeyHelp("Memory", "Drag", "Move in time"),
        KeyHelp("Memory", "F, double click", "See all of it"),
    )
    _now = 0.0
    _request: _SnapshotRequest | None = None
    """The request that the trainer has not answered yet; None if there is none."""

    def take(self, link: str, value: Value) -> bool:
        frame = frame_of(self.kind, value)
        history, facts = read_frame(frame.tensors, frame.meta)
        if not frame.intact():
            return False
        self.data.history = history
        self.data.facts = facts
        return True

    # -- the visible period ------------------------------------------------------------

    def visible_period(self) -> tuple[float, float]:
        """Return where the plot begins and ends, in seconds since the epoch."""
        history = self.data.history
        if self.state.right is None:
            right = history.last_time
        else:
            right = self.state.right
        if self.state.span is None:
            span = history.duration
        else:
            span = self.state.span
        return right - span, right

    def upper_limit(self, begin: float, end: float) -> float:
        """Return the bytes at the plot's upper edge for a visible period.

        The edge rises above the GPU's total memory once the usage comes close to it, so
        that the line of the limit is visible.
        """
        history = self.data.history
        total = self.data.facts.total
        if history.on_gpu:
            names = ["reserved", "peak", "active"]
        else:
            names = []
        if self.state.shows_host or not names:
            names.append("host")
        highest = max(history.peak(begin, end, name)[1] for name in names)
        is_near_limit = 0.6 * total < highest <= 1.05 * total
        if total and is_near_limit and history.on_gpu:
            return 1.06 * total
        return max(1.12 * highest, 1.0)

    def show_period(self, begin: float, end: float) -> None:
        """Show a period, moved towards the samples where it holds none.

        A period that ends at the newest sample follows new samples from then on. One
        that is hardly shorter than the history shows all samples.
        """
        history = self.data.history
        old_begin, old_end = self.visible_period()
        span = min(max(end - begin, _MIN_SPAN_S), _MAX_SPAN_S)
        if span >= 1.2 * history.duration:
            self.show_all()
            return
        right = self.state.right
        is_same_length = abs(span - (old_end - old_begin)) < 1e-6 * span
        # A plot that follows the newest sample goes on to do so while it is zoomed.
        if is_same_length or right is not None:
            margin = min(0.5 * span, history.last_time - history.first_time)
            right = max(end, history.first_time + margin)
            if end >= history.last_time:
                right = None
        self.state = replace(self.state, span=span, right=right)

    def show_all(self) -> None:
        """Show all samples, and follow new ones."""
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

    # -- full snapshots ----------------------------------------------------------------

    def request_snapshot(self) -> None:
        """Ask the trainer for a full snapshot, which is opened once it has arrived."""
        if self.data.request_snapshot is not None:
            deadline = self._now + _REQUEST_TIMEOUT_S
            self._request = _SnapshotRequest(self.data.facts.snapshots, deadline)
            self.data.request_snapshot()

    def tick(self, now: float) -> bool:
        self._now = now
        request = self._request
        if request is None:
            return False
        memory_facts = self.data.facts
        is_answered = memory_facts.snapshots > request.snapshots_before
        if is_answered or now > request.deadline:
            self._request = None
        if is_answered and memory_facts.snapshot_path is not None:
            self.host.open(memory_facts.snapshot_path)
        return self._request is None

    def commands(self) -> Sequence[Command[Any]]:
        return COMMANDS

    def panel(self) -> Sequence[Section]:
        sections = [self._snapshot_section()]
        if self.data.history.on_gpu:
            if self.state.shows_host:
                shown_memory = "with the host's"
            else:
                shown_memory = "of the GPU"
            show = Section(
                "Show",
                self._draw_show,
                opened=True,
                tip="Which memory is plotted",
                state=shown_memory,
                reset=self._reset_show,
            )
            sections.insert(0, show)
        return sections

    def _snapshot_section(self) -> Section:
        """Return the section of the full snapshots."""
        path = self.data.facts.snapshot_path
        return Section(
            "Full snapshots",
            self._draw_snapshots,
            opened=True,
            tip="Every allocation with its stack, at one moment of the training",
            tab="data",
            state="none yet" if path is None else path.name,
        )

    def _reset_show(self) -> None:
        """Plot the memory of the GPU alone."""
        self.state = replace(self.state, shows_host=False)

    def _draw_show(self) -> None:
        """Draw the choice of memory."""
        shows_host = ui.segments(
            "Host memory",
            "The memory of the process beside that of the GPU",
            self.state.shows_host,
            {False: "Hidden", True: "Shown"},
        )
        self.state = replace(self.state, shows_host=shows_host)

    def _draw_snapshots(self) -> None:
        """Draw the buttons that take a full snapshot, and open the last one."""
        path = self.data.facts.snapshot_path
        is_pressed = controls.button(
            "Take a full snapshot" if self._request is None else "Waiting for it",
            "memory",
            name="Take a full snapshot",
            width=-1,
            reason=self.why_no_request(),
            hint="Every allocation with its stack. The training stops for a moment.",
        )
        if is_pressed:
            self.request_snapshot()
        reason = self._cpu_reason
        if reason is None and path is None:
            reason = "there is none yet"
        if (
            controls.button(
                "Open the last one",
                "open",
                width=-1,
                reason=reason,
                hint="" if path is None else str(path),
            )
            and path is not None
        ):
            self.host.open(path)
        if self._cpu_reason is not None:
            ui.wrapped(self._cpu_reason, theme.FAINT)

    @property
    def _cpu_reason(self) -> str | None:
        """Return why there are no full snapshots of this training; None: there may be."""
        if self.data.facts.device == "cpu":
            return "CUDA is not in use there"
        return None

    def why_no_request(self) -> str | None:
        """Return why no full snapshot can be asked for now; None: one can."""
        if self._cpu_reason is not None:
            return self._cpu_reason
        if self._request is not None:
            return "the trainer is taking it"
        if self.data.request_snapshot is None:
            return "nothing runs"
        return None

    # -- texts -------------------------------------------------------------------------

    def info(self) -> Info:
        history = self.data.history
        memory_facts = self.data.facts
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
        if memory_facts.gpu:
            phrases.append(f"{memory_facts.gpu}, {size_text(memory_facts.total)}")
        ooms = int(history.newest("ooms"))
        if ooms:
            times = "once" if ooms == 1 else f"{ooms} times"
            phrases.append(f"out of memory {times}")
        phrases.append(f"{len(history):,} samples, {memory_facts.hz:g} a second")
        if memory_facts.trouble:
            phrases.append(memory_facts.trouble)
        phrases += meta_phrases(memory_facts.metadata, ())
        origin = "the host's statistics"
        if history.on_gpu:
            origin = "statistics of PyTorch's allocator"
        return Info(
            details=phrases,
            extras=[f"device {memory_facts.device}"],
            readout=self._readout(),
            path=[origin],
        )

    def _readout(self) -> str:
        """Return time, step and memory at the pointer; "" outside the samples."""
        history = self.data.history
        if self.pointer is None:
            row = None
        else:
            row = history.row_at(self.pointer)
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
