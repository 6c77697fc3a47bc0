"""The panes of leaks, and of failed allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import ImVec4, imgui

from splatview_viewer.core.quantities import (
    age_text,
    count_text,
    size_text,
)
from splatview_viewer.kinds.snapshot.panes.parts import (
    FREE,
    USED,
    WAITING,
    continue_line,
    draw_centered,
    draw_size_bar,
    latest_answer,
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
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored, wrapped

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.view import SnapshotView

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
    chosen_row = None
    if highlight is not None and highlight.key == key:
        chosen_row = highlight.row
        _draw_suspect(view, suspects[chosen_row])

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
            is_chosen=lambda row: row == chosen_row,
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
        wrapped(
            f"{count_text(len(growing), 'stack')} left {total} behind, more and more over "
            "the trace",
            theme.FAULT,
        )
    else:
        colored("Nothing grows steadily", theme.SUCCESS)
    other_count = len(suspects) - len(growing)
    if other_count:
        count = count_text(other_count, "stack")
        words = f"\u00b7  {count} made something late and kept it"
        continue_line(imgui.calc_text_size(words).x, imgui.get_style().item_spacing.x)
        wrapped(words, theme.DIM)


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
    oom_event = int(view.state.choice("oom", str(events[-1])))
    if oom_event not in events:
        oom_event = events[-1]
    if len(events) > 1:
        imgui.set_next_item_width(imgui.get_font_size() * 11)
        titles = [f"Event {event:,}" for event in events]
        _, index = imgui.combo("##oom", events.index(oom_event), titles)
        if events[index] != oom_event:
            view.state = view.state.with_choice("oom", str(events[index]))
        imgui.same_line(0, 12 * view.scale)
    return oom_event
