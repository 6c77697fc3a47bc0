"""Questions in SQL: an editor, a table of the answer, whose allocations are lit in the timeline."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imgui_bundle import ImVec2, imgui

from splatview_viewer.formats.pictures import output_path
from splatview_viewer.kinds.snapshot.model import address_text
from splatview_viewer.kinds.snapshot.panes.parts import Shown, beside, centered, latest
from splatview_viewer.kinds.snapshot.panes.table import Cell, Column, Rows, draw_table
from splatview_viewer.kinds.snapshot.query import EXAMPLES as _SHORT
from splatview_viewer.kinds.snapshot.query import TABLES
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import colored, fitted, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.kinds.snapshot.query import Database, Result
    from splatview_viewer.kinds.snapshot.view import SnapshotView

EXAMPLES: dict[str, str] = {
    "The largest allocations": """\
SELECT id, size, start_event, end_event, category, own_function, own_file, own_line
FROM allocations LEFT JOIN stacks USING (stack_id)
ORDER BY size DESC
LIMIT 100""",
    **dict(_SHORT),
    "Who is live at the end": """\
SELECT stack_id, count(*) AS blocks, sum(size) AS bytes, any_value(own_function) AS func, any_value(own_file) AS file
FROM allocations LEFT JOIN stacks USING (stack_id)
WHERE end_event IS NULL
GROUP BY stack_id
ORDER BY bytes DESC""",
    "Allocated in the first half, never freed": """\
SELECT id, size, start_event, category, own_function, own_file
FROM allocations LEFT JOIN stacks USING (stack_id)
WHERE end_event IS NULL
  AND start_event < (SELECT max(event) / 2 FROM events)
ORDER BY size DESC""",
    "Shortest lives": """\
SELECT id, size, lifetime_us, start_event, category, stack_id
FROM allocations
WHERE lifetime_us IS NOT NULL
ORDER BY lifetime_us, size DESC
LIMIT 500""",
    "Which stack allocates most often": """\
SELECT stack_id, count(*) AS times, sum(size) AS bytes, any_value(own_function) AS func, any_value(own_file) AS file
FROM allocations LEFT JOIN stacks USING (stack_id)
WHERE start_event IS NOT NULL
GROUP BY stack_id
ORDER BY times DESC
LIMIT 200""",
    "Bytes at the peak by category": """\
SELECT device, category, count(*) AS blocks, sum(size) AS bytes
FROM live_at(peak())
GROUP BY ALL
ORDER BY bytes DESC""",
    "Live bytes at the end by stream and pool": """\
SELECT device, stream, pool, count(*) AS blocks, sum(size) AS bytes
FROM allocations
WHERE end_event IS NULL
GROUP BY ALL
ORDER BY bytes DESC""",
    "What each kind of event does": """\
SELECT device, action, count(*) AS events, sum(size) AS bytes
FROM events
GROUP BY ALL
ORDER BY device, events DESC""",
    "Largest free blocks inside segments": """\
SELECT device, segment, addr, size, state
FROM blocks
WHERE state = 'inactive'
ORDER BY size DESC
LIMIT 100""",
}
"""Queries by their subject."""


_EDITOR_LINES = 7
_RECENT = 12
"""Questions that are remembered."""
_CSV_S = 300.0
"""Seconds that writing a CSV may take: other questions wait."""
_MOST_COPIED = 10_000
"""Rows that are put on the clipboard at most."""
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "NUMBER")
"""First letters of DuckDB's types of numbers."""


def draw_sql(view: SnapshotView) -> bool:
    """Draw the editor of a query, and its answer; True when the picture has to be drawn again."""
    _editor(view)
    database, number = view.content.database(), int(view.state.choice("sql run", "0"))
    if not number and not view.content.fault(("database",)):
        centered("Ctrl + Enter runs the query\nAllocations that it gives are lit in the timeline")
        return False
    if database is None:
        wrapped(view.content.fault(("database",)) or "Opening the database\u2026")
        return False
    key = _key(view)
    if fault := view.content.fault(key):
        _say(fault)
        return False
    shown = latest(view, "sql", key, "")
    if shown is None:
        return False
    if shown.key == key and view.memory.get("sql lit") != key:
        view.memory = {place: kept for place, kept in view.memory.items() if not place[0].startswith("rows ")}
        view.memory["sql lit"] = key
        device = view.trace.device
        if (ids := shown.answer.allocations.get(device)) is not None:
            view.light(key, device, f"SQL, {len(ids):,} allocations")
    return draw_table(view, f"rows {shown.key[2]}", _rows(view, shown))


def run(view: SnapshotView) -> None:
    """Ask what stands in the editor."""
    text = _text(view)
    if not text.strip():
        return
    runs: list[str] = view.memory.setdefault("sql recent", [])
    view.memory["sql recent"] = [text, *(t for t in runs if t != text)][:_RECENT]
    view.memory["sql since"], view.memory["sql said"] = imgui.get_time(), ""
    number = 1 + max(int(view.state.choice("sql run", "0")), int(view.memory.get("sql runs", 0)))
    view.memory["sql runs"] = number
    lit = view.state.lit
    view.state = view.state.choosing("sql run", str(number)).choosing("sql asked", text)
    view.see(lit=None if lit is not None and lit.key[0] == "sql" else lit)


def _text(view: SnapshotView) -> str:
    return view.state.choice("sql", EXAMPLES["The largest allocations"])


def _key(view: SnapshotView) -> tuple[str, str, int]:
    return "sql", view.state.choice("sql asked", ""), int(view.state.choice("sql run", "0"))


def _editor(view: SnapshotView) -> None:
    line = imgui.get_text_line_height()
    height = min(_EDITOR_LINES * line, max(3 * line, imgui.get_content_region_avail().y / 3.2))
    edited, text = imgui.input_text_multiline(
        "##sql", _text(view), ImVec2(-1, height + 2 * imgui.get_style().frame_padding.y))
    if edited:
        view.state = view.state.choosing("sql", text)
    ctrl_enter = imgui.get_io().key_ctrl and imgui.is_key_pressed(imgui.Key.enter, False)
    if ctrl_enter and (imgui.is_item_active() or imgui.is_item_deactivated()):
        run(view)
    key, content = _key(view), view.content
    running = key[2] > 0 and content.peek(key) is None and not content.fault(key)
    if running and imgui.button("Cancel"):
        content.forget(key)
        view.state, view.memory["sql said"] = view.state.choosing("sql run", "0"), "Cancelled"
    elif not running:
        if imgui.button("Run"):
            run(view)
        imgui.set_item_tooltip("Ctrl + Enter")
    menus = {"Examples": EXAMPLES, "Recent": {" ".join(t.split())[:70]: t for t in view.memory.get("sql recent", [])},
             "Tables": {f"{name}: {words}": f"SELECT *\nFROM {name}\nLIMIT 1000" for name, words in TABLES.items()}}
    for name, texts in menus.items():
        if not texts:
            continue
        imgui.same_line()
        if imgui.button(name):
            imgui.open_popup(f"sql {name}")
        if imgui.begin_popup(f"sql {name}"):
            for title, example in texts.items():
                if imgui.selectable(title, False)[0]:
                    view.state = view.state.choosing("sql", example)
            imgui.end_popup()
    _status(view, key, running)


def _status(view: SnapshotView, key: tuple[str, str, int], running: bool) -> None:
    """Write the state of the answer, and buttons for it, on the right of the buttons."""
    content, memory = view.content, view.memory
    result: Result | None = content.peek(key) if key[2] else None
    saving, words = ("csv", memory.get("sql csv", 0)), memory.get("sql said", "")
    if saving[1] and not words:
        words = content.peek(saving) or content.fault(saving) or "Writing the file\u2026"
    if result is not None:
        words = words or count_words(result)
        if result.rows:
            beside(imgui.calc_text_size("Save CSVCopy").x + 30 * view.scale, 16 * view.scale)
            if imgui.button("Save CSV"):
                _save(view, key[1])
            imgui.set_item_tooltip("All rows, as a file in the working folder")
            imgui.same_line()
            if imgui.button("Copy"):
                imgui.set_clipboard_text(tabbed(result))
                memory["sql said"] = f"Copied {min(len(result.rows), _MOST_COPIED):,} rows"
            imgui.set_item_tooltip("The rows below, with tabs between the columns")
    elif running:
        took = imgui.get_time() - memory.get("sql since", imgui.get_time())
        words = f"Running for {took:.0f} s" if took > 1 else "Running\u2026"
    if words:
        beside(min(imgui.calc_text_size(words).x, 16 * imgui.get_font_size()), 16 * view.scale)
        imgui.align_text_to_frame_padding()
        colored(fitted(words, imgui.get_content_region_avail().x, tail=True), theme.DIM)


def _save(view: SnapshotView, text: str) -> None:
    database, memory = view.content.database(), view.memory
    if database is not None:
        memory["sql csv"], memory["sql said"] = memory.get("sql csv", 0) + 1, ""
        name = f"{Path(view.content.snapshot.name).stem or 'snapshot'} query"
        view.content.ask(("csv", memory["sql csv"]), lambda job: save_csv(
            database, text, name, None, lambda: job.cancelled), newest=True, lane="query")


# -- the answer ------------------------------------------------------------------------------------------------------


def _rows(view: SnapshotView, shown: Shown) -> Rows:
    result: Result = shown.answer
    names = [column.casefold() for column in result.columns]
    at = {name: i for i, name in reversed(list(enumerate(names)))}
    id_at, device_at, trace = at.get("id", at.get("allocation")), at.get("device"), view.trace

    def here(values: Sequence[Any]) -> bool:
        return device_at is None or values[device_at] == trace.device

    def allocation(row: int) -> int | None:
        values = result.rows[row]
        found = values[id_at] if id_at is not None else None
        return found if isinstance(found, int) and here(values) and 0 <= found < len(trace.allocations) else None

    def cells(row: int) -> list[Cell | str]:
        return [Cell(address_text(v) if names[i] == "addr" and isinstance(v, int) else _shown(v),
                     theme.GONE if v is None else None) for i, v in enumerate(result.rows[row])]

    def click(row: int, double: bool) -> None:
        if (chosen := allocation(row)) is not None:
            view.see(selected=chosen)
        if here(result.rows[row]):
            _jump(view, {name: result.rows[row][i] for name, i in at.items()}, chosen)

    def tip(row: int) -> str:
        """Texts that a cell cannot hold."""
        texts = [text for text in map(_shown, result.rows[row]) if len(text) > 60]
        return "\n".join(text if len(text) < 1500 else text[:1500] + "\u2026" for text in texts)

    return Rows(result, len(result.rows), _columns(result), cells, click,
                lambda row: view.state.selected is not None and allocation(row) == view.state.selected, tip,
                allocation=allocation, sort=lambda column: [_order_of(row[column]) for row in result.rows],
                words="No rows", wide=True)


def _jump(view: SnapshotView, values: dict[str, Any], chosen: int | None) -> None:
    """Go to what a row tells of: its event or moment, its allocation's beginning; or light its stack."""
    trace = view.trace
    event, moment, stack = values.get("event"), values.get("moment"), values.get("stack_id")
    if isinstance(event, int) and 0 <= event < len(trace.events):
        view.go(event + 1)
    elif isinstance(moment, int) and 0 <= moment < trace.moments:
        view.go(moment)
    elif chosen is not None:
        view.go(int(trace.allocations.start[chosen]) + 1)
    elif isinstance(stack, int):
        view.light(("stack", view.device), stack, f"SQL, stack {stack}")


def count_words(result: Result) -> str:
    """Describe an answer: its rows, its duration, what is lit."""
    shown = f"{len(result.rows):,}"
    if result.truncated:
        rows = f"the first {shown} of {result.total:,} rows" if result.total else f"the first {shown} rows"
    else:
        rows = f"{shown} row" if len(result.rows) == 1 else f"{shown} rows"
    lit = sum(map(len, result.allocations.values()))
    words = [rows, f"{result.seconds * 1e3:.0f} ms" if result.seconds < 1 else f"{result.seconds:.1f} s",
             *([f"{lit:,} allocations lit"] if lit else []),
             *([result.note] if result.note else [])]
    return ", ".join(words)


def _say(fault: str) -> None:
    """Write the error of a query: where the database marks a place with a line of ^ below it, that place is lit, since
    a mark would not lie under it in letters of different widths."""
    lines = fault.split("\n")
    i = 0
    while i < len(lines):
        mark = lines[i + 1] if i + 1 < len(lines) else ""
        if mark.strip() and not mark.strip("^ "):
            first, last = mark.index("^"), mark.rindex("^") + 1
            for text, color in ((lines[i][:first], theme.DIM), (lines[i][first:last], theme.FAULT),
                                (lines[i][last:], theme.DIM)):
                if text:
                    colored(text, color)
                    imgui.same_line(0, 0)
            imgui.new_line()
            i += 2
            continue
        wrapped(lines[i], theme.FAULT if i == 0 else theme.DIM)
        i += 1


def save_csv(database: Database, text: str, name: str, folder: Path | None,
             cancelled: Callable[[], bool] = lambda: False) -> str:
    """Write all rows as CSV into a file of its own, and say which. Raises FileError, QueryError."""
    from splatview_ipc.system.files import output_file
    from splatview_viewer.core.errors import FileError

    path = output_path(name, ".csv", folder)
    try:
        with output_file(path, numbered=True) as out:
            rows = io.TextIOWrapper(out.file, encoding="utf-8", newline="")
            database.csv(text, rows, timeout=_CSV_S, cancelled=cancelled)
            rows.detach()
    except OSError as e:
        raise FileError(str(e)) from e
    return f"Saved {out.path}"


def tabbed(result: Result) -> str:
    """The rows as text that spreadsheets take: tabs between columns."""
    def clean(value: Any) -> str:
        return "" if value is None else str(value).replace("\t", " ").replace("\n", " ")

    rows = [result.columns, *result.rows[:_MOST_COPIED]]
    return "\n".join("\t".join(map(clean, row)) for row in rows) + "\n"


def _columns(result: Result) -> list[Column]:
    """Columns as wide as what stands in them, within limits; the widest text takes what is left."""
    sample = result.rows[:200]
    columns: list[Column] = []
    for i, name in enumerate(map(str, result.columns)):
        number = result.types[i].startswith(_NUMBERS)
        chars = max([len(name) + 3, *(len(_shown(row[i])) for row in sample)])
        columns.append(Column(name, min(max(chars * 0.54 + 0.8, 3.0), 26.0), number, sorts=True))
    texts = [i for i, c in enumerate(columns) if not c.right]
    if texts:
        widest = max(texts, key=lambda i: columns[i].width)
        columns[widest] = Column(columns[widest].title, sorts=True)
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
    return " ".join(str(value).split())


def _order_of(value: Any) -> tuple[int, Any]:
    """Return the key to sort by: nothing first, then numbers, then texts."""
    if value is None:
        return 0, 0
    if isinstance(value, (int, float)):
        return 1, value
    return 2, str(value)
