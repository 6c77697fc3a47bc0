"""The table of what grew: between two snapshots, or between two moments of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.quantities import change_text, size_text
from splatview_viewer.kinds.snapshot.panes.parts import (
    chip,
    chip_width,
    draw_centered,
    latest_answer,
    moment_text,
)
from splatview_viewer.kinds.snapshot.panes.table import (
    Cell,
    TableColumn,
    TableRows,
    draw_table,
)
from splatview_viewer.snapshot.analysis.tables import (
    GROUPINGS,
    Comparison,
    compare_moments,
)
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.widgets import fitted

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.answers import Key
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.analysis.tables import Change, Grouping

_GROUPING_TITLES: dict[Grouping, str] = {
    grouping: GROUPINGS[grouping]
    for grouping in ("stack", "line", "file", "size", "category")
}
"""What the table can be by."""
_LINE = re.compile(r":\d+$")
"""Ends the place of a line of code: "train.py:88"."""
_HEAD_HEIGHT = 34
_BUTTONS = 2 * 6 + 76 + 118
"""Points of the two buttons at the right of the head."""


class Side(NamedTuple):
    """One side of a comparison: a snapshot at a moment."""

    view: SnapshotView
    moment: int


class Grown(NamedTuple):
    """A comparison as it is shown: the growth of each group."""

    key: Key
    comparison: Comparison
    first: Side
    second: Side

    @property
    def grouping(self) -> str:
        return str(self.key[-1])

    @property
    def question(self) -> Key:
        """The key without the moments that are compared."""
        return (*self.key[:3], self.key[-1])

    def key_of(self, row: int) -> Key:
        """Return what names the group of a row, also at other moments."""
        return (*self.question, self.comparison.names[row])


def sides_of(view: SnapshotView) -> tuple[Side, Side] | None:
    """Return what is compared, A and B; None until it is known."""
    partner = view.two_runs.partner
    if partner is not None:
        line = view.two_runs.line(partner)
        if line is None:
            return None
        own_side = Side(view, line[0])
        partner_side = Side(partner, line[1])
        if view.two_runs.is_swapped:
            return (partner_side, own_side)
        return (own_side, partner_side)
    event_index = view.moment
    if event_index is None:
        return None
    mark_a, mark_b = view.state.marks
    first = 0 if mark_a is None else mark_a
    second = event_index if mark_b is None else mark_b
    return Side(view, first), Side(view, second)


def grouping_of(view: SnapshotView) -> Grouping:
    """Return what the table is by."""
    saved = view.state.choice("compare by", "")
    for grouping in _GROUPING_TITLES:
        if grouping == saved:
            return grouping
    return "stack"


def grown_of(view: SnapshotView) -> Grown | None:
    """Return what grew, as far as it is worked out, and say so where it is not."""
    sides = sides_of(view)
    if sides is None:
        draw_centered("Looking for the peak\u2026")
        return None
    grouping = grouping_of(view)
    first, second = sides
    side_before = (first.view.content.snapshot, first.view.trace, first.moment)
    side_after = (second.view.content.snapshot, second.view.trace, second.moment)
    if first.view is second.view:
        partner_key = ""
    else:
        partner_key = f"with {id(first.view.content)}"
    key = ("compare", view.device, partner_key, first.moment, second.moment, grouping)
    latest = latest_answer(
        view,
        "compare",
        key,
        lambda: compare_moments(side_before, side_after, grouping),
        "Comparing\u2026",
    )
    if latest is None:
        return None
    return Grown(latest.key, latest.answer, first, second)


def shown_growth(view: SnapshotView) -> Grown | None:
    """Return what grew as the table shows it now; starts nothing."""
    growth = view.pane_memory.get(("compare", "shown"))
    sides = sides_of(view)
    if growth is None or sides is None:
        return None
    return Grown(growth.key, growth.answer, *sides)


def draw_grown(view: SnapshotView) -> bool:
    """Draw the head and the table of what grew.

    Returns True when the picture has to be drawn again though the state is the same.
    """
    corner = imgui.get_cursor_screen_pos()
    _draw_head(view)
    imgui.set_cursor_screen_pos(
        ImVec2(corner.x, corner.y + (_HEAD_HEIGHT - 4) * view.scale)
    )
    grown = grown_of(view)
    if grown is None:
        return False
    comparison = grown.comparison

    def on_click(row: int, double: bool) -> None:
        toggle_row(view, grown, row)

    def tooltip(row: int) -> str:
        return comparison[row].label

    return draw_table(
        view,
        "compare",
        TableRows(
            answer=comparison,
            count=len(comparison),
            columns=_columns(view),
            cells=lambda row: _cells(view, grown, row),
            on_click=on_click,
            is_chosen=lambda row: is_row_chosen(view, grown, row),
            tooltip=tooltip,
            sort_values=lambda column: comparison.changes.tolist(),
            empty_text="Nothing is live at either moment",
        ),
    )


def is_row_chosen(view: SnapshotView, grown: Grown, row: int) -> bool:
    """Return whether the allocations of a row are lit."""
    key = grown.key_of(row)
    return view.is_highlighted(key, 0) or (
        grown.second.view is not view and grown.second.view.is_highlighted(key, 0)
    )


def toggle_row(view: SnapshotView, grown: Grown, row: int) -> None:
    """Light the allocations of a row in all timelines that have them, or no longer."""
    comparison = grown.comparison
    key = grown.key_of(row)
    change = change_text(int(comparison.changes[row]))
    label = f"{comparison[row].label}, {change}"
    partner = view.two_runs.partner
    if partner is None:
        view.toggle_highlight(key, 0, comparison.allocations(row), label)
        return
    for side, ids in zip(
        (grown.first, grown.second), comparison.sides_of(row), strict=True
    ):
        side.view.toggle_highlight(key, 0, ids, label)
    view.change(partner=partner.state)


# -- the head --------------------------------------------------------------------------


def _draw_head(view: SnapshotView) -> None:
    """Draw the title, what the table is by, and what can be done with it."""
    scale = view.scale
    corner = imgui.get_cursor_screen_pos()
    right = corner.x + imgui.get_content_region_avail().x
    height = (_HEAD_HEIGHT - 8) * scale
    middle = corner.y + height / 2
    draw = imgui.get_window_draw_list()
    buttons_x = right - _BUTTONS * scale
    x = corner.x
    with theme.bold():
        title = fitted("What grew between A and B", buttons_x - x)
        y = round(middle - imgui.get_text_line_height() / 2)
        draw.add_text(ImVec2(x, y), theme.u32(theme.TEXT), title)
        x += imgui.calc_text_size(title).x + 10 * scale
    chips_width = sum(
        chip_width(title) + 2 * scale for title in _GROUPING_TITLES.values()
    )
    sides_text = _sides_text(view)
    words_width = imgui.calc_text_size(sides_text).x + 14 * scale
    if x + words_width + chips_width < buttons_x:
        draw.add_text(ImVec2(round(x), y), theme.u32(theme.DIM), sides_text)
        x += words_width
    chosen_grouping = grouping_of(view)
    for grouping, title in _GROUPING_TITLES.items():
        width = chip_width(title)
        if x + width > buttons_x:
            break
        top = corner.y - (theme.ROW_HEIGHT * scale - height) / 2
        imgui.set_cursor_screen_pos(ImVec2(x, top))
        if chip(f"{title}##compare by", grouping == chosen_grouping):
            view.state = view.state.with_choice("compare by", grouping)
        x += width + 2 * scale
    if buttons_x > corner.x + 100 * scale:
        _draw_buttons(view, ImVec2(buttons_x, corner.y))


def _sides_text(view: SnapshotView) -> str:
    """Return the moments that are compared, in a few words."""
    sides = sides_of(view)
    if sides is None:
        return ""
    first, second = sides
    if first.view is second.view:
        return (
            f"{moment_text(view, first.moment)} to {moment_text(view, second.moment)}"
        )
    if first.moment == second.moment:
        return f"at the line, {moment_text(first.view, first.moment)}"
    return f"at the line, A {first.moment:,}, B {second.moment:,}"


def _draw_buttons(view: SnapshotView, corner: ImVec2) -> None:
    """Draw the buttons that copy the table, and ask for it by SQL."""
    scale = view.scale
    imgui.set_cursor_screen_pos(corner)
    growth = shown_growth(view)
    if growth is not None:
        reason = None
    else:
        reason = "it is being worked out"
    if (
        controls.button(
            "Copy",
            "copy",
            name="Copy##grown",
            width=76,
            height=26,
            reason=reason,
            hint="All rows as text, with tabs between the columns",
        )
        and growth is not None
    ):
        imgui.set_clipboard_text(text_of(growth))
    imgui.set_cursor_screen_pos(ImVec2(corner.x + 82 * scale, corner.y))
    hint = "Goes to the tab SQL with a query that gives this table"
    if controls.button(
        "Ask by SQL", "terminal", width=118, height=26, reason=reason, hint=hint
    ):
        sides = sides_of(view)
        if sides is not None:
            query = query_of(*sides)
            view.state = view.state.with_choice("sql", query)
            view.state = view.state.with_choice("sql asked", query)
            view.change(tab="sql")


def query_of(first: Side, second: Side) -> str:
    """Return a query for what grew, in one snapshot or from A to B."""
    if first.view is second.view:
        return (
            "SELECT coalesce(own_function, 'no stack') AS who, own_line AS line,\n"
            f"    sum(size) FILTER (moment = {second.moment})"
            f" - sum(size) FILTER (moment = {first.moment}) AS growth\n"
            f"FROM (SELECT *, {first.moment} AS moment FROM live_at({first.moment})\n"
            f"    UNION ALL SELECT *, {second.moment} FROM live_at({second.moment}))\n"
            "    LEFT JOIN stacks USING (stack_id)\n"
            "GROUP BY ALL ORDER BY growth DESC NULLS LAST"
        )
    return (
        "SELECT who, line, a_bytes, b_bytes,\n"
        "    coalesce(b_bytes, 0) - coalesce(a_bytes, 0) AS growth\n"
        f"FROM ({_live_query('a', first)})\n"
        f"    FULL JOIN ({_live_query('b', second)})\n"
        "    USING (who, line)\n"
        "ORDER BY growth DESC"
    )


def _live_query(schema: str, side: Side) -> str:
    """Return a query for what is live at the moment of a side, by stack."""
    condition = ""
    if len(side.view.content.snapshot.traces) > 1:
        condition = f"\n        WHERE device = {side.view.trace.device}"
    return (
        "SELECT coalesce(own_function, 'no stack') AS who,\n"
        f"        coalesce(own_line, 0) AS line, sum(size)::BIGINT AS {schema}_bytes\n"
        f"        FROM {schema}.live_at({side.moment})"
        f" LEFT JOIN {schema}.stacks USING (stack_id){condition}\n"
        "        GROUP BY ALL"
    )


def text_of(grown: Grown) -> str:
    """Return the rows as lines with tabs, after a line of titles."""
    titles = (grown.grouping, "A bytes", "B bytes", "growth", "A blocks", "B blocks")
    lines = ["\t".join(titles)]
    for row in range(len(grown.comparison)):
        change = grown.comparison[row]
        values = (
            " ".join(change.label.split("\t")),
            change.bytes_before,
            change.bytes_after,
            change.bytes_after - change.bytes_before,
            change.count_before,
            change.count_after,
        )
        lines.append("\t".join(map(str, values)))
    return "\n".join(lines) + "\n"


# -- the rows --------------------------------------------------------------------------


def _columns(view: SnapshotView) -> tuple[TableColumn, ...]:
    """Return the columns of the table."""
    grouping = grouping_of(view)
    columns = [TableColumn("", 1.7), TableColumn(GROUPINGS[grouping])]
    if grouping == "stack":
        columns.append(TableColumn("Your line", 10))
    return (
        *columns,
        TableColumn("A", 5.8, True),
        TableColumn("B", 5.8, True),
        TableColumn(
            "Growth",
            6.8,
            align_right=True,
            tooltip="Click: what grew first, or what shrank first",
            sortable=True,
        ),
        TableColumn("Allocations", 6.4, True),
        TableColumn("", 14),
    )


def _cells(view: SnapshotView, grown: Grown, row: int) -> list[Cell | str]:
    """Return the cells of a row."""
    comparison = grown.comparison
    change = comparison[row]
    growth = int(comparison.changes[row])
    count_growth = change.count_after - change.count_before
    color = color_of(view, grown, row)
    name, line = split_label(change)
    cells: list[Cell | str] = [_swatch(color)]
    cells.append(name if grouping_of(view) == "stack" else change.label)
    if grouping_of(view) == "stack":
        cells.append(Cell(line, font="code"))
    bar = 0.0 if growth <= 0 else growth / comparison.largest_change
    return [
        *cells,
        size_text(change.bytes_before) if change.bytes_before else "0",
        size_text(change.bytes_after) if change.bytes_after else "0",
        Cell(change_text(growth) if growth else "0", font="bold"),
        f"{count_growth:+,}" if count_growth else "0",
        _bar(color, bar),
    ]


def split_label(change: Change) -> tuple[str, str]:
    """Return the name of a stack, and the line of code in it; "" where it has none."""
    frame_texts = change.label.split("  ")
    line = next(
        (frame_text for frame_text in frame_texts[:2] if _LINE.search(frame_text)), ""
    )
    callers = [part for part in frame_texts if part != line]
    return "  ".join(callers), line


def color_of(view: SnapshotView, grown: Grown, row: int) -> ImVec4:
    """Return the colour that the timeline has for the allocations of a row."""
    memory = view.pane_memory.setdefault("compare colours", {})
    color_by = view.state.color_by
    key = (grown.key, color_by, row)
    if key in memory:
        return memory[key]
    if len(memory) > 500:
        memory.clear()
    sides = zip(
        (grown.second, grown.first),
        reversed(grown.comparison.sides_of(row)),
        strict=True,
    )
    for side, ids in sides:
        colors = side.view.content.colors(side.view.device, color_by)
        if colors is None:
            return theme.DIM
        if len(ids):
            rgb = colors.palette[colors.classes[int(ids[0])]] / 255
            memory[key] = ImVec4(*rgb.tolist(), 1)  # type: ignore[call-arg]
            return memory[key]
    return theme.DIM


def _swatch(color: ImVec4) -> Cell:
    """Return a cell with a square of a colour."""

    def paint(
        draw: imgui.ImDrawList, left: float, right: float, top: float, height: float
    ) -> None:
        side = 12 * theme.scale()
        low = ImVec2(left + 2 * theme.scale(), top + (height - side) / 2)
        high = ImVec2(low.x + side, low.y + side)
        draw.add_rect_filled(low, high, theme.u32(color), 3 * theme.scale())

    return Cell("", paint=paint)


def _bar(color: ImVec4, share: float) -> Cell:
    """Return a cell with a bar of a colour, as long as a share of it."""

    def paint(
        draw: imgui.ImDrawList, left: float, right: float, top: float, height: float
    ) -> None:
        if share <= 0:
            return
        thickness = 8 * theme.scale()
        y = top + (height - thickness) / 2
        end = left + max((right - left) * share, 2)
        corner = ImVec2(end, y + thickness)
        draw.add_rect_filled(ImVec2(left, y), corner, theme.u32(color), 2)

    return Cell("", paint=paint)
