"""The panes of growth between two moments, of leaks, and of failed allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from imgui_bundle import ImVec4, imgui

from splatview_viewer.core.quantities import (
    age_text,
    change_text,
    count_text,
    size_text,
)
from splatview_viewer.kinds.snapshot.panes.parts import (
    FREE,
    GROWN,
    SHRUNK,
    USED,
    WAITING,
    PaneAnswer,
    continue_line,
    count_or_blank,
    draw_centered,
    draw_choice,
    draw_label,
    draw_size_bar,
    latest_answer,
    moment_text,
    right_aligned_texts,
    size_or_blank,
    stack_tip,
)
from splatview_viewer.kinds.snapshot.panes.table import (
    Cell,
    TableColumn,
    TableRows,
    draw_table,
    group_rows,
)
from splatview_viewer.snapshot.analysis.frames import stack_text
from splatview_viewer.snapshot.analysis.leaks import Suspect, find_leaks
from splatview_viewer.snapshot.analysis.oom import Oom, explain_oom
from splatview_viewer.snapshot.analysis.tables import (
    GROUPINGS,
    Comparison,
    compare_moments,
)
from splatview_viewer.snapshot.model import device_text, peak_moment
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.widgets import colored, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

_OTHER_MOMENTS = {"peak": "its peak", "end": "its end"}


class _Compared(NamedTuple):
    """The two sides of a comparison, as far as the user chose them."""

    key: tuple[Any, Any]
    """Names the two moments in the key of the answer."""
    snapshot: MemorySnapshot
    """The snapshot of the first moment."""
    trace: Trace
    """The trace of the first moment."""
    find_first: Callable[[], int]
    """Returns the first moment; called by a thread, since it may take long."""
    second: int
    """The second moment, in the snapshot of the view."""


def draw_compare(view: SnapshotView) -> bool:
    """Draw groups of allocations at two moments, those that grew most first."""
    latest = _compare(view)
    if latest is None:
        return False
    key = latest.key
    comparison: Comparison = latest.answer
    before = size_text(comparison.bytes_before)
    after = size_text(comparison.bytes_after)
    total = comparison.bytes_after - comparison.bytes_before
    right_aligned_texts(
        (f"from {before} to {after}", theme.DIM),
        (change_text(total) if total else "no change", _change_color(total)),
    )

    def on_click(row: int, double: bool) -> None:
        change = change_text(int(comparison.changes[row]))
        label = f"{comparison[row].label}, {change}"
        view.toggle_highlight(key, row, comparison.allocations(row), label)

    columns = (
        TableColumn(GROUPINGS[key[-1]]),
        TableColumn(
            "Change",
            8,
            align_right=True,
            tooltip="Click: what grew first, or what shrank first",
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
            answer=comparison,
            count=len(comparison),
            columns=columns,
            cells=lambda row: _change_cells(comparison, row),
            on_click=on_click,
            is_chosen=lambda row: view.is_highlighted(key, row),
            sort_values=lambda column: comparison.changes.tolist(),
            empty_text="Nothing is live at either moment",
        ),
    )


def _change_cells(comparison: Comparison, row: int) -> list[Cell | str]:
    """Return the cells of a row of the comparison."""
    group = comparison[row]
    change = int(comparison.changes[row])
    change_cell = Cell("0", _change_color(change))
    if change:
        largest = max(int(np.abs(comparison.changes).max(initial=1)), 1)
        change_cell = Cell(
            change_text(change), _change_color(change), bar=abs(change) / largest
        )
    return [
        group.label,
        change_cell,
        Cell(size_or_blank(group.bytes_before), theme.DIM),
        size_or_blank(group.bytes_after),
        Cell(count_or_blank(group.count_before), theme.DIM),
        count_or_blank(group.count_after),
    ]


def _change_color(change: int) -> ImVec4:
    """Return the colour of a change of bytes."""
    if change > 0:
        return GROWN
    if change < 0:
        return SHRUNK
    return theme.DIM


def _compare(view: SnapshotView) -> PaneAnswer | None:
    """Draw the choice of two moments, and return their comparison once it is there.

    They are two of this snapshot, or one of another snapshot and one of this.
    """
    if view.moment is None:
        draw_centered("Looking for the peak\u2026")
        return None
    other = _choose_snapshot(view)
    if other is None:
        compared = _choose_marks(view, view.moment)
    else:
        compared = _choose_other_moment(view, other, view.moment)
    if compared is None:
        return None
    draw_label("By")
    by = draw_choice(view, "compare by", GROUPINGS)
    snapshot = view.content.snapshot
    trace = view.trace

    def work() -> Comparison:
        before = (compared.snapshot, compared.trace, compared.find_first())
        return compare_moments(before, (snapshot, trace, compared.second), by)

    key = ("compare", view.device, *compared.key, by)
    return latest_answer(view, "compare", key, work, "Comparing\u2026")


def _choose_snapshot(view: SnapshotView) -> Content | None:
    """Draw the choice of another open snapshot; None if it is compared with itself."""
    others = view.content.other_contents()
    if not others:
        return None
    draw_label("With")
    imgui.set_next_item_width(imgui.get_font_size() * 18)
    names = [content.snapshot.name for content in others]
    chosen = view.state.choice("with", "")
    previous = names.index(chosen) + 1 if chosen in names else 0
    titles = ["two moments of this one", *names]
    _, index = imgui.combo("##with", previous, titles)
    if index != previous:
        view.state = view.state.with_choice("with", names[index - 1] if index else "")
    imgui.same_line()
    return others[index - 1] if index else None


def _choose_marks(view: SnapshotView, moment: int) -> _Compared:
    """Draw the two marked moments; without marks the beginning and the chosen moment."""
    mark_a, mark_b = view.state.marks
    first = 0 if mark_a is None else mark_a
    second = moment if mark_b is None else mark_b
    _draw_side(view, "A", first, SHRUNK)
    width = imgui.calc_text_size(moment_text(view, second)).x
    continue_line(width + 13 * imgui.get_font_size(), 20 * view.scale)
    _draw_side(view, "B", second, GROWN)
    return _Compared(
        key=(first, second),
        snapshot=view.content.snapshot,
        trace=view.trace,
        find_first=lambda: first,
        second=second,
    )


def _choose_other_moment(
    view: SnapshotView, other: Content, moment: int
) -> _Compared | None:
    """Draw the choice of a moment of another snapshot; None if it lacks the device."""
    snapshot = other.snapshot
    device = view.trace.device
    traces = [trace for trace in snapshot.traces if trace.device == device]
    if not traces:
        wrapped(f"{snapshot.name} has no {device_text(device)}", theme.FAULT)
        return None
    trace = traces[0]
    other_moment = draw_choice(view, "when", _OTHER_MOMENTS)

    def find_first() -> int:
        return len(trace.events) if other_moment == "end" else peak_moment(trace)

    imgui.same_line(0, 14 * view.scale)
    colored(f"B {moment_text(view, moment)}", theme.TEXT)
    return _Compared(
        key=(f"{other_moment} {snapshot.name}", moment),
        snapshot=snapshot,
        trace=trace,
        find_first=find_first,
        second=moment,
    )


def _draw_side(view: SnapshotView, name: str, moment: int, color: ImVec4) -> None:
    """Draw one of two compared moments, with a way to it."""
    space = 8 * view.scale
    imgui.align_text_to_frame_padding()
    colored(name, color)
    imgui.same_line(0, space)
    colored(moment_text(view, moment), theme.TEXT)
    controls.tip(
        "M marks the moment under the pointer, or the chosen one: first A, then B"
    )
    if view.state.moment != moment:
        imgui.same_line(0, space)
        if imgui.small_button(f"Show##{name}"):
            view.choose_moment(moment)


# -- leaks -----------------------------------------------------------------------------

_LEAK_COLUMNS = (
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
    """Draw a table of stacks that may leak, and why the chosen one may."""
    snapshot = view.content.snapshot
    trace = view.trace
    latest = latest_answer(
        view,
        "leaks",
        ("leaks", view.device),
        lambda: find_leaks(snapshot, trace),
        "Looking for what is never given back\u2026",
    )
    if latest is None:
        return False
    key = latest.key
    suspects: list[Suspect] = latest.answer
    if suspects:
        _draw_leak_summary(suspects)
    highlight = view.state.highlight
    chosen = None
    if highlight is not None and highlight.key == key:
        chosen = highlight.row
        _draw_suspect(view, suspects[chosen])

    def on_click(row: int, double: bool) -> None:
        suspect = suspects[row]
        label = f"suspect {suspect.label}, {size_text(suspect.bytes)}"
        view.toggle_highlight(key, row, suspect.ids, label)

    def tooltip(row: int) -> str:
        suspect = suspects[row]
        return f"{suspect.verdict}\n\n{stack_tip(view, suspect.stack)}".strip()

    return draw_table(
        view,
        "leaks",
        TableRows(
            answer=suspects,
            count=len(suspects),
            columns=_LEAK_COLUMNS,
            cells=lambda row: _suspect_cells(suspects[row]),
            on_click=on_click,
            is_chosen=lambda row: row == chosen,
            tooltip=tooltip,
            empty_text="No suspects\nNothing that was allocated in the trace, but for what "
            "was made last, was still there at its end",
        ),
    )


def _draw_leak_summary(suspects: list[Suspect]) -> None:
    """Draw how much grows, and how many stacks keep something without growing."""
    growing = [suspect for suspect in suspects if suspect.is_growing]
    if growing:
        total = size_text(sum(suspect.bytes for suspect in growing))
        colored(
            f"{count_text(len(growing), 'stack')} left {total} behind, more and more over "
            "the trace",
            theme.FAULT,
        )
    else:
        colored("Nothing grows steadily", theme.GOOD)
    other_count = len(suspects) - len(growing)
    if other_count:
        imgui.same_line()
        count = count_text(other_count, "stack")
        colored(f"\u00b7  {count} made something late and kept it", theme.DIM)


def _draw_suspect(view: SnapshotView, suspect: Suspect) -> None:
    """Draw the verdict on the chosen suspect, with a way to its oldest allocation."""
    if imgui.button("To the oldest"):
        view.choose_moment(suspect.oldest + 1)
        starts = view.trace.allocations.start[suspect.ids]
        view.change(selected=int(suspect.ids[starts.argmin()]))
    imgui.same_line()
    imgui.align_text_to_frame_padding()
    wrapped(suspect.verdict, theme.TEXT)


def _suspect_cells(suspect: Suspect) -> list[Cell | str]:
    """Return the cells of a suspect."""
    counts = suspect.kept_counts
    if suspect.age_us:
        age = age_text(suspect.age_us)
    else:
        age = f"event {suspect.oldest:,}"
    return [
        Cell(suspect.label, theme.FAULT if suspect.is_growing else None),
        size_text(suspect.bytes),
        f"{len(suspect.ids):,}",
        Cell(age, theme.DIM),
        Cell(
            "",
            theme.FAULT if suspect.is_growing else theme.DIM,
            spark=(counts / max(int(counts.max()), 1)).tolist(),
        ),
    ]


# -- failed allocations ----------------------------------------------------------------

_CACHED = ImVec4(0.36, 0.62, 0.52, 1.0)


def draw_oom(view: SnapshotView) -> bool:
    """Draw why an allocation failed: the request, the free memory, the holders."""
    snapshot = view.content.snapshot
    trace = view.trace
    events = view.content.ooms(view.device)
    if events is None:
        draw_centered("Working it out\u2026")
        return False
    if not events:
        draw_centered("Memory never ran out in this trace")
        return False
    event = _choose_oom(view, events)
    latest = latest_answer(
        view,
        "oom",
        ("oom", view.device, event),
        lambda: explain_oom(snapshot, trace, event),
    )
    if latest is None:
        return False
    oom: Oom = latest.answer
    imgui.align_text_to_frame_padding()
    requested = size_text(oom.requested)
    colored(f"{requested} was asked for at event {oom.event:,}", theme.TEXT)
    if view.state.moment != oom.event:
        imgui.same_line(0, 10 * view.scale)
        if imgui.small_button("Go there"):
            view.choose_moment(oom.event)
    wrapped(oom.verdict, theme.TEXT)
    if oom.stack >= 0:
        wrapped(f"Asked by {stack_text(snapshot, oom.stack)}")
    block_count = count_text(len(oom.usable), "block")
    largest = size_text(int(oom.usable.max(initial=0)))
    draw_size_bar(
        {
            "in use": (oom.segments.active, USED),
            "waiting for another stream": (oom.segments.pending, WAITING),
            f"free in {block_count}, the largest {largest}": (
                oom.segments.free,
                _CACHED,
            ),
            "left to the driver": (oom.device_free, FREE),
        }
    )
    rows = group_rows(
        view, latest.key, oom.holders, "Who held it", "Nothing was live then"
    )
    return draw_table(view, "oom", rows)


def _choose_oom(view: SnapshotView, events: list[int]) -> int:
    """Draw the choice of a failed allocation, the last one at first."""
    chosen = int(view.state.choice("oom", str(events[-1])))
    if chosen not in events:
        chosen = events[-1]
    if len(events) > 1:
        imgui.set_next_item_width(imgui.get_font_size() * 11)
        titles = [f"Event {event:,}" for event in events]
        _, index = imgui.combo("##oom", events.index(chosen), titles)
        if events[index] != chosen:
            view.state = view.state.with_choice("oom", str(events[index]))
        imgui.same_line(0, 12 * view.scale)
    return chosen
