"""The pane of events: a table of the trace."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from imgui_bundle import ImVec4, imgui

from splatview_viewer.core.quantities import size_text
from splatview_viewer.kinds.snapshot.panes.parts import (
    HIT,
    draw_choice,
    right_aligned_texts,
    size_or_blank,
    stack_tip,
)
from splatview_viewer.kinds.snapshot.panes.table import (
    Cell,
    TableColumn,
    TableRows,
    draw_table,
)
from splatview_viewer.snapshot.analysis.frames import stack_text
from splatview_viewer.snapshot.model import (
    ACTIONS,
    address_text,
    pool_text,
    stream_text,
)
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored, pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.model import Trace
    from splatview_viewer.snapshot.timeline.bands import Bands

_MAX_ROWS = 100_000
"""Rows that imgui scrolls over: of more it loses count."""
_FILTERS = {
    "all": "All",
    "alloc": "Allocations",
    "free": "Frees",
    "segment": "Segments",
    "mark": "OOM and marks",
}
_FILTER_ACTIONS = {
    "alloc": ("alloc",),
    "free": ("free_requested", "free_completed", "free"),
    "segment": ("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    "mark": ("snapshot", "oom", "annotate", "user_defined", "other"),
}
_ACTION_COLORS: dict[str, ImVec4] = {
    "alloc": theme.SUCCESS,
    "oom": theme.FAULT,
    "snapshot": HIT,
    "annotate": HIT,
    "user_defined": HIT,
    **dict.fromkeys(_FILTER_ACTIONS["segment"], theme.ACCENT),
}


class _Window(NamedTuple):
    """The rows of the table, of the events that fit: of too many those around one."""

    first: int
    """Index of the first row among the events that fit."""
    events: Sequence[int] | np.ndarray


def draw_events(view: SnapshotView) -> bool:
    """Draw a table of all events, of one kind, or of what is highlighted.

    Of too many events it has those around the chosen moment.
    """
    trace = view.trace
    shown_filter = draw_choice(view, "show", _FILTERS)
    state = view.state
    highlight_key, mask = view.content.highlight_mask(
        view.device, state.search, state.highlight
    )
    events: Sequence[int] | np.ndarray | None = range(len(trace.events))
    if shown_filter != "all" or mask is not None:
        events = view.content.request(
            ("events", view.device, shown_filter, highlight_key),
            lambda: filter_events(trace, shown_filter, mask),
            newest=True,
        )
    if events is None:
        colored("Working it out\u2026", theme.DIM)
        return False
    if state.moment is None:
        chosen_event = -1
    else:
        chosen_event = state.moment - 1
    chosen_index = bisect_left(events, chosen_event)
    window = _choose_window(view, events, chosen_index)
    listed = window.events
    count_label = f"{len(events):,} events"
    if len(listed) < len(events):
        count_label = f"{listed[0]:,} to {listed[-1]:,} of {count_label}"
    right_aligned_texts((count_label, theme.DIM))

    # Scrolls to the chosen event whenever it, or what the table shows, has changed.
    position = (chosen_event, shown_filter, highlight_key, window.first)
    has_moved = view.pane_memory.get("events at") != position
    view.pane_memory["events at"] = position
    reveal = None
    if chosen_event >= 0 and has_moved:
        reveal = chosen_index - window.first

    def on_click(row: int, double: bool) -> None:
        event = int(listed[row])
        view.choose_moment(event + 1, close=double)
        view.change(selected=_allocation_of(trace, event))
        view.pane_memory["events at"] = (event, *position[1:])

    def tooltip(row: int) -> str:
        stack_column_x = imgui.get_window_pos().x + imgui.get_window_width() * 0.6
        if pointer().x <= stack_column_x:
            return ""
        return stack_tip(view, int(trace.events.stack[int(listed[row])]))

    table = _EventTable(view)
    return draw_table(
        view,
        "events",
        TableRows(
            answer=listed,
            count=len(listed),
            columns=[column.head for column in table.columns],
            cells=lambda row: table.cells(int(listed[row])),
            on_click=on_click,
            is_chosen=lambda row: int(listed[row]) == chosen_event,
            tooltip=tooltip,
            allocation=lambda row: _allocation_of(trace, int(listed[row])),
            empty_text="No such events",
            reveal=reveal,
        ),
    )


def _choose_window(
    view: SnapshotView, events: Sequence[int] | np.ndarray, chosen_index: int
) -> _Window:
    """Return the events that the table has; they move when the chosen one leaves them."""
    first = view.pane_memory.get("events first", 0)
    is_inside = first <= chosen_index < first + _MAX_ROWS
    if len(events) > _MAX_ROWS and not is_inside:
        first = chosen_index - _MAX_ROWS // 2
    first = min(max(first, 0), max(len(events) - _MAX_ROWS, 0))
    view.pane_memory["events first"] = first
    return _Window(first, events[first : first + _MAX_ROWS])


def _allocation_of(trace: Trace, event: int) -> int | None:
    """Return the allocation of an event, or None."""
    allocation = int(trace.events.allocation[event])
    if allocation >= 0:
        return allocation
    return None


def filter_events(trace: Trace, name: str, mask: np.ndarray | None) -> np.ndarray:
    """Return the events that a table shows, int32.

    Args:
        name: a key of the filters: all, alloc, free, segment, mark.
        mask: allocations whose events are listed, bool (A,); None for all events.
    """
    if name == "all":
        is_action = np.ones(len(ACTIONS), bool)
    else:
        is_action = np.isin(ACTIONS, _FILTER_ACTIONS[name])
    fits = is_action[trace.events.action]
    if mask is not None:
        allocation = trace.events.allocation
        fits &= (allocation >= 0) & np.append(mask, False)[allocation]
    return np.flatnonzero(fits).astype(np.int32)


# -- columns ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _EventColumn:
    """A column of the table of events."""

    head: TableColumn
    cell: Callable[[int], Cell]
    """Returns the cell of an event."""


class _EventTable:
    """The cells of the table of events."""

    def __init__(self, view: SnapshotView) -> None:
        self._snapshot = view.content.snapshot
        self._events = view.trace.events
        self._bands: Bands | None = view.content.bands(view.device)
        axis = view.content.axis(view.device, "time")
        if axis is not None:
            self._origin_us = axis.origin_us
        else:
            self._origin_us = 0
        self.columns = [
            _EventColumn(
                TableColumn("Event", 5.2, True, "Its number in the trace"), self._event
            ),
            _EventColumn(
                TableColumn("Time, s", 6.2, True, "Seconds since the first event"),
                self._time,
            ),
            _EventColumn(TableColumn("Action", 8.4), self._action),
            _EventColumn(TableColumn("Size", 5.6, True, "As requested"), self._size),
            _EventColumn(
                TableColumn(
                    "Live then", 5.8, True, "All that is live after this event"
                ),
                self._live,
            ),
            _EventColumn(TableColumn("Address", 8.6), self._address),
        ]
        if len(self._snapshot.streams) > 1:
            self.columns.append(_EventColumn(TableColumn("Stream", 7), self._stream))
        if len(self._snapshot.pools) > 1:
            self.columns.append(_EventColumn(TableColumn("Pool", 8), self._pool))
        self.columns.append(_EventColumn(TableColumn("Where"), self._stack_cell))

    def cells(self, event: int) -> list[Cell]:
        """Return the cells of an event, one for each column."""
        return [column.cell(event) for column in self.columns]

    def _action_name(self, event: int) -> str:
        return ACTIONS[self._events.action[event]]

    def _event(self, event: int) -> Cell:
        return Cell(f"{event:,}", theme.DIM)

    def _time(self, event: int) -> Cell:
        time = int(self._events.time_us[event])
        if time:
            text = f"{(time - self._origin_us) / 1e6:.6f}"
        else:
            text = ""
        return Cell(text, theme.DIM)

    def _action(self, event: int) -> Cell:
        name = self._action_name(event)
        return Cell(name.replace("_", " "), _ACTION_COLORS.get(name, theme.DIM))

    def _size(self, event: int) -> Cell:
        return Cell(size_or_blank(int(self._events.size[event])))

    def _live(self, event: int) -> Cell:
        if self._bands is None:
            return Cell("")
        return Cell(size_text(int(self._bands.live[event + 1])), theme.DIM)

    def _address(self, event: int) -> Cell:
        address = int(self._events.addr[event])
        # The address of an oom is the memory that the driver still had.
        if not address or self._action_name(event) == "oom":
            return Cell("")
        return Cell(address_text(address), theme.DIM)

    def _stream(self, event: int) -> Cell:
        stream = self._snapshot.streams[self._events.stream[event]]
        return Cell(stream_text(stream), theme.DIM)

    def _pool(self, event: int) -> Cell:
        pool = self._snapshot.pool(int(self._events.pool[event]))
        if pool in (None, (0, 0)):
            return Cell("")
        return Cell(pool_text(pool), theme.DIM)

    def _stack_cell(self, event: int) -> Cell:
        """Return the stack and the texts of an event."""
        events = self._events
        snapshot = self._snapshot
        stack = int(events.stack[event])
        stack_label = stack_text(snapshot, stack)
        if self._action_name(event) == "oom":
            free = size_text(int(events.addr[event]))
            return Cell(f"asked in vain; the device had {free} free. {stack_label}")
        texts = (
            stack_label if stack >= 0 else "",
            snapshot.texts[int(events.metadata[event])],
            snapshot.texts[int(events.context[event])],
        )
        return Cell(" \u00b7 ".join(filter(None, texts)))
