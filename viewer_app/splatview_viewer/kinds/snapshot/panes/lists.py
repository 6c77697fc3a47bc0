"""Panes of one table each: events, segments with their blocks, growth between moments, leaks, failed allocations."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.format import (
    age_text,
    change_text,
    count_text,
    exact_size_text,
    size_text,
)
from splatview_viewer.kinds.snapshot.panes.table import (
    FREE,
    GROWN,
    HIT,
    SHRUNK,
    USED,
    WAITING,
    Cell,
    PaneAnswer,
    TableColumn,
    TableRows,
    continue_line,
    draw_centered,
    draw_choice,
    draw_label,
    draw_moment_line,
    draw_size_bar,
    draw_table,
    group_rows,
    latest_answer,
    moment_text,
    right_aligned_texts,
    stack_tip,
)
from splatview_viewer.snapshot.analysis.details import summary
from splatview_viewer.snapshot.analysis.frames import stack_text
from splatview_viewer.snapshot.analysis.leaks import find_leaks
from splatview_viewer.snapshot.analysis.oom import explain_oom
from splatview_viewer.snapshot.analysis.segments import (
    ACTIVE,
    INACTIVE,
    PENDING,
    segments_at,
)
from splatview_viewer.snapshot.analysis.tables import GROUPINGS, compare_moments
from splatview_viewer.snapshot.model import (
    ACTIONS,
    address_text,
    device_text,
    peak_moment,
    pool_text,
    stream_text,
)
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored, pointer, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.segments import SegmentsAt

_MOST = 100_000
"""Rows that imgui scrolls over: of more it loses count."""
_SHOW = {
    "all": "All",
    "alloc": "Allocations",
    "free": "Frees",
    "segment": "Segments",
    "mark": "OOM and marks",
}
_ACTIONS = {
    "alloc": ("alloc",),
    "free": ("free_requested", "free_completed", "free"),
    "segment": ("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    "mark": ("snapshot", "oom", "annotate", "user_defined", "other"),
}
_EVENT_COLORS: dict[str, ImVec4] = {
    "alloc": theme.ALIVE,
    "oom": theme.FAULT,
    "snapshot": HIT,
    "annotate": HIT,
    "user_defined": HIT,
    **dict.fromkeys(_ACTIONS["segment"], theme.ACCENT),
}
_NUMBERS = (
    TableColumn("Event", 5.2, True, "Its number in the trace"),
    TableColumn("Time, s", 6.2, True, "Seconds since the first event"),
    TableColumn("Action", 8.4),
    TableColumn("Size", 5.6, True, "As requested"),
    TableColumn("Live then", 5.8, True, "All that is live after this event"),
    TableColumn("Address", 8.6),
)


def draw_events(view: SnapshotView) -> bool:
    """A list of all events, of one kind, or of what is lit in the timeline; of many, those around the moment."""
    trace = view.trace
    show = draw_choice(view, "show", _SHOW)
    state = view.state
    lit, mask = view.content.highlight_mask(view.device, state.search, state.highlight)
    every: Sequence[int] | np.ndarray | None = range(len(trace.events))
    if show != "all" or mask is not None:
        every = view.content.request(
            ("events", view.device, show, lit),
            lambda: events_of(trace, show, mask),
            newest=True,
        )
    if every is None:
        colored("Working it out\u2026", theme.DIM)
        return False
    at = -1 if state.moment is None else state.moment - 1
    place = bisect_left(every, at)
    first = view.pane_memory.get("events first", 0)
    if len(every) > _MOST and not first <= place < first + _MOST:
        first = place - _MOST // 2
    first = min(max(first, 0), max(len(every) - _MOST, 0))
    view.pane_memory["events first"] = first
    which = every[first : first + _MOST]
    part = f"{which[0]:,} to {which[-1]:,} of " if len(which) < len(every) else ""
    right_aligned_texts((f"{part}{len(every):,} events", theme.DIM))
    before = view.pane_memory.get("events at")
    view.pane_memory["events at"] = (at, show, lit, first)

    def click(row: int, double: bool) -> None:
        event = int(which[row])
        view.choose_moment(event + 1, close=double)
        found = int(trace.events.allocation[event])
        view.change(selected=found if found >= 0 else None)
        view.pane_memory["events at"] = event, show, lit, first

    def tip(row: int) -> str:
        to_the_right = (
            pointer().x > imgui.get_window_pos().x + imgui.get_window_width() * 0.6
        )
        if to_the_right:
            return stack_tip(view, int(trace.events.stack[int(which[row])]))
        return ""

    snapshot = view.content.snapshot
    columns = [
        *_NUMBERS,
        *([TableColumn("Stream", 7)] if len(snapshot.streams) > 1 else []),
        *([TableColumn("Pool", 8)] if len(snapshot.pools) > 1 else []),
        TableColumn("Where"),
    ]
    cells = _event_cells(view)
    return draw_table(
        view,
        "events",
        TableRows(
            which,
            len(which),
            columns,
            lambda row: cells(int(which[row])),
            click,
            lambda row: int(which[row]) == at,
            tip,
            lambda row: _or_none(int(trace.events.allocation[int(which[row])])),
            empty_text="No such events",
            reveal=place - first
            if at >= 0 and before != view.pane_memory["events at"]
            else None,
        ),
    )


def _or_none(allocation: int) -> int | None:
    return allocation if allocation >= 0 else None


def _event_cells(view: SnapshotView) -> Any:
    """Return a function that says what is known of an event, by columns."""
    snapshot = view.content.snapshot
    e = view.trace.events
    axis = view.content.axis(view.device, "time")
    bands = view.content.bands(view.device)
    base = axis.origin_us if axis is not None else 0
    streams = len(snapshot.streams) > 1
    pools = len(snapshot.pools) > 1

    def cells(i: int) -> list[Cell | str]:
        action = ACTIONS[e.action[i]]
        time = int(e.time_us[i])
        size = int(e.size[i])
        where = stack_text(snapshot, int(e.stack[i]))
        pool = snapshot.pools[e.pool[i]] if e.pool[i] >= 0 else None
        if action == "oom":
            words = f"asked in vain; the device had {size_text(int(e.addr[i]))} free. {where}"
        else:
            said = (
                where if e.stack[i] >= 0 else "",
                snapshot.texts[int(e.metadata[i])],
                snapshot.texts[int(e.context[i])],
            )
            words = " \u00b7 ".join(filter(None, said))
        return [
            Cell(f"{i:,}", theme.DIM),
            Cell(f"{(time - base) / 1e6:.6f}" if time else "", theme.DIM),
            Cell(action.replace("_", " "), _EVENT_COLORS.get(action, theme.DIM)),
            size_text(size) if size else "",
            Cell(
                size_text(int(bands.live[i + 1])) if bands is not None else "",
                theme.DIM,
            ),
            Cell(
                address_text(int(e.addr[i])) if e.addr[i] and action != "oom" else "",
                theme.DIM,
            ),
            *(
                [Cell(stream_text(snapshot.streams[e.stream[i]]), theme.DIM)]
                if streams
                else []
            ),
            *(
                [Cell("" if pool in (None, (0, 0)) else pool_text(pool), theme.DIM)]
                if pools
                else []
            ),
            words,
        ]

    return cells


def events_of(trace: Any, show: str, mask: np.ndarray | None) -> np.ndarray:
    """int32: the events of a kind (all, alloc, free, segment, mark); with a mask, bool (A,), those of its
    allocations.
    """
    if show == "all":
        keep = np.ones(len(ACTIONS), bool)
    else:
        keep = np.isin(ACTIONS, _ACTIONS[show])
    found = keep[trace.events.action]
    if mask is not None:
        of = trace.events.allocation
        found &= (of >= 0) & np.append(mask, False)[of]
    return np.flatnonzero(found).astype(np.int32)


_STATES = ("free", "in use", "freed, waiting for another stream")
_ORDERS = {"size": "Size", "address": "Address", "free": "Free inside"}
_DARK = ImVec4(0.235, 0.255, 0.285, 1.0)
"""Blocks in use that are not lit while others are."""


def draw_segments(view: SnapshotView) -> bool:
    """A row for each segment, as long as it is large, with its blocks."""
    snapshot = view.content.snapshot
    trace = view.trace
    moment = draw_moment_line(view)
    if moment is not None:
        shown = latest_answer(
            view,
            "segments",
            ("segments", view.device, moment),
            lambda: segments_at(snapshot, trace, moment),
        )
    else:
        shown = None
    if shown is None:
        return False
    at: SegmentsAt = shown.answer
    by = draw_choice(view, "order", _ORDERS)
    unused = at.block_size[at.block_state == INACTIVE]
    draw_size_bar(
        {
            f"reserved in {count_text(len(at), 'segment')}": (at.reserved, None),
            "in use": (at.active, USED),
            "waiting for another stream": (at.pending, WAITING),
            "free": (at.free, FREE),
            f"the largest free block of {len(unused):,}": (
                int(unused.max(initial=0)),
                None,
            ),
        }
    )
    before = np.append(
        0, np.cumsum(np.where(at.block_state == INACTIVE, at.block_size, 0))
    )
    free = np.diff(before[at.block_start])
    largest = max(int(at.size.max(initial=1)), 1)
    order = np.argsort(
        {"size": -at.size, "address": at.addr, "free": -free}[by], kind="stable"
    )
    colors = _block_colors(view, at)
    over: list[int] = []

    def cells(row: int) -> list[Cell | str]:
        i = int(order[row])

        def paint(
            draw: imgui.ImDrawList, x0: float, x1: float, y: float, height: float
        ) -> None:
            whole = max((x1 - x0) * int(at.size[i]) / largest, 2.0)
            over.extend(
                _bar(draw, at, i, colors, (x0, y, whole, height), view.state.selected)
            )

        pool = int(at.pool[i])
        return [
            Cell(address_text(int(at.addr[i])), theme.DIM),
            size_text(int(at.size[i])),
            Cell(size_text(int(free[i])) if free[i] else "", theme.DIM),
            *(
                [
                    Cell(
                        ""
                        if pool == 0
                        else pool_text(snapshot.pools[pool] if pool > 0 else None),
                        theme.DIM,
                    )
                ]
                if len(snapshot.pools) > 1
                else []
            ),
            Cell("", paint=paint),
        ]

    def allocation(row: int) -> int | None:
        return _or_none(int(at.block_allocation[over[0]])) if over else None

    def tip(row: int) -> str:
        if not over:
            return ""
        block = over[0]
        found = allocation(row)
        lines = [
            f"{exact_size_text(int(at.block_size[block]))}, {_STATES[min(int(at.block_state[block]), 2)]}",
            address_text(int(at.block_addr[block])),
        ]
        return "\n".join(
            [*lines, *([summary(snapshot, trace, found)] if found is not None else [])]
        )

    columns = [
        TableColumn("Segment", 8.6),
        TableColumn("Size", 5.6, True),
        TableColumn("Free", 5.6, True, "Bytes of its blocks that are free"),
        *([TableColumn("Pool", 8)] if len(snapshot.pools) > 1 else []),
        TableColumn("Blocks"),
    ]

    def click(row: int, double: bool) -> None:
        if view.state.hovered is not None:
            view.change(selected=view.state.hovered)

    return draw_table(
        view,
        "segments",
        TableRows(
            at,
            len(at),
            columns,
            cells,
            click,
            tooltip=tip,
            allocation=allocation,
            empty_text="Nothing was reserved then",
        ),
    )


def _bar(
    draw: imgui.ImDrawList,
    at: SegmentsAt,
    segment: int,
    colors: np.ndarray,
    place: tuple[float, float, float, float],
    selected: int | None,
) -> list[int]:
    """Draw one segment, each of its pixels in the colour of the block there; the block under the pointer, if any."""
    (x, y, width, height), mouse, over = place, pointer(), []
    first = int(at.block_start[segment])
    last = int(at.block_start[segment + 1])
    pixels = (np.arange(max(int(width), 1)) + 0.5) * (
        int(at.size[segment]) / max(int(width), 1)
    )
    addr = at.addr[segment] + pixels.astype(np.uint64)
    blocks = (
        first + np.searchsorted(at.block_addr[first:last], addr, "right").clip(1) - 1
    )
    here = (
        x <= mouse.x < x + len(blocks)
        and y - 2 <= mouse.y < y + height + 2
        and imgui.is_window_hovered()
    )
    edges = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(blocks)]
    for begin, end in pairwise(edges):
        block = int(blocks[begin])
        low = ImVec2(x + begin, y)
        high = ImVec2(x + end - (1 if end - begin > 3 else 0), y + height)
        draw.add_rect_filled(low, high, int(colors[block]))
        if here and begin <= mouse.x - x < end:
            over = [block]
            draw.add_rect_filled(low, high, theme.u32(ImVec4(1, 1, 1, 0.18)))
        if selected is not None and int(at.block_allocation[block]) == selected:
            draw.add_rect(
                low, high, theme.u32(theme.TEXT), thickness=1.5 * theme.scale()
            )
    return over


def _block_colors(view: SnapshotView, at: SegmentsAt) -> np.ndarray:
    """uint32 (b,): each block's colour; of blocks in use as in the timeline."""
    state = at.block_state
    allocation = at.block_allocation
    used = (state == ACTIVE) & (allocation >= 0)
    active = state == ACTIVE
    out = np.full(len(state), theme.u32(FREE), np.uint32)
    out[active], out[state == PENDING] = theme.u32(USED), theme.u32(WAITING)
    colors = view.content.colors(view.device, view.state.color_by)
    if colors is not None:
        red, green, blue = (
            colors.palette[colors.classes[allocation[used]]].astype(np.uint32).T
        )
        out[used] = red | green << 8 | blue << 16 | 0xFF000000
    _, mask = view.content.highlight_mask(
        view.device, view.state.search, view.state.highlight
    )
    if mask is not None:
        out[np.flatnonzero(used)[~mask[allocation[used]]]] = theme.u32(_DARK)
    return out


_WHEN = {"peak": "its peak", "end": "its end"}


def _compared(view: SnapshotView) -> PaneAnswer | None:
    """The comparison of two moments of this snapshot, or of one of another and one of this."""
    now = view.moment
    scale = view.scale
    others = view.content.other_contents()
    snapshot = view.content.snapshot
    trace = view.trace
    if now is None:
        draw_centered("Looking for the peak\u2026")
        return None
    other = None
    if others:
        draw_label("With")
        imgui.set_next_item_width(imgui.get_font_size() * 18)
        names = [content.snapshot.name for content in others]
        chosen = view.state.choice("with", "")
        was = names.index(chosen) + 1 if chosen in names else 0
        _, number = imgui.combo("##with", was, ["two moments of this one", *names])
        if number != was:
            view.state = view.state.with_choice("with", ["", *names][number])
        imgui.same_line()
        other = others[number - 1] if number else None
    there = trace
    of = snapshot
    if other is None:
        a, b = (
            here if mark is None else mark
            for here, mark in zip((0, now), view.state.marks, strict=True)
        )
        key = (a, b)

        def before():
            return a

        _side(view, "A", a, SHRUNK)
        continue_line(
            imgui.calc_text_size(moment_text(view, b)).x + 13 * imgui.get_font_size(),
            20 * scale,
        )
        _side(view, "B", b, GROWN)
    else:
        of = other.snapshot
        found = next((t for t in of.traces if t.device == trace.device), None)
        if found is None:
            wrapped(f"{of.name} has no {device_text(trace.device)}", theme.FAULT)
            return None
        there = found
        b = now
        when = draw_choice(view, "when", _WHEN)
        key = (f"{when} {of.name}", now)

        def before():
            return len(there.events) if when == "end" else peak_moment(there)

        imgui.same_line(0, 14 * scale)
        colored(f"B {moment_text(view, now)}", theme.TEXT)
    draw_label("By")
    by = draw_choice(view, "compare by", GROUPINGS)
    return latest_answer(
        view,
        "compare",
        ("compare", view.device, *key, by),
        lambda: compare_moments((of, there, before()), (snapshot, trace, b), by),
        "Comparing\u2026",
    )


def _side(view: SnapshotView, name: str, moment: int, color: ImVec4) -> None:
    space = 8 * view.scale
    imgui.align_text_to_frame_padding()
    colored(name, color)
    imgui.same_line(0, space)
    colored(moment_text(view, moment), theme.TEXT)
    imgui.set_item_tooltip(
        "M marks the moment under the pointer, or the chosen one: first A, then B"
    )
    if view.state.moment != moment:
        imgui.same_line(0, space)
        if imgui.small_button(f"Show##{name}"):
            view.choose_moment(moment)


def draw_compare(view: SnapshotView) -> bool:
    """Groups of allocations at two moments: what grew most first."""
    shown = _compared(view)
    if shown is None:
        return False
    key, found = shown
    total: int = found.bytes_after - found.bytes_before
    right_aligned_texts(
        (
            f"from {size_text(found.bytes_before)} to {size_text(found.bytes_after)}",
            theme.DIM,
        ),
        (change_text(total) if total else "no change", _color(total)),
    )
    most = max(int(np.abs(found.changes).max(initial=1)), 1)

    def cells(row: int) -> list[Cell | str]:
        c = found[row]
        change = int(found.changes[row])
        return [
            c.label,
            Cell(
                change_text(change) if change else "0",
                _color(change),
                abs(change) / most if change else None,
            ),
            Cell(size_text(c.bytes_before) if c.bytes_before else "", theme.DIM),
            size_text(c.bytes_after) if c.bytes_after else "",
            Cell(f"{c.count_before:,}" if c.count_before else "", theme.DIM),
            f"{c.count_after:,}" if c.count_after else "",
        ]

    def click(row: int, double: bool) -> None:
        view.toggle_highlight(
            key,
            row,
            found.allocations(row),
            f"{found[row].label}, {change_text(int(found.changes[row]))}",
        )

    columns = (
        TableColumn(GROUPINGS[key[-1]]),
        TableColumn(
            "Change",
            8,
            True,
            "Click: what grew first, or what shrank first",
            sortable=True,
        ),
        TableColumn("Before", 6.2, True),
        TableColumn("After", 6.2, True),
        TableColumn("Blocks before", 6.8, True),
        TableColumn("Blocks after", 6.4, True),
    )
    return draw_table(
        view,
        "compare",
        TableRows(
            found,
            len(found),
            columns,
            cells,
            click,
            lambda row: view.is_highlighted(key, row),
            sort_values=lambda column: found.changes.tolist(),
            empty_text="Nothing is live at either moment",
        ),
    )


def _color(change: int) -> ImVec4:
    if change > 0:
        return GROWN
    if change < 0:
        return SHRUNK
    return theme.DIM


_SUSPECTS = (
    TableColumn("Allocated by"),
    TableColumn("Still there", 6.4, True, "Bytes"),
    TableColumn("Blocks", 4.8, True),
    TableColumn("Oldest", 6, True, "How long the oldest of them is held"),
    TableColumn(
        "Left behind over the trace",
        12,
        tooltip="How many of those made in each part of the trace are still there",
    ),
)


def draw_leaks(view: SnapshotView) -> bool:
    """A list of suspects, and why each is one."""
    snapshot = view.content.snapshot
    trace = view.trace
    shown = latest_answer(
        view,
        "leaks",
        ("leaks", view.device),
        lambda: find_leaks(snapshot, trace),
        "Looking for what is never given back\u2026",
    )
    if shown is None:
        return False
    key, suspects = shown
    growing = [s for s in suspects if s.is_growing]
    if suspects:
        if growing:
            words = (
                f"{count_text(len(growing), 'stack')} left {size_text(sum(s.bytes for s in growing))} behind, more "
                "and more over the trace"
            )
        else:
            words = "Nothing grows steadily"
        colored(words, theme.FAULT if growing else theme.ALIVE)
        others = len(suspects) - len(growing)
        if others:
            imgui.same_line()
            colored(
                f"\u00b7  {count_text(others, 'stack')} made something late and kept it",
                theme.DIM,
            )
    lit = view.state.highlight
    chosen = lit.row if lit is not None and lit.key == key else None
    if chosen is not None:
        suspect = suspects[chosen]
        if imgui.button("To the oldest"):
            view.choose_moment(suspect.oldest + 1)
            view.change(
                selected=int(
                    suspect.ids[view.trace.allocations.start[suspect.ids].argmin()]
                )
            )
        imgui.same_line()
        imgui.align_text_to_frame_padding()
        wrapped(suspect.verdict, theme.TEXT)

    def cells(row: int) -> list[Cell | str]:
        s = suspects[row]
        return [
            Cell(s.label, theme.FAULT if s.is_growing else None),
            size_text(s.bytes),
            f"{len(s.ids):,}",
            Cell(age_text(s.age_us) if s.age_us else f"event {s.oldest:,}", theme.DIM),
            Cell(
                "",
                theme.FAULT if s.is_growing else theme.DIM,
                spark=(s.kept_counts / max(int(s.kept_counts.max()), 1)).tolist(),
            ),
        ]

    def click(row: int, double: bool) -> None:
        s = suspects[row]
        view.toggle_highlight(
            key, row, s.ids, f"suspect {s.label}, {size_text(s.bytes)}"
        )

    return draw_table(
        view,
        "leaks",
        TableRows(
            suspects,
            len(suspects),
            _SUSPECTS,
            cells,
            click,
            lambda row: row == chosen,
            lambda row: (
                f"{suspects[row].verdict}\n\n{stack_tip(view, suspects[row].stack)}".strip()
            ),
            empty_text="No suspects\nNothing that was allocated in the trace, but for what was made last, "
            "was still there at its end",
        ),
    )


_CACHED = ImVec4(0.36, 0.62, 0.52, 1.0)


def draw_oom(view: SnapshotView) -> bool:
    """A failed allocation, the last one at first: the request, the free memory, the holders."""
    snapshot = view.content.snapshot
    trace = view.trace
    events = view.content.ooms(view.device)
    if not events:
        draw_centered(
            "Memory never ran out in this trace"
            if events is not None
            else "Working it out\u2026"
        )
        return False
    chosen = int(view.state.choice("oom", str(events[-1])))
    chosen = chosen if chosen in events else events[-1]
    if len(events) > 1:
        imgui.set_next_item_width(imgui.get_font_size() * 11)
        _, number = imgui.combo(
            "##oom", events.index(chosen), [f"Event {event:,}" for event in events]
        )
        if events[number] != chosen:
            view.state = view.state.with_choice("oom", str(events[number]))
        imgui.same_line(0, 12 * view.scale)
    shown = latest_answer(
        view,
        "oom",
        ("oom", view.device, chosen),
        lambda: explain_oom(snapshot, trace, chosen),
    )
    if shown is None:
        return False
    key, oom = shown
    imgui.align_text_to_frame_padding()
    colored(
        f"{size_text(oom.requested)} was asked for at event {oom.event:,}", theme.TEXT
    )
    if view.state.moment != oom.event:
        imgui.same_line(0, 10 * view.scale)
        if imgui.small_button("Go there"):
            view.choose_moment(oom.event)
    wrapped(oom.verdict, theme.TEXT)
    if oom.stack >= 0:
        wrapped(f"Asked by {stack_text(snapshot, oom.stack)}")
    usable = f"{count_text(len(oom.usable), 'block')}, the largest {size_text(int(oom.usable.max(initial=0)))}"
    draw_size_bar(
        {
            "in use": (oom.segments.active, USED),
            "waiting for another stream": (oom.segments.pending, WAITING),
            f"free in {usable}": (oom.segments.free, _CACHED),
            "left to the driver": (oom.device_free, FREE),
        }
    )
    return draw_table(
        view,
        "oom",
        group_rows(view, key, oom.holders, "Who held it", "Nothing was live then"),
    )
