"""The pane of SQL: an editor, and a table of the answer.

The allocations of an answer are highlighted in the timeline.
"""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.quantities import count_text
from splatview_viewer.kinds.snapshot.content import DATABASE_KEY, pair_key
from splatview_viewer.kinds.snapshot.panes.parts import (
    continue_line,
    draw_centered,
    latest_answer,
)
from splatview_viewer.kinds.snapshot.panes.table import (
    Cell,
    TableColumn,
    TableRows,
    draw_table,
)
from splatview_viewer.snapshot.model import address_text
from splatview_viewer.snapshot.query import EXAMPLES, NUMERIC_TYPES, PAIR_EXAMPLES
from splatview_viewer.snapshot.query_tables import TABLES
from splatview_viewer.ui import controls, theme
from splatview_viewer.ui.widgets import colored, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.query import QueryResult

_EDITOR_LINES = 7
_MAX_ROWS = 100_000
"""Rows of an answer that are shown."""
_MAX_LETTERS = 2000
"""Letters of a value that are shown; a copy has all of them."""
_MIN_TIP_LETTERS = 60
"""Letters of a value from which the tooltip shows it."""
_MAX_TIP_LETTERS = 1500
_WIDTH_SAMPLE = 200
"""Rows whose values decide the widths of columns."""


def draw_sql(view: SnapshotView) -> bool:
    """Draw the editor of a query, and its answer.

    Returns True when the picture has to be drawn again.
    """
    _draw_editor(view)
    key = _query_key(view)
    sql = key[1]
    pair = _pair_of(view)
    if pair is None:
        database_key = DATABASE_KEY
        database = view.content.database()
    else:
        database_key = pair_key(*pair)
        database = view.content.database_of_pair(database_key, *pair)
    fault = view.content.fault(database_key)
    if database is None or not sql:
        help_text = (
            "Ctrl + Enter runs the query\n"
            "Allocations that it gives are lit in the timeline"
        )
        if pair is not None:
            names = " and ".join(content.snapshot.name for content in pair)
            help_text = (
                "Ctrl + Enter runs the query\n"
                f"The tables of {names} are in the schemas a and b"
            )
        draw_centered(fault or help_text)
        return False
    latest = latest_answer(
        view,
        "sql",
        key,
        lambda job: database.run(sql, _MAX_ROWS, cancelled=lambda: job.cancelled),
        "",
        lane="query",
    )
    if latest is None:
        return False
    result: QueryResult = latest.answer
    if latest.key == key and view.pane_memory.get("sql lit") is not result:
        view.pane_memory["sql lit"] = result
        ids = result.allocations(view.trace)
        # Of two snapshots, a number does not tell whose allocation it is.
        if len(ids) and pair is None:
            view.change(highlight=None)
            view.toggle_highlight(key, 0, ids, f"SQL, {len(ids):,} allocations")
    name = f"rows {' '.join(result.columns)}"
    rows = _ResultTable(view, result).rows(is_of_pair=pair is not None)
    return draw_table(view, name, rows)


def run_query(view: SnapshotView) -> None:
    """Run the query in the editor."""
    text = _editor_text(view)
    view.content.forget(("sql", text, *_query_key(view)[2:]))
    view.state = view.state.with_choice("sql asked", text if text.strip() else "")
    highlight = view.state.highlight
    if highlight is not None and highlight.key[0] == "sql":
        view.change(highlight=None)


def _editor_text(view: SnapshotView) -> str:
    """Return the query in the editor."""
    examples = EXAMPLES if _pair_of(view) is None else PAIR_EXAMPLES
    return view.state.choice("sql", next(iter(examples.values())))


def _query_key(view: SnapshotView) -> tuple[Any, ...]:
    """Return the key of the query that was run last; its SQL is "" before the first.

    What follows the SQL names the pair of snapshots that it is about.
    """
    pair = _pair_of(view)
    key = ("sql", view.state.choice("sql asked", ""))
    if pair is None:
        return key
    return (*key, *pair_key(*pair))


def _pair_of(view: SnapshotView) -> tuple[Content, Content] | None:
    """Return A and B while two snapshots are compared; None otherwise."""
    partner = view.two_runs.partner
    if partner is None:
        return None
    first, second = view.two_runs.sides(partner)
    return first.content, second.content


# -- the editor ------------------------------------------------------------------------


def _draw_editor(view: SnapshotView) -> None:
    """Draw the editor of the query with its buttons, and how long the answer is."""
    _draw_query(view)
    key = _query_key(view)
    content = view.content
    has_query = bool(key[1])
    is_running = has_query and content.peek(key) is None and not content.fault(key)
    if is_running:
        if imgui.button("Cancel"):
            content.forget(key)
            view.state = view.state.with_choice("sql asked", "")
    else:
        if imgui.button("Run"):
            run_query(view)
        controls.tip("Ctrl + Enter")
    imgui.same_line()
    if imgui.button("Examples"):
        imgui.open_popup("sql examples")
    _draw_examples(view)
    result: QueryResult | None = content.peek(key)
    status = "Running\u2026" if is_running else ""
    if result is not None:
        _draw_copy_button(view, result)
        row_count = count_text(len(result.rows), "row")
        if result.truncated:
            row_count = f"the first {row_count}"
        status = f"{row_count}, {result.seconds:.2f} s"
    if status:
        max_width = 16 * imgui.get_font_size()
        width = min(imgui.calc_text_size(status).x, max_width)
        continue_line(width, 16 * view.scale)
        imgui.align_text_to_frame_padding()
        available_width = imgui.get_content_region_avail().x
        colored(fitted(status, available_width, tail=True), theme.DIM)


def _draw_query(view: SnapshotView) -> None:
    """Draw the text of the query; Ctrl + Enter runs it."""
    line_height = imgui.get_text_line_height()
    third = imgui.get_content_region_avail().y / 3.2
    height = min(_EDITOR_LINES * line_height, max(3 * line_height, third))
    padding = 2 * imgui.get_style().frame_padding.y
    edited, text = imgui.input_text_multiline(
        "##sql", _editor_text(view), ImVec2(-1, height + padding)
    )
    if edited:
        view.state = view.state.with_choice("sql", text)
    is_enter = imgui.is_key_pressed(imgui.Key.enter, False)
    has_focus = imgui.is_item_active() or imgui.is_item_deactivated()
    if imgui.get_io().key_ctrl and is_enter and has_focus:
        run_query(view)


def _draw_examples(view: SnapshotView) -> None:
    """Draw the open list of examples, which a click puts into the editor."""
    if not imgui.begin_popup("sql examples"):
        return
    is_pair = _pair_of(view) is not None
    examples = dict(PAIR_EXAMPLES if is_pair else EXAMPLES)
    for schema in ("a.", "b.") if is_pair else ("",):
        for name, description in TABLES.items():
            table = f"{schema}{name}"
            examples[f"{table}: {description}"] = f"SELECT *\nFROM {table}\nLIMIT 1000"
    for title, sql in examples.items():
        if imgui.selectable(title, False)[0]:
            view.state = view.state.with_choice("sql", sql)
    imgui.end_popup()


def _draw_copy_button(view: SnapshotView, result: QueryResult) -> None:
    """Draw a button that copies the answer."""
    width = imgui.calc_text_size("Copy").x + 16 * view.scale
    continue_line(width, 4 * view.scale)
    if imgui.button("Copy"):
        imgui.set_clipboard_text(csv_text(result))
    controls.tip("The rows as CSV")


# -- the answer ------------------------------------------------------------------------


class _ResultTable:
    """The table of an answer."""

    def __init__(self, view: SnapshotView, result: QueryResult) -> None:
        self._view = view
        self._trace = view.trace
        self._result = result
        self._is_address = [name.casefold() == "addr" for name in result.columns]

    def rows(self, *, is_of_pair: bool) -> TableRows:
        """Return the rows of the table.

        is_of_pair: the result is of two snapshots.
        """
        rows = TableRows(
            answer=self._result,
            count=len(self._result.rows),
            columns=_columns(self._result),
            cells=self._cells,
            tooltip=self._tooltip,
            sort_values=self._sort_values,
            empty_text="No rows",
        )
        if is_of_pair:
            # A row does not tell of which snapshot it is: it leads nowhere.
            return rows
        return replace(
            rows,
            on_click=self._on_click,
            is_chosen=self._is_chosen,
            allocation=self._allocation,
        )

    def _cells(self, row: int) -> list[Cell | str]:
        return [
            _value_cell(value, is_address)
            for value, is_address in zip(
                self._result.rows[row], self._is_address, strict=True
            )
        ]

    def _integer(self, row: int, *names: str) -> int:
        """Return an integer of a row from the first of these columns; -1: none."""
        return self._result.integer(row, self._trace.device, *names)

    def _allocation(self, row: int) -> int | None:
        """Return the allocation that a row names, or None."""
        allocation = self._integer(row, "id", "allocation")
        is_known = 0 <= allocation < len(self._trace.allocations)
        if is_known:
            return allocation
        return None

    def _is_chosen(self, row: int) -> bool:
        selected = self._view.state.selected
        return selected is not None and self._allocation(row) == selected

    def _on_click(self, row: int, double: bool) -> None:
        """Show the event, moment or beginning of an allocation that a row names.

        Where there is none, highlight its stack.
        """
        view = self._view
        trace = self._trace
        event = self._integer(row, "event")
        event_index = self._integer(row, "moment")
        stack = self._integer(row, "stack_id")
        allocation = self._allocation(row)
        if allocation is not None:
            view.change(selected=allocation)
        if 0 <= event < len(trace.events):
            view.choose_moment(event + 1)
        elif 0 <= event_index < trace.moment_count:
            view.choose_moment(event_index)
        elif allocation is not None:
            view.choose_moment(int(trace.allocations.start[allocation]) + 1)
        elif stack >= 0:
            ids = np.flatnonzero(trace.allocations.stack == stack)
            key = ("stack", view.device)
            view.toggle_highlight(key, stack, ids, f"SQL, stack {stack}")

    def _tooltip(self, row: int) -> str:
        """Return the values of a row that a cell cannot hold."""
        lines = []
        for text in map(_value_text, self._result.rows[row]):
            if len(text) >= _MAX_TIP_LETTERS:
                lines.append(text[:_MAX_TIP_LETTERS] + "\u2026")
            elif len(text) > _MIN_TIP_LETTERS:
                lines.append(text)
        return "\n".join(lines)

    def _sort_values(self, column: int) -> list[tuple[int, Any]]:
        return [_sort_key(row[column]) for row in self._result.rows]


def _value_cell(value: Any, is_address: bool) -> Cell:
    """Return the cell of a value."""
    if value is None:
        return Cell(_value_text(value), theme.FAINT)
    if is_address and isinstance(value, int):
        return Cell(address_text(value))
    return Cell(_value_text(value))


def _sort_key(value: Any) -> tuple[int, Any]:
    """Return a key that orders NULL before numbers, and numbers before texts."""
    if value is None:
        return 0, 0
    if isinstance(value, (int, float)):
        return 1, value
    return 2, str(value)


def csv_text(result: QueryResult) -> str:
    """Return the rows as CSV with a line of names; NULL is empty."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([result.columns, *result.rows])
    return out.getvalue()


def _columns(result: QueryResult) -> list[TableColumn]:
    """Return columns as wide as their values, within limits.

    The widest text takes what is left.
    """
    sample = result.rows[:_WIDTH_SAMPLE]
    columns: list[TableColumn] = []
    for i, name in enumerate(map(str, result.columns)):
        letters = max([len(name) + 3, *(len(_value_text(row[i])) for row in sample)])
        columns.append(
            TableColumn(
                title=name,
                width=min(max(letters * 0.54 + 0.8, 3.0), 26.0),
                align_right=result.types[i].startswith(NUMERIC_TYPES),
                sortable=True,
            )
        )
    texts = [i for i, column in enumerate(columns) if not column.align_right]
    if texts:
        widest = max(texts, key=lambda i: columns[i].width)
        columns[widest] = TableColumn(columns[widest].title, sortable=True)
    return columns


def _value_text(value: Any) -> str:
    """Return a value on one line of bounded length."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, str):
        return " ".join(value[:_MAX_LETTERS].split())
    pieces: list[str] = []
    letters_left = _MAX_LETTERS
    for piece_text in _pieces(value):
        pieces.append(piece_text[:letters_left])
        letters_left -= len(piece_text)
        if letters_left <= 0:
            break
    return " ".join("".join(pieces).split())


def _pieces(value: Any) -> Iterator[str]:
    """Yield a value as Python writes it, piece by piece.

    The complete text, which can have millions of letters, would be made for each picture.
    """
    if isinstance(value, dict):
        yield "{"
        for i, (name, inner) in enumerate(value.items()):
            yield ", " if i else ""
            yield from _pieces(name)
            yield ": "
            yield from _pieces(inner)
        yield "}"
    elif isinstance(value, (list, tuple)):
        yield "[" if isinstance(value, list) else "("
        for i, inner in enumerate(value):
            yield ", " if i else ""
            yield from _pieces(inner)
        yield "]" if isinstance(value, list) else ")"
    elif isinstance(value, (str, bytes, bytearray)):
        yield repr(value[:_MAX_LETTERS])
    else:
        yield str(value)
