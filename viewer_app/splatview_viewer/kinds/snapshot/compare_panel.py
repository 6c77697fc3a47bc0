"""The sections of the panel about what a snapshot is compared with."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import change_text, count_text
from splatview_viewer.core.view import Section
from splatview_viewer.kinds.snapshot.panes.compare import (
    color_of,
    shown_growth,
    split_label,
    text_of,
    toggle_row,
)
from splatview_viewer.kinds.snapshot.panes.details import draw_frames
from splatview_viewer.kinds.snapshot.two_runs import MARKS, names_of_others
from splatview_viewer.snapshot.analysis.details import frames_of_stack
from splatview_viewer.ui import choices, controls, sides, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.kinds.snapshot.panes.compare import Grown
    from splatview_viewer.kinds.snapshot.state import Highlight
    from splatview_viewer.kinds.snapshot.view import SnapshotView

_SHOWS = {"alone": "Alone", "both": "Both", "growth": "Growth"}
_LINE_UPS = {"start": "Start", "peak": "Peak", "mark": "Mark"}


def compare_sections(view: SnapshotView) -> Sequence[Section]:
    """Return the sections of the tab Compare."""
    sections = [
        Section(
            "What is compared",
            partial(_draw_compared, view),
            opened=True,
            tip="Two snapshots, or two moments of one, A and B",
            tab="compare",
            state=_SHOWS[view.state.shows].lower(),
        )
    ]
    if view.state.shows == "alone":
        grown = None
    else:
        grown = shown_growth(view)
    if grown is None:
        return sections
    row = _chosen_row(view, grown)
    count = "none"
    if row is not None:
        change = grown.comparison[row]
        count = count_text(max(change.count_after, change.count_before), "allocation")
    sections.append(
        Section(
            "Chosen stack",
            partial(_draw_chosen, view, grown, row),
            opened=True,
            tip="The row of the table that was clicked",
            tab="compare",
            state=count,
        )
    )
    return sections


# -- what is compared ------------------------------------------------------------------


def _draw_compared(view: SnapshotView) -> None:
    """Draw A and B, how they are lined up, shown and tied."""
    names = {name: name for name in names_of_others(view)}
    own_name = view.content.snapshot.name
    other_name = view.two_runs.other_name
    is_swapped = view.state.swapped and other_name != MARKS
    for side_index, letter in enumerate("AB"):
        is_own = (side_index == 1) == is_swapped
        options = {"": own_name, **names}
        value = "" if is_own else other_name
        if not is_own:
            options[MARKS] = "Two moments of it"
        chosen_name = sides.draw_side(letter, side_index, value, options)
        if side_index == 0:
            imgui.same_line(0, 2 * theme.scale())
            if other_name == MARKS:
                reason = "its two moments are in order"
            else:
                reason = None
            if controls.icon_button("swap", "swap", hint="Swap A and B", reason=reason):
                view.change(swapped=not view.state.swapped)
        if chosen_name == value:
            continue
        if is_own or chosen_name == "":
            view.change(swapped=not view.state.swapped)
        if chosen_name:
            view.change(other=chosen_name, partner=None)
    shows: Any = ui.segments(
        "Show",
        "This snapshot alone, both timelines, or how one outgrew the other",
        view.state.shows,
        _SHOWS,
    )
    if shows != view.state.shows:
        view.change(shows=shows)
        if shows != "alone":
            view.change(tab="timeline")
    _draw_ties(view, has_two=other_name != MARKS)


def _draw_ties(view: SnapshotView, *, has_two: bool) -> None:
    """Draw how A and B are lined up and tied, greyed without a second snapshot."""
    if has_two:
        reason = ""
    else:
        reason = "\nThere is no second snapshot: open one"
    imgui.begin_disabled(not has_two)
    line_up: Any = ui.segments(
        "Line up by",
        "What is above each other: both beginnings, both peaks, or the moments marked "
        "by M in both (else the first step of the same name)" + reason,
        view.state.line_up,
        _LINE_UPS,
    )
    ui.row("Tied")
    time = choices.toggle(
        "Time", view.state.tied_time, "Both show the same time" + reason
    )
    imgui.same_line(0, 4 * theme.scale())
    tied_bytes = choices.toggle(
        "Bytes", view.state.tied_bytes, "Both show the same bytes" + reason
    )
    imgui.end_disabled()
    view.change(line_up=line_up, tied_time=time, tied_bytes=tied_bytes)


# -- the chosen stack ------------------------------------------------------------------


def _chosen_row(view: SnapshotView, grown: Grown) -> int | None:
    """Return the row of the group that was clicked, wherever the line is now."""
    group = _chosen_group(view, grown)
    if group is None:
        return None
    return grown.comparison.row_of(group.key[-1])


def _chosen_group(view: SnapshotView, grown: Grown) -> Highlight | None:
    """Return the group whose row was clicked, at any moment."""
    highlight = view.state.highlight
    if highlight is None or highlight.key[:-1] != grown.question:
        return None
    return highlight


def _draw_chosen(view: SnapshotView, grown: Grown, row: int | None) -> None:
    """Draw how much a stack grew, its frames, and what can be done with it."""
    if row is None:
        group = _chosen_group(view, grown)
        if group is None:
            ui.wrapped("Click a row of the table below the timelines.", theme.FAINT)
        else:
            text = f"{group.label}: nothing of it is live at the line."
            ui.wrapped(text, theme.DIM)
        return
    change = grown.comparison[row]
    scale = view.scale
    corner = imgui.get_cursor_screen_pos()
    width = imgui.get_content_region_avail().x
    height = imgui.get_text_line_height()
    draw = imgui.get_window_draw_list()
    low = ImVec2(corner.x, corner.y + (height - 11 * scale) / 2)
    high = ImVec2(low.x + 11 * scale, low.y + 11 * scale)
    color = color_of(view, grown, row)
    draw.add_rect_filled(low, high, theme.u32(color), 3 * scale)
    growth = change_text(change.bytes_after - change.bytes_before)
    # The frames below say from where it is called.
    name = split_label(change)[0].partition("  from ")[0]
    with theme.bold():
        growth_width = imgui.calc_text_size(growth).x
        label_width = width - growth_width - 27 * scale
        name = ui.fitted(name, label_width)
        text = theme.u32(theme.TEXT)
        draw.add_text(ImVec2(corner.x + 19 * scale, corner.y), text, name)
        draw.add_text(ImVec2(corner.x + width - growth_width, corner.y), text, growth)
    imgui.dummy(ImVec2(width, height))
    _draw_stack(grown, row)
    pressed = ui.buttons(
        "",
        ["Not lit", "Copy"],
        ["Show all allocations bright again", "All rows of the table, as text"],
        ["find", "copy"],
    )
    if pressed == 0:
        toggle_row(view, grown, row)
    elif pressed == 1:
        imgui.set_clipboard_text(text_of(grown))


def _draw_stack(grown: Grown, row: int) -> None:
    """Draw the stack of the first allocation of a row."""
    group_before, group_after = grown.comparison.sides_of(row)
    for side, ids in ((grown.second, group_after), (grown.first, group_before)):
        if not len(ids):
            continue
        allocations = side.view.trace.allocations
        stacks = np.unique(allocations.stack[ids[:1]])
        frames = frames_of_stack(side.view.content.snapshot, int(stacks[0]))
        if frames:
            draw_frames(frames)
        else:
            ui.wrapped("The snapshot does not say where it was allocated.", theme.FAINT)
        return
