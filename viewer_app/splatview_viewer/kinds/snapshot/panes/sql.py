"""Questions in SQL: an editor, a table of the answer, whose allocations are lit in the timeline."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.formats.pictures import output_path
from splatview_viewer.kinds.snapshot.model import address_text
from splatview_viewer.kinds.snapshot.panes import _pane
from splatview_viewer.kinds.snapshot.panes._pane import Cell, Column, Grid, Rows
from splatview_viewer.kinds.snapshot.query import EXAMPLES as _SHORT
from splatview_viewer.kinds.snapshot.query import TABLES
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import gap

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.query import Database, Result
    from splatview_viewer.kinds.snapshot.state import Look

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
"""What it answers: the query."""


_EDITOR_LINES = 7
_RECENT = 12
"""Questions that are remembered."""
_CSV_S = 300.0
"""Seconds that writing a CSV may take: other questions wait."""
_MOST_COPIED = 10_000
"""Rows that are put on the clipboard at most."""
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "NUMBER")
"""How the names of DuckDB's types of numbers begin."""


class SqlPane(_pane.Pane):
    """The editor of a query, and its answer."""

    name = "sql"

    def __init__(self) -> None:
        super().__init__()
        self.text = EXAMPLES["The largest allocations"]
        """What stands in the editor."""
        self.said = ""
        """What was done with the answer: saved, copied."""
        self.folder: Path | None = None
        """Where CSV files are written; None: where the viewer was started."""
        self._asked: tuple[str, object] | None = None
        """The question that runs or was answered, unlike all others of the same text."""
        self._since = 0.0
        self._recent: list[str] = []
        self._saving: Hashable = None
        self._grid = Grid()
        self._order: np.ndarray | None = None
        self._sorted: tuple[int, bool] | None = None
        self._columns: Sequence[Column] = ()

    def fill(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        changed = self._editor(content, look, rect, scale)
        return self._answer(content, look, rect, scale) or changed

    # -- the question ------------------------------------------------------------------------------------------------

    def run(self, look: Look) -> None:
        """Ask what stands in the editor."""
        if not self.text.strip():
            return
        if self.lamp.on is not None:
            self.lamp.out(look)
        self._asked = self.text, object()
        self._since = imgui.get_time()
        self.said = ""
        self._recent = [self.text, *(t for t in self._recent if t != self.text)][:_RECENT]

    def _editor(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        before = self.text, self._asked
        lines = min(_EDITOR_LINES, max(3, rect.height / imgui.get_text_line_height() / 3.2))
        height = lines * imgui.get_text_line_height() + 2 * imgui.get_style().frame_padding.y
        _, self.text = imgui.input_text_multiline("##sql", self.text, ImVec2(-1, height))
        ctrl_enter = imgui.get_io().key_ctrl and imgui.is_key_pressed(imgui.Key.enter, False)
        if ctrl_enter and (imgui.is_item_active() or imgui.is_item_deactivated()):
            self.run(look)
        content.database()  # it opens while the question is written
        running = self._asked is not None and (content.peek(self._key()) is None and not content.fault(self._key()))
        if running:
            if imgui.button("Cancel"):
                self.cancel(content)
        elif imgui.button("Run"):
            self.run(look)
        if not running:
            imgui.set_item_tooltip("Ctrl + Enter")
        imgui.same_line()
        self._menu("Examples", EXAMPLES)
        imgui.same_line()
        self._menu("Tables", {f"{name}: {words}": f"SELECT *\nFROM {name}\nLIMIT 1000"
                              for name, words in TABLES.items()})
        if self._recent:
            imgui.same_line()
            self._menu("Recent", {" ".join(t.split())[:70]: t for t in self._recent})
        self._status(content, scale)
        return before != (self.text, self._asked)

    def _menu(self, name: str, texts: dict[str, str]) -> None:
        if imgui.button(name):
            imgui.open_popup(f"sql {name}")
        if imgui.begin_popup(f"sql {name}"):
            for title, text in texts.items():
                if imgui.selectable(title, False)[0]:
                    self.text = text
            imgui.end_popup()

    def _key(self) -> Hashable:
        return ("sql", self._asked)

    def cancel(self, content: Content) -> None:
        """Ask no longer."""
        content.forget(self._key())
        self._asked, self.said = None, "Cancelled"

    def _status(self, content: Content, scale: float) -> None:
        """Write the state of the answer, and buttons for it, on the right of the buttons."""
        result: Result | None = content.peek(self._key()) if self._asked is not None else None
        words = self.said
        saved = content.peek(self._saving) if self._saving is not None else None
        if self._saving is not None:
            words = saved or content.fault(self._saving) or "Writing the file\u2026"
        if result is not None:
            words = words or count_words(result)
        elif self._asked is not None and not content.fault(self._key()):
            took = imgui.get_time() - self._since
            words = f"Running for {took:.0f} s" if took > 1 else "Running\u2026"
        if result is not None and result.rows:
            _pane.beside(_pane.button_width("Save CSVCopy"), 16 * scale)
            if imgui.button("Save CSV"):
                self._save(content)
            imgui.set_item_tooltip(f"All rows, as a file in {self.folder or 'the working folder'}")
            imgui.same_line()
            if imgui.button("Copy"):
                imgui.set_clipboard_text(tabbed(result))
                self._saving, self.said = None, f"Copied {min(len(result.rows), _MOST_COPIED):,} rows"
            imgui.set_item_tooltip("The rows below, with tabs between the columns")
        if words:
            _pane.beside(min(imgui.calc_text_size(words).x, 16 * imgui.get_font_size()), 16 * scale)
            imgui.align_text_to_frame_padding()
            left = imgui.get_content_region_avail().x
            _pane.colored(_pane.fitted(words, left, tail=True), theme.DIM)

    def _save(self, content: Content) -> None:
        assert self._asked is not None
        database, text = content.database(), self._asked[0]
        if database is None:
            return
        self._saving, self.said = ("csv", object()), ""
        name, folder = f"{Path(content.snapshot.name).stem or 'snapshot'} query", self.folder
        content.ask(self._saving, lambda job: save_csv(database, text, name, folder, lambda: job.cancelled),
                    slot=("csv", id(self)), lane="query")

    # -- the answer --------------------------------------------------------------------------------------------------

    def _answer(self, content: Content, look: Look, rect: Rect, scale: float) -> bool:
        if self._asked is None and not content.fault(("database",)):
            _pane.centered("Ctrl + Enter runs the query\nAllocations that it gives are lit in the timeline")
            return False
        database = content.database()
        if database is None:
            _pane.trouble(content, ("database",), "Opening the database\u2026")
            return False
        assert self._asked is not None
        key, text = self._key(), self._asked[0]
        result = content.ask(key, lambda job: database.run(text, cancelled=lambda: job.cancelled),
                             slot=("sql", id(self)), lane="query", words="Asking the database")
        if result is None:
            if fault := content.fault(key):
                gap(4 * scale)
                _say(fault)
            return False
        if result is not self._shown:
            self._shown, self._order, self._sorted = result, None, None
            self._columns = _widths(result)
            self._grid = Grid()
            if (ids := result.allocations.get(content.trace(look).device)) is not None:
                self.lamp.ask(look, key, lambda: ids, f"SQL, {len(ids):,} allocations")
        return self._table(content, look, result, rect, scale)

    def _table(self, content: Content, look: Look, result: Result, rect: Rect, scale: float) -> bool:
        names = [c.casefold() for c in result.columns]
        at = {name: i for i, name in reversed(list(enumerate(names)))}
        id_at, device_at = at.get("id", at.get("allocation")), at.get("device")
        trace = content.trace(look)
        addresses = {i for i, name in enumerate(names) if name == "addr"}

        def of(row: int) -> Sequence[Any]:
            return result.rows[int(self._order[row]) if self._order is not None else row]

        def allocation(row: int) -> int | None:
            values = of(row)
            if id_at is None or not isinstance(values[id_at], int):
                return None
            return values[id_at] if here(values) and 0 <= values[id_at] < len(trace.allocations) else None

        def here(values: Sequence[Any]) -> bool:
            return device_at is None or values[device_at] == trace.device

        def cells(row: int) -> list[Cell | str]:
            return [Cell(address_text(v) if i in addresses and isinstance(v, int) else _shown(v),
                         theme.GONE if v is None else None) for i, v in enumerate(of(row))]

        touch = self._grid.draw("rows", self._columns, Rows(
            len(result.rows), cells,
            lambda row: look.selected is not None and allocation(row) == look.selected,
            lambda row: self._long(of(row)), words="No rows",
            sorted_by=self._sorted[0] if self._sorted else None,
            descending=not self._sorted or self._sorted[1], wide=True), scale)
        if touch.title is not None:
            self._sort(result, touch.title)
        _pane.hover(look, rect, None if touch.over is None else allocation(touch.over))
        if touch.row is not None:
            values = of(touch.row)
            if (chosen := allocation(touch.row)) is not None:
                look.select(chosen)
            if here(values):
                self._jump(content, look, {name: values[i] for name, i in at.items()}, chosen)
        return touch.any

    def _jump(self, content: Content, look: Look, values: dict[str, Any], chosen: int | None) -> None:
        """Go to what a row tells of: its event or moment, its allocation's beginning; or light its stack."""
        trace = content.trace(look)
        event, moment, stack = values.get("event"), values.get("moment"), values.get("stack_id")
        if isinstance(event, int) and 0 <= event < len(trace.events):
            _pane.go(content, look, event + 1)
        elif isinstance(moment, int) and 0 <= moment < trace.moments:
            _pane.go(content, look, moment)
        elif chosen is not None:
            _pane.go(content, look, int(trace.allocations.start[chosen]) + 1)
        elif isinstance(stack, int):
            self.lamp.toggle(look, ("stack", look.device, stack),
                              lambda: np.flatnonzero(trace.allocations.stack == stack), f"SQL, stack {stack}")

    def _sort(self, result: Result, column: int) -> None:
        """By this column: the largest first, then the smallest first, then as the query says."""
        if self._sorted == (column, False):
            self._sorted, self._order = None, None
            return
        self._sorted = (column, self._sorted != (column, True))
        keys = [_order_of(row[column]) for row in result.rows]
        self._order = np.array(sorted(range(len(keys)), key=keys.__getitem__, reverse=self._sorted[1]), np.int64)

    def _long(self, values: Sequence[Any]) -> str:
        """Texts that a cell cannot hold."""
        texts = [t for t in map(_shown, values) if len(t) > 60]
        return "\n".join(t if len(t) < 1500 else t[:1500] + "\u2026" for t in texts)


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
                    _pane.colored(text, color)
                    imgui.same_line(0, 0)
            imgui.new_line()
            i += 2
            continue
        _pane.wrapped(lines[i], theme.FAULT if i == 0 else theme.DIM)
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


def _widths(result: Result) -> list[Column]:
    """As wide as what stands in them, within limits; the widest text takes what is left."""
    sample = result.rows[:200]
    columns: list[Column] = []
    for i, name in enumerate(map(str, result.columns)):
        number = result.types[i].startswith(_NUMBERS)
        chars = max([len(name) + 2, *(len(_shown(row[i])) for row in sample)])
        columns.append(Column(name, min(max(chars * 0.54 + 0.8, 3.0), 26.0), number))
    texts = [i for i, c in enumerate(columns) if not c.right]
    if texts:
        widest = max(texts, key=lambda i: columns[i].width)
        if sum(c.width for c in columns) < 60 or columns[widest].width > 20:
            columns[widest] = Column(columns[widest].title, 0)
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
