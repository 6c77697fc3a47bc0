"""Shows a memory snapshot: who held how much of a GPU's memory, and when."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key
from splatview_viewer.core.format import count_text, size_text
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.view import Info, KeyHelp, Section, View
from splatview_viewer.geometry.controls import ZOOM_STEP
from splatview_viewer.kinds.snapshot import world
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.kinds.snapshot.picture import Sheet, TimelinePicture
from splatview_viewer.kinds.snapshot.state import (
    COLORS,
    PLOTS,
    TABS,
    Highlight,
    SnapshotState,
)
from splatview_viewer.snapshot import check_timeline
from splatview_viewer.snapshot.model import (
    MemorySnapshot,
    device_text,
    find_device,
)
from splatview_viewer.snapshot.timeline.compiled import pool
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.view import Value
    from splatview_viewer.kinds.snapshot.world import PlotWorld
    from splatview_viewer.snapshot.model import Trace

_PAN = 0.12
"""Share of the window that one press of a key moves it."""
_MOVES = {
    "a": (-1, 0, 0),
    "left": (-1, 0, 0),
    "d": (1, 0, 0),
    "right": (1, 0, 0),
    "w": (0, 1, 0),
    "up": (0, 1, 0),
    "s": (0, -1, 0),
    "down": (0, -1, 0),
    "e": (0, 0, 1),
    "equal": (0, 0, 1),
    "q": (0, 0, -1),
    "minus": (0, 0, -1),
}
"""Keys that go right, go up, and zoom in."""
_TABS = dict(zip("123456789", TABS, strict=False))
_PAGE = (0.083, 0.088, 0.100)
"""Around the plot, RGB in [0, 1]."""


class SnapshotData:
    """The snapshot that all views show, and what is worked out of it."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self.ctx = ctx
        self.content: Content | None = None
        self.news = threading.Event()
        """Set when something was worked out or painted."""

    def take(self, snapshot: MemorySnapshot) -> None:
        """Show this one from now on."""
        self.close()
        self.content = Content(snapshot, self.news.set)
        self.content.bands(self.content.busiest)

    def close(self) -> None:
        """Drop the snapshot. Idempotent."""
        if self.content is not None:
            self.content.close()
            self.content = None


class SnapshotView(View[SnapshotData, SnapshotState]):
    """One user's view of a snapshot: a timeline, and below it the pane of a tab."""

    kind: ClassVar[str] = "snapshot"
    keys = (
        KeyHelp(
            "Snapshot", "Wheel, pinch, Q E", "Zoom; Shift, Ctrl: time or bytes alone"
        ),
        KeyHelp("Snapshot", "Drag, W A S D", "Move"),
        KeyHelp("Snapshot", "F, double click", "See all of it"),
        KeyHelp("Snapshot", "Click", "Choose an allocation"),
        KeyHelp("Snapshot", "Escape", "Choose none"),
        KeyHelp("Snapshot", "M", "Mark A, B to compare"),
        KeyHelp("Snapshot", "/", "Search"),
    )

    def __init__(self, data: SnapshotData, state: SnapshotState) -> None:
        super().__init__(data, state)
        self.picture = TimelinePicture(data.ctx, data.news.set)
        self.scale = 1.0
        """Pixels per point."""
        self.pointer = 0.0, 0.0
        """The last place of the pointer in the plot, on both axes."""
        self.focus_search = False
        """The keyboard goes to the search field with the next picture."""
        self.pane_memory: dict[Any, Any] = {}
        """Values that panes keep from one picture to the next."""
        self._of = data.content
        """The content that the state is about."""
        self._answers = 0
        """`Content.changes` when it was drawn."""
        self._moved = False
        """The last drawing changed the state."""

    def take(self, link: str, value: Value) -> bool:
        if not isinstance(value, MemorySnapshot):
            raise ViewerError(
                f"snapshot: {type(value).__name__} is not a memory snapshot; open a file that "
                "torch.cuda.memory._dump_snapshot wrote"
            )
        check_timeline()
        if not value.traces:
            raise ViewerError(
                "snapshot: it holds no events and no segments of any device; was memory recorded "
                "(torch.cuda.memory._record_memory_history) before it was taken?"
            )
        self.data.take(value)
        self._sync()
        return True

    def _sync(self) -> bool:
        """Forget what was chosen in a snapshot that is gone; True if there was one."""
        gone = self._of is not self.data.content
        if gone:
            if self._of is not None:
                self.state = self.state.for_device()
            self._of = self.data.content
            self.pane_memory.clear()
            self.picture.release()
        return gone

    # -- what panes and hands read and change ----------------------------------------------------------------------

    @property
    def content(self) -> Content:
        assert self.data.content is not None
        return self.data.content

    @property
    def device(self) -> int:
        """The device that is shown, a place in `Snapshot.traces`."""
        return self.content.busiest if self.state.device is None else self.state.device

    @property
    def trace(self) -> Trace:
        return self.content.snapshot.traces[self.device]

    @property
    def device_label(self) -> str:
        """The device in the picture and the number of all; "" where there is only one GPU."""
        count = len(self.content.snapshot.traces)
        if count > 1:
            return f"{device_text(self.trace.device)}, one of {count} devices"
        return "" if self.trace.device >= 0 else device_text(self.trace.device)

    def choose_device(self, name: str) -> None:
        """Show the device of this name: "1", "host". Raises ViewerError for one that the snapshot has not."""
        self.state = self.state.for_device(find_device(self.content.snapshot, name))

    @property
    def tab(self) -> str:
        return self.state.tab or (
            "oom" if self.content.ooms(self.device) else "timeline"
        )

    @property
    def moment(self) -> int | None:
        """The moment that panes tell of; None until it is known."""
        if self.state.moment is None:
            return self.content.peak(self.device)
        return self.state.moment

    def world(self) -> PlotWorld | None:
        """Return the axes and layers of the plot; None until they are known."""
        content = self.content
        device = self.device
        axis = content.axis(device, self.state.unit)
        bands = content.bands(device)
        painter = content.addresses(device) if self.state.tab == "addresses" else bands
        if axis is None or bands is None or painter is None:
            return None
        return world.PlotWorld(axis, bands, painter)

    def change(self, **changes: Any) -> None:
        """Change the state."""
        self.state = replace(self.state, **changes)

    def choose_moment(self, moment: int, *, close: bool = False) -> None:
        """Choose a moment and bring it into sight. close: see a two-hundredth of all there, or less."""
        axis = self.content.axis(self.device, self.state.unit)
        self.change(moment=moment)
        if axis is None or (self.state.x is None and not close):
            return
        (low, high), at = axis.extent, axis.x_of(moment)
        x0, x1 = self.state.x or axis.extent
        width = min(x1 - x0, max((high - low) / 200, 1.0)) if close else x1 - x0
        if close or not x0 <= at <= x1:
            self.change(
                x=world.clamp_range(
                    (at - width / 2, at + width / 2), axis.extent, width
                )
            )

    def toggle_highlight(
        self, key: tuple[Any, ...], row: int, ids: np.ndarray, words: str
    ) -> None:
        """Have the allocations of a row of an answer seen among the rest; no longer if they are."""
        mask = np.zeros(len(self.trace.allocations), bool)
        mask[ids] = True
        self.change(
            highlight=None
            if self.is_highlighted(key, row)
            else Highlight(key, row, words, mask)
        )

    def is_highlighted(self, key: tuple[Any, ...], row: int) -> bool:
        lit = self.state.highlight
        return lit is not None and (lit.key, lit.row) == (key, row)

    # -- drawing ---------------------------------------------------------------------------------------------------

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._sync()
        framebuffer.use()
        framebuffer.clear(*_PAGE, 1.0, viewport=rect.viewport(framebuffer.height))

    def ui(self, rect: Rect, scale: float) -> bool:
        from splatview_viewer.kinds.snapshot.axes import (
            draw_bar,
            draw_minimap,
            draw_plot,
        )
        from splatview_viewer.kinds.snapshot.panes import draw_pane

        content = self.content
        before = self.state
        self.scale = scale
        self._answers = content.changes
        again = False
        layout = world.lay_out(
            rect, scale, self.tab, details=self.state.selected is not None
        )
        plot = layout.plot
        strip = layout.minimap
        if plot is not None:
            plot = draw_plot(self, plot)
        else:
            self.picture.release()
        if strip is not None:
            draw_minimap(
                self,
                Rect(plot.x, strip.y, plot.width, strip.height)
                if plot is not None
                else strip,
            )
        if layout.bar is not None:
            again |= draw_bar(self, layout.bar)
        if (
            layout.pane is not None and self.tab not in PLOTS
        ):  # which the bar may have chosen
            again |= draw_pane(self, self.tab, layout.pane)
        if layout.details is not None:
            again |= draw_pane(self, "details", layout.details)
        self._moved = self.state != before
        return again or self._moved

    def paint(self, found: PlotWorld, plot: Rect) -> None:
        """Draw the picture into ImPlot's plot that is open, which covers this rectangle."""
        state, device, (x, y) = self.state, self.device, found.window(self.state)
        colors, (lit, mask) = (
            self.content.colors(device, state.color_by),
            self.content.highlight_mask(device, state.search, state.highlight),
        )
        if colors is not None:
            self.picture.request(
                Sheet(
                    (id(self.content), device, state.tab == "addresses", state.unit),
                    (state.color_by, lit),
                    x[0],
                    (x[1] - x[0]) / plot.width,
                    plot.width,
                    y[0],
                    (y[1] - y[0]) / plot.height,
                    plot.height,
                ),
                found,
                colors,
                mask,
            )
        self.picture.draw(
            None if self.host.exact else self.state.hovered, self.state.selected
        )

    # -- events ----------------------------------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        if (
            not isinstance(event, Key)
            or not event.pressed
            or event.mods & {"ctrl", "alt", "super"}
        ):
            return False
        self._sync()
        name = event.name
        state = self.state
        found = self.world()
        moment = state.moment if state.pointed_moment is None else state.pointed_moment
        if found is not None and (name in _MOVES or name in ("home", "end")):
            (x, y), (right, up, zoom) = found.window(state), _MOVES.get(name, (0, 0, 0))
            if state.pointed_moment is not None:
                at = self.pointer
            else:
                at = ((x[0] + x[1]) / 2, (y[0] + y[1]) / 2)
            x, y = (
                world.zoom_range(
                    (
                        low + step * _PAN * (high - low),
                        high + step * _PAN * (high - low),
                    ),
                    place,
                    ZOOM_STEP ** (2 * zoom),
                )
                for (low, high), step, place in zip(
                    (x, y), (right, up), at, strict=True
                )
            )
            (low, high), width = found.axis.extent, x[1] - x[0]
            x = {"home": (low, low + width), "end": (high - width, high)}.get(name, x)
            self.state = found.with_window(
                state, x, None if "shift" in event.mods else y
            )
        elif name == "f":
            self.state = state.without_window()
        elif name == "escape":
            self.state = state.after_escape()
        elif name == "m" and moment is not None:
            self.state = state.with_mark(moment)
        elif name in _TABS:
            self.change(tab=_TABS[name])
        self.focus_search |= name == "slash"
        return name == "slash"

    def tick(self, now: float) -> bool:
        content = self.data.content
        if content is None or self._sync():
            return content is not None
        if content.changes != self._answers:
            self._answers = content.changes
            return True
        return self.picture.tick()

    @property
    def status_text(self) -> str:
        """Words beside the timeline, or instead of it: what is wrong, or being worked on."""
        if self.picture.error:
            return f"It cannot be painted: {self.picture.error}"
        busy = self.content.current_work or (
            "Painting" if self.picture.current is None else ""
        )
        return self.content.layout_fault or (f"{busy} \u2026" if busy else "")

    @property
    def missing_text(self) -> str:
        """Words over the plot for what the snapshot does not tell; "" where nothing is missing."""
        trace = self.trace
        if not len(trace.allocations) and not len(trace.spans):
            events = count_text(len(trace.events), "event")
            return f"Nothing was allocated or reserved in this trace ({events})"
        if self.tab == "addresses" and not len(trace.spans):
            return "The snapshot names no segments: only the addresses of allocations are known"
        return ""

    @property
    def complete(self) -> bool:
        """True if the last picture showed everything as it should be: nothing is being worked on for it."""
        content = self.data.content
        return (
            content is not None
            and not content.busy
            and content.changes == self._answers
            and not self._moved
            and self.picture.complete
        )

    def wait(self, timeout: float) -> None:
        """Wait until another picture would show more than the last one, at most so many seconds. For callers that need
        a complete picture and do nothing else meanwhile.
        """
        if not self.complete and not self._moved:
            self.data.news.wait(timeout)
            self.data.news.clear()

    def release(self, how: Literal["idle", "away", "closed", "last"]) -> None:
        if how != "idle":
            self.picture.release()
        if how == "last":
            self.data.close()

    # -- the panel and words -----------------------------------------------------------------------------------------

    def covered(self, rect: Rect) -> Sequence[Rect]:
        return (rect,)

    def panel(self) -> Sequence[Section]:
        return (Section("", self._controls),)

    def _controls(self) -> None:
        snapshot = self.content.snapshot
        state = self.state
        if len(snapshot.traces) > 1:
            names = {k: device_text(t.device) for k, t in enumerate(snapshot.traces)}
            device = ui.choice(
                "Device", "The device whose memory is shown", self.device, names
            )
            if device != self.device:
                state = state.for_device(device)
                self.state = state
        color_by: Any = ui.choice(
            "Colour",
            "The property of an allocation that its colour stands for",
            state.color_by,
            COLORS,
        )
        axis = self.content.axis(self.device, "time")
        unit = state.unit
        if axis is not None:
            if axis.has_times:
                unit = ui.choice(
                    "Axis",
                    "Events at equal distances, or by the time at which they happened",
                    unit,
                    {"events": "Events", "time": "Clock"},
                )
            else:
                unit = "events"
        legend = ui.check(
            "Legend", "The list of colours over the timeline", state.legend
        )
        self.change(
            unit=unit,
            color_by=color_by,
            legend=legend,
            x=state.x if unit == state.unit else None,
        )

    def info(self) -> Info:
        content = self.content
        pointed = self.state.pointed_moment
        bands = content.peek(("bands", self.device))
        if bands is None or pointed is None or pointed >= len(bands.live):
            readout = ""
        else:
            readout = f"{pointed:,}   {size_text(int(bands.live[pointed]))} live"
        settings = [
            f"{name}: {value}" for name, value in content.snapshot.settings.items()
        ]
        traces = content.snapshot.traces
        notes = len(content.snapshot.notes)
        counts = {
            "device": len(traces) if len(traces) > 1 else 0,
            "event": sum(len(t.events) for t in traces),
            "allocation": sum(len(t.allocations) for t in traces),
            "note": notes,
        }
        phrases = [count_text(count, what) for what, count in counts.items() if count]
        return Info(
            phrases,
            [*content.snapshot.notes, *settings],
            readout,
            [f"painted by {pool()._max_workers} threads"],
            self.picture.ms,
        )
