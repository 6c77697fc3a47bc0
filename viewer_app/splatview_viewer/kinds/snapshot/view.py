"""The view of a memory snapshot: the holders of a GPU's memory over time."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.events import Key
from splatview_viewer.core.quantities import count_text, size_text
from splatview_viewer.core.screen import Rect, clear_rect
from splatview_viewer.core.view import GradualView, Info, KeyHelp, Section
from splatview_viewer.kinds.snapshot import world
from splatview_viewer.kinds.snapshot.commands import COMMANDS
from splatview_viewer.kinds.snapshot.content import Content
from splatview_viewer.kinds.snapshot.picture import Sheet, TimelinePicture
from splatview_viewer.kinds.snapshot.state import (
    PLOTS,
    Highlight,
    SnapshotState,
)
from splatview_viewer.kinds.snapshot.two_runs import SharedAxes, TwoRuns
from splatview_viewer.kinds.snapshot.window_keys import MOVES, move_window
from splatview_viewer.snapshot import check_timeline
from splatview_viewer.snapshot.model import (
    EMPTY_SNAPSHOT,
    MemorySnapshot,
    find_device,
)
from splatview_viewer.snapshot.timeline.bands import DARK, LIGHT
from splatview_viewer.snapshot.timeline.compiled import pool
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import moderngl

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.readings import Readings
    from splatview_viewer.core.view import Value
    from splatview_viewer.kinds.snapshot.world import PlotWorld
    from splatview_viewer.snapshot.model import Trace
    from splatview_viewer.snapshot.timeline.bands import Addresses, Bands, Measure


_MEASURE_PHRASES: dict[Measure, str] = {
    # Blocks are larger: the allocator rounds what is asked for.
    "requested": "bytes as requested",
    "rounded": "bytes of whole blocks",
    "active": "bytes until freed",
}


class SnapshotData:
    """The snapshot that all views show, and the answers about it."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self.ctx = ctx
        self.content: Content | None = None
        self.has_answers = threading.Event()
        """Set when an answer or a picture is there."""

    def take(self, snapshot: MemorySnapshot) -> None:
        """Show a snapshot from now on."""
        self.close()
        self.content = Content(snapshot, self.has_answers.set)
        self.content.holder = self
        self.content.bands(self.content.busiest)

    def paired_with(self, content: Content) -> SnapshotData:
        """Return the data of another snapshot, for a plot beside this one's."""
        data = SnapshotData(self.ctx)
        data.content = content
        data.has_answers = self.has_answers
        return data

    def close(self) -> None:
        """Drop the snapshot. Idempotent."""
        if self.content is not None:
            self.content.close()
            self.content = None


class SnapshotView(GradualView[SnapshotData, SnapshotState]):
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
        self.picture = TimelinePicture(data.ctx, data.has_answers.set)
        self.scale = 1.0
        """Pixels per point."""
        self.pointer = 0.0, 0.0
        """The last position of the pointer in the plot, on both axes."""
        self.focus_search = False
        """The search field gets the keyboard with the next picture."""
        self.two_runs = TwoRuns(self)
        self.shared = SharedAxes()
        """What its plot has in common with another one, while it is drawn."""
        self.pane_memory: dict[Any, Any] = {}
        """What panes keep from one picture to the next."""
        self._shown_content = data.content
        """The content that the state is of."""
        self._drawn_changes = 0
        """`Content.changes` when it was drawn."""
        self._state_changed = False
        """The last drawing changed the state."""

    def undoable_state(self) -> SnapshotState:
        partner = self.state.partner
        if partner is not None:
            partner = replace(partner, hovered=None, pointed_moment=None)
        return replace(self.state, hovered=None, pointed_moment=None, partner=partner)

    def take(self, link: str, value: Value) -> bool:
        if not isinstance(value, MemorySnapshot):
            raise ViewerError(
                f"snapshot: {type(value).__name__} is not a memory snapshot; open a file that "
                "torch.cuda.memory._dump_snapshot wrote"
            )
        check_timeline()
        if not value.traces:
            raise ViewerError(f"snapshot: {EMPTY_SNAPSHOT}")
        self.data.take(value)
        self._sync()
        return True

    def _sync(self) -> bool:
        """Reset what was chosen in a snapshot that is gone; return True if it is."""
        content = self.data.content
        if self._shown_content is content:
            return False
        if self._shown_content is not None:
            self.state = self.state.for_device()
        self._shown_content = content
        self.pane_memory.clear()
        self.picture.release()
        return True

    # -- what the plot and the panes read and change -----------------------------------

    @property
    def content(self) -> Content:
        """The snapshot, and the answers about it."""
        assert self.data.content is not None
        return self.data.content

    @property
    def device(self) -> int:
        """The shown device, an index into `MemorySnapshot.traces`."""
        if self.state.device is None:
            return self.content.busiest
        return self.state.device

    @property
    def trace(self) -> Trace:
        """The trace of the shown device."""
        return self.content.snapshot.traces[self.device]

    def choose_device(self, name: str) -> None:
        """Show the device of this name: "1", "host".

        Raises:
            ViewerError: the snapshot has no such device.
        """
        device = find_device(self.content.snapshot, name)
        self.state = self.state.for_device(device)

    @property
    def tab(self) -> str:
        """The shown tab, one of TABS."""
        if self.state.tab:
            return self.state.tab
        if self.content.ooms(self.device):
            return "oom"
        return "timeline"

    @property
    def moment(self) -> int | None:
        """The moment that panes are of; None until it is known."""
        if self.state.moment is None:
            return self.content.peak(self.device)
        return self.state.moment

    @property
    def measure(self) -> Measure:
        """The bytes that its bands show: those that were chosen, if the trace tells them."""
        if self.content.why_not_measured(self.device, self.state.measure):
            return "requested"
        return self.state.measure

    @property
    def bands(self) -> Bands | None:
        """The layout of its timeline; None until it is known."""
        return self.content.bands(self.device, self.measure)

    def world(self) -> PlotWorld | None:
        """Return the axes and layers of the plot; None until they are known."""
        content = self.content
        device = self.device
        axis = content.axis(device, self.state.unit)
        bands = self.bands
        painter: Bands | Addresses | None = bands
        if self.state.tab == "addresses":
            painter = content.addresses(device)
        if axis is None or bands is None or painter is None:
            return None
        return world.PlotWorld(axis, bands, painter, self.shared)

    def change(self, **changes: Any) -> None:
        """Set fields of the state."""
        self.state = replace(self.state, **changes)

    def choose_moment(self, event_index: int, *, close: bool = False) -> None:
        """Choose a moment, and move the window to it if it is outside.

        Args:
            close: zoom in to a two-hundredth of the axis, or less.
        """
        axis = self.content.axis(self.device, self.state.unit)
        self.change(moment=event_index)
        if axis is None or (self.state.x is None and not close):
            return
        x = axis.x_of(event_index)
        x0, x1 = self.state.x or axis.extent
        if not close and x0 <= x <= x1:
            return
        width = x1 - x0
        if close:
            low, high = axis.extent
            width = min(width, max((high - low) / 200, 1.0))
        window = (x - width / 2, x + width / 2)
        self.change(x=world.clamp_range(window, axis.extent, width))

    def toggle_highlight(
        self, key: tuple[Any, ...], row: int, ids: np.ndarray, label: str
    ) -> None:
        """Show the allocations of an answer's row highlighted, or no longer."""
        if self.is_highlighted(key, row):
            self.change(highlight=None)
            return
        mask = np.zeros(len(self.trace.allocations), bool)
        mask[ids] = True
        self.change(highlight=Highlight(key, row, label, mask))

    def is_highlighted(self, key: tuple[Any, ...], row: int) -> bool:
        """Return whether the allocations of an answer's row are highlighted."""
        highlight = self.state.highlight
        return highlight is not None and (highlight.key, highlight.row) == (key, row)

    # -- drawing -------------------------------------------------------------------------

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self._sync()
        clear_rect(framebuffer, rect, theme.rgb(theme.PLOT))

    def ui(self, rect: Rect, scale: float) -> bool:
        from splatview_viewer.kinds.snapshot.axes import draw_minimap, draw_plot
        from splatview_viewer.kinds.snapshot.bar import draw_bar
        from splatview_viewer.kinds.snapshot.panes import draw_pane

        previous_state = self.state
        self.scale = scale
        self._drawn_changes = self._changes()
        if self._is_comparing:
            from splatview_viewer.kinds.snapshot.comparison import draw_comparison

            is_drawn, needs_redraw = draw_comparison(self, rect)
            if is_drawn:
                self._state_changed = self.state != previous_state
                return needs_redraw or self._state_changed
        self.shared = SharedAxes()
        has_details = self.state.selected is not None and self.host.around == "none"
        # The time area has the overview.
        is_alone = self.host.around == "none"
        layout = world.lay_out(
            rect, scale, self.tab, details=has_details, overview=is_alone
        )
        minimap = layout.minimap
        if layout.plot is None:
            self.picture.release()
        else:
            inner = draw_plot(self, layout.plot)
            if minimap is not None:
                minimap = Rect(inner.x, minimap.y, inner.width, minimap.height)
        if minimap is not None:
            draw_minimap(self, minimap)
        needs_redraw = False
        if layout.bar is not None:
            needs_redraw |= draw_bar(self, layout.bar)
        # The bar may have chosen another tab.
        if layout.pane is not None and self.tab not in PLOTS:
            needs_redraw |= draw_pane(self, self.tab, layout.pane)
        if layout.details is not None:
            needs_redraw |= draw_pane(self, "details", layout.details)
        self._state_changed = self.state != previous_state
        return needs_redraw or self._state_changed

    @property
    def _is_comparing(self) -> bool:
        """True while the timeline is compared, with another one or at two moments."""
        return self.state.shows != "alone" and self.tab == "timeline"

    def _changes(self) -> int:
        """Return a number that differs once there are more answers."""
        partner = self.two_runs.partner
        if partner is None:
            partner_changes = 0
        else:
            partner_changes = partner.content.changes
        return self.content.changes + partner_changes

    def paint(self, plot_world: PlotWorld, plot: Rect) -> None:
        """Draw the picture into ImPlot's open plot, which covers this rectangle."""
        state = self.state
        device = self.device
        (x0, x1), (y0, y1) = plot_world.window(state)
        colors = self.content.colors(device, state.color_by)
        highlight_key, mask = self.content.highlight_mask(
            device, state.search, state.highlight
        )
        if colors is not None:
            is_addresses = state.tab == "addresses"
            sheet = Sheet(
                world=(
                    id(self.content),
                    device,
                    is_addresses,
                    state.unit,
                    self.measure,
                ),
                colors=(state.color_by, highlight_key),
                x0=x0,
                step=(x1 - x0) / plot.width,
                width=plot.width,
                low=y0,
                per_pixel=(y1 - y0) / plot.height,
                height=plot.height,
                grounds=LIGHT if theme.is_light() else DARK,
            )
            self.picture.request(sheet, plot_world, colors, mask)
        hovered = None if self.host.exact else state.hovered
        self.picture.draw(hovered, state.selected)

    # -- events --------------------------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool:
        if not isinstance(event, Key) or not event.pressed:
            return False
        if event.mods & {"ctrl", "alt", "super"}:
            return False
        self._sync()
        name = event.name
        state = self.state
        plot_world = self.world()
        if plot_world is not None and name in MOVES:
            if state.pointed_moment is not None:
                pointer = self.pointer
            else:
                pointer = None
            along_x = "shift" in event.mods
            self.state = move_window(plot_world, state, name, pointer, along_x=along_x)
        elif name == "escape":
            self.state = state.after_escape()
        return False

    def pointed_or_chosen_moment(self) -> int | None:
        """Return the moment under the pointer, otherwise the chosen one."""
        if self.state.pointed_moment is not None:
            return self.state.pointed_moment
        return self.state.moment

    def commands(self) -> Sequence[Command[Any]]:
        return COMMANDS

    def tick(self, now: float) -> bool:
        content = self.data.content
        if content is None or self._sync():
            return content is not None
        changes = self._changes()
        if changes != self._drawn_changes:
            self._drawn_changes = changes
            return True
        partner = self.two_runs.partner
        if partner is not None and partner.picture.tick():
            return True
        return self.picture.tick()

    @property
    def complete(self) -> bool:
        content = self.data.content
        if content is None or content.busy or self._state_changed:
            return False
        partner = self.two_runs.partner
        if partner is not None:
            is_busy = partner.content.busy or partner._state_changed
            if is_busy or not partner.picture.complete:
                return False
        return self._changes() == self._drawn_changes and self.picture.complete

    @property
    def fault(self) -> str:
        return self.picture.error or self.content.layout_fault

    def wait(self, timeout: float) -> None:
        if not self.complete and not self._state_changed:
            if self.two_runs.partner is not None:
                # The other one's answers set another event.
                timeout = min(timeout, 0.02)
            self.data.has_answers.wait(timeout)
            self.data.has_answers.clear()

    def release(self, occasion: Literal["idle", "away", "closed", "last"]) -> None:
        if occasion != "idle":
            self.picture.release()
            self.two_runs.close()
        if occasion == "last":
            self.data.close()

    # -- the panel -----------------------------------------------------------------------

    def covered(self, rect: Rect) -> Sequence[Rect]:
        return (rect,)

    def lanes(self) -> Sequence[Lane]:
        if self.data.content is None:
            return ()
        from splatview_viewer.kinds.snapshot.lane import ComparedLane, OverviewLane

        partner = self.two_runs.partner
        if partner is None or self.tab != "timeline":
            return (OverviewLane(self),)
        return [ComparedLane(self, side) for side in self.two_runs.sides(partner)]

    def readings(self) -> Readings | None:
        if self.data.content is None:
            return None
        from splatview_viewer.kinds.snapshot.captions import readings_of

        return readings_of(self)

    def compared(self) -> Mapping[str, Any]:
        partner = self.two_runs.partner
        if partner is None:
            return {}
        sides = self.two_runs.sides(partner)
        return {
            letter: side.content.holder
            for letter, side in zip("AB", sides, strict=True)
        }

    def inner_tie(self) -> bool | None:
        if self.two_runs.partner is None:
            return None
        return self.state.tied_time and self.state.tied_bytes

    def switch_inner_tie(self) -> None:
        is_tied = not self.inner_tie()
        self.change(tied_time=is_tied, tied_bytes=is_tied)

    def awaits_second(self, kind: str) -> bool:
        return (
            kind == self.kind
            and self.data.content is not None
            and not self.content.other_contents()
        )

    def compare_with(self, data: SnapshotData) -> None:
        if data.content is not None:
            self.two_runs.compare_with(data.content)

    def panel(self) -> Sequence[Section]:
        from splatview_viewer.kinds.snapshot.controls import sections_of

        return sections_of(self)

    def info(self) -> Info:
        snapshot = self.content.snapshot
        traces = snapshot.traces
        event_index = self.state.pointed_moment
        bands = self.content.peek(("bands", self.device, self.measure))
        readout = ""
        if (
            bands is not None
            and event_index is not None
            and event_index < len(bands.live)
        ):
            readout = (
                f"{event_index:,}   {size_text(int(bands.live[event_index]))} live"
            )
        event_count = sum(len(trace.events) for trace in traces)
        counts = {
            "device": len(traces) if len(traces) > 1 else 0,
            "allocation": sum(len(trace.allocations) for trace in traces),
            "note": len(snapshot.notes),
        }
        phrases = [count_text(count, name) for name, count in counts.items() if count]
        phrases.append(_MEASURE_PHRASES[self.measure])
        settings = [f"{name}: {value}" for name, value in snapshot.settings.items()]
        return Info(
            phrases,
            [count_text(event_count, "event"), *snapshot.notes, *settings],
            readout,
            [f"painted by {pool()._max_workers} threads"],
            *self._titles(),
        )

    def _titles(self) -> tuple[str, str]:
        """Return what is compared, for the strip; "" for a snapshot alone."""
        partner = self.two_runs.partner
        if partner is None:
            return "", ""
        names = [v.content.snapshot.name for v in self.two_runs.sides(partner)]
        return "Memory", " and ".join(names)

    @property
    def timings(self) -> Mapping[str, float]:
        return self.picture.ms
