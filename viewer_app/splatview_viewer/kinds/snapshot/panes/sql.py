"""Questions in SQL: an editor, a table of the answer, whose allocations are lit in the timeline."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.format import count_text
from splatview_viewer.kinds.snapshot.panes.table import (
    Cell,
    PaneAnswer,
    TableColumn,
    TableRows,
    continue_line,
    draw_centered,
    draw_table,
    latest_answer,
)
from splatview_viewer.snapshot.model import address_text
from splatview_viewer.snapshot.query import EXAMPLES, NUMERIC_TYPES
from splatview_viewer.snapshot.query_tables import TABLES
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.kinds.snapshot.view import SnapshotView
    from splatview_viewer.snapshot.query import QueryResult

_EDITOR_LINES = 7
_MOST = 100_000
"""Rows of an answer that are shown."""
_MOST_LETTERS = 2000
"""Letters of a value that are shown; a copy has all of them."""


def draw_sql(view: SnapshotView) -> bool:
    """Draw the editor of a query, and its answer; True when the picture has to be drawn again."""
    _editor(view)
    key = _key(view)
    fault = view.content.fault(("database",))
    database = view.content.database()
    if database is None or not key[1]:
        draw_centered(
            fault
            or "Ctrl + Enter runs the query\nAllocations that it gives are lit in the timeline"
        )
        return False
    shown = latest_answer(
        view,
        "sql",
        key,
        lambda job: database.run(key[1], _MOST, cancelled=lambda: job.cancelled),
        "",
        lane="query",
    )
    if shown is None:
        return False
    if shown.key == key and view.pane_memory.get("sql lit") is not shown.answer:
        view.pane_memory["sql lit"] = shown.answer
        ids = shown.answer.allocations(view.trace)
        if len(ids):
            view.change(highlight=None)
            view.toggle_highlight(key, 0, ids, f"SQL, {len(ids):,} allocations")
    return draw_table(
        view, f"rows {' '.join(shown.answer.columns)}", _rows(view, shown)
    )


def run_query(view: SnapshotView) -> None:
    """Ask what stands in the editor."""
    lit = view.state.highlight
    text = _text(view)
    view.content.forget(("sql", text))
    view.state = view.state.with_choice("sql asked", text.strip() and text)
    view.change(highlight=None if lit is not None and lit.key[0] == "sql" else lit)


def _text(view: SnapshotView) -> str:
    return view.state.choice("sql", EXAMPLES["The largest allocations"])


def _key(view: SnapshotView) -> tuple[str, str]:
    return "sql", view.state.choice("sql asked", "")


def _editor(view: SnapshotView) -> None:
    line = imgui.get_text_line_height()
    height = min(
        _EDITOR_LINES * line, max(3 * line, imgui.get_content_region_avail().y / 3.2)
    )
    edited, text = imgui.input_text_multiline(
        "##sql", _text(view), ImVec2(-1, height + 2 * imgui.get_style().frame_padding.y)
    )
    if edited:
        view.state = view.state.with_choice("sql", text)
    ctrl_enter = imgui.get_io().key_ctrl and imgui.is_key_pressed(
        imgui.Key.enter, False
    )
    if ctrl_enter and (imgui.is_item_active() or imgui.is_item_deactivated()):
        run_query(view)
    key = _key(view)
    content = view.content
    running = bool(key[1]) and content.peek(key) is None and not content.fault(key)
    if running and imgui.button("Cancel"):
        content.forget(key)
        view.state = view.state.with_choice("sql asked", "")
    elif not running:
        if imgui.button("Run"):
            run_query(view)
        imgui.set_item_tooltip("Ctrl + Enter")
    imgui.same_line()
    if imgui.button("Examples"):
        imgui.open_popup("sql examples")
    if imgui.begin_popup("sql examples"):
        tables = {
            f"{name}: {words}": f"SELECT *\nFROM {name}\nLIMIT 1000"
            for name, words in TABLES.items()
        }
        for title, example in (*EXAMPLES.items(), *tables.items()):
            if imgui.selectable(title, False)[0]:
                view.state = view.state.with_choice("sql", example)
        imgui.end_popup()
    result: QueryResult | None = content.peek(key)
    if result is not None:
        continue_line(imgui.calc_text_size("Copy").x + 16 * view.scale, 4 * view.scale)
        if imgui.button("Copy"):
            imgui.set_clipboard_text(csv_text(result))
        imgui.set_item_tooltip("The rows as CSV")
    words = "Running\u2026" if running else ""
    if result is not None:
        words = f"{'the first ' * result.truncated}{count_text(len(result.rows), 'row')}, {result.seconds:.2f} s"
    if words:
        continue_line(
            min(imgui.calc_text_size(words).x, 16 * imgui.get_font_size()),
            16 * view.scale,
        )
        imgui.align_text_to_frame_padding()
        colored(fitted(words, imgui.get_content_region_avail().x, tail=True), theme.DIM)


# -- the answer ------------------------------------------------------------------------------------------------------


def _rows(view: SnapshotView, shown: PaneAnswer) -> TableRows:
    result: QueryResult = shown.answer
    names = [column.casefold() for column in result.columns]
    trace = view.trace

    def allocation(row: int) -> int | None:
        found = result.integer(row, trace.device, "id", "allocation")
        return found if 0 <= found < len(trace.allocations) else None

    def cells(row: int) -> list[Cell | str]:
        return [
            Cell(
                address_text(v)
                if names[i] == "addr" and isinstance(v, int)
                else _shown(v),
                theme.GONE if v is None else None,
            )
            for i, v in enumerate(result.rows[row])
        ]

    def click(row: int, double: bool) -> None:
        """Go to what a row tells of: its event or moment, its allocation's beginning; or light its stack."""
        event, moment, stack = (
            result.integer(row, trace.device, name)
            for name in ("event", "moment", "stack_id")
        )
        chosen = allocation(row)
        if chosen is not None:
            view.change(selected=chosen)
        if 0 <= event < len(trace.events):
            view.choose_moment(event + 1)
        elif 0 <= moment < trace.moment_count:
            view.choose_moment(moment)
        elif chosen is not None:
            view.choose_moment(int(trace.allocations.start[chosen]) + 1)
        elif stack >= 0:
            view.toggle_highlight(
                ("stack", view.device),
                stack,
                np.flatnonzero(trace.allocations.stack == stack),
                f"SQL, stack {stack}",
            )

    def tip(row: int) -> str:
        """Texts that a cell cannot hold."""
        texts = [text for text in map(_shown, result.rows[row]) if len(text) > 60]
        return "\n".join(
            text if len(text) < 1500 else text[:1500] + "\u2026" for text in texts
        )

    return TableRows(
        result,
        len(result.rows),
        _columns(result),
        cells,
        click,
        lambda row: (
            view.state.selected is not None and allocation(row) == view.state.selected
        ),
        tip,
        allocation=allocation,
        sort_values=lambda column: [  # nothing first, then numbers, then texts
            (0, 0)
            if v is None
            else (1, v)
            if isinstance(v, (int, float))
            else (2, str(v))
            for v in (row[column] for row in result.rows)
        ],
        empty_text="No rows",
    )


def csv_text(result: QueryResult) -> str:
    """The rows as CSV with a line of names: NULL is empty."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([result.columns, *result.rows])
    return out.getvalue()


def _columns(result: QueryResult) -> list[TableColumn]:
    """Columns as wide as what stands in them, within limits; the widest text takes what is left."""
    sample = result.rows[:200]
    columns: list[TableColumn] = []
    for i, name in enumerate(map(str, result.columns)):
        number = result.types[i].startswith(NUMERIC_TYPES)
        chars = max([len(name) + 3, *(len(_shown(row[i])) for row in sample)])
        columns.append(
            TableColumn(
                name, min(max(chars * 0.54 + 0.8, 3.0), 26.0), number, sortable=True
            )
        )
    texts = [i for i, c in enumerate(columns) if not c.align_right]
    if texts:
        widest = max(texts, key=lambda i: columns[i].width)
        columns[widest] = TableColumn(columns[widest].title, sortable=True)
    return columns


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.6g}"
    if isinstance(value, str):
        return " ".join(value[:_MOST_LETTERS].split())
    pieces: list[str] = []
    room = _MOST_LETTERS
    for piece in _pieces(value):
        pieces.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return " ".join("".join(pieces).split())


def _pieces(value: Any) -> Iterator[str]:
    """Yield a value as Python writes it, piece by piece: the whole can have millions of letters, in each picture."""
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
        yield repr(value[:_MOST_LETTERS])
    else:
        yield str(value)
