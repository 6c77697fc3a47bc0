"""`splatview memory FILE` without a viewer: the answer to a query as text."""

from __future__ import annotations

import re
import sys
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from splatview_viewer.core.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.snapshot.model import MemorySnapshot
    from splatview_viewer.snapshot.query import QueryResult

_CELL = 80
_LAST = 200
"""Characters of a cell of the table, and of one in the last column; longer ones are cut. A CSV has all."""
_NUMBERS = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""What a terminal would obey: a snapshot is written by others. Tabs and ends of lines are not in it."""


def answer(path: Path, sql: str, *, as_csv: bool, out: TextIO) -> None:
    """Print the answer of a snapshot's tables to a query: an aligned table, or all of it as CSV.

    Args:
        path: a snapshot's file.
        sql: one query; "-": it is read from standard input.

    Raises:
        ViewerError: no snapshot, or no query that can be answered.
    """
    from splatview_viewer.snapshot.query import Database

    if sql == "-":
        sql = sys.stdin.read()
    try:
        with Database(read(path)) as database:
            if as_csv:
                text: Any = _Printable(out) if out.isatty() else out
                database.csv(sql, text)
            else:
                result = database.run(sql, timeout=float("inf"))
                out.write(table(result))
                out.flush()  # before what follows it on a terminal
                if sys.stderr.isatty():
                    shown = f"{len(result.rows):,} row{'s' * (len(result.rows) != 1)}, {result.seconds * 1000:,.0f} ms"
                    if result.truncated:
                        shown = f"the first {len(result.rows):,} rows; --csv prints all"
                    print(shown, file=sys.stderr)
        out.flush()
    except BrokenPipeError:  # `| head` has seen enough
        pass


class _Printable:
    """Writes text to a terminal without what the terminal would obey."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(_CONTROL.sub("?", text))


def read(path: Path) -> MemorySnapshot:
    """Return the snapshot in a file, with its progress on stderr when that takes a while on a terminal.

    Raises FileError.
    """
    from splatview_viewer.kinds.files import open_file, recognise
    from splatview_viewer.snapshot.model import MemorySnapshot

    try:
        kind = recognise(path)
    except FileError as e:
        raise FileError(f"{path}: {e}") from None
    if kind != "snapshot":
        raise FileError(
            f"{path}: of the format {kind}, not a snapshot of memory; splatview serve shows it"
        )
    due = time.perf_counter() + 0.5
    said = False

    def progress(what: str, fraction: float) -> None:
        nonlocal due, said
        now = time.perf_counter()
        if now >= due and sys.stderr.isatty():
            due = now + 0.1
            said = True
            print(f"\r\x1b[K{what} {fraction:.0%}", end="", file=sys.stderr, flush=True)

    try:
        value = open_file(path, progress)
    finally:
        if said:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    assert isinstance(value, MemorySnapshot)  # by its format
    return value


def table(result: QueryResult) -> str:
    """The rows as lines of text, one below the other: numbers at the right, NULL as nothing."""
    if result.columns == ("explain_key", "explain_value"):  # a drawing
        return "".join(
            _CONTROL.sub("?", str(row[1])).rstrip() + "\n" for row in result.rows
        )
    last = len(result.columns) - 1
    right = [kind.removeprefix("U").startswith(_NUMBERS) for kind in result.types]
    cells = [
        [_cell(v, _LAST if i == last else _CELL) for i, v in enumerate(row)]
        for row in result.rows
    ]
    head = [_cell(c) for c in result.columns]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]

    def line(row: list[str]) -> str:
        return "  ".join(
            c.rjust(w) if r else c.ljust(w)
            for c, w, r in zip(row, widths, right, strict=True)
        ).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(head), rule, *map(line, cells)]) + "\n"


def _cell(value: Any, longest: int = _CELL) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if not value.is_integer() or abs(value) >= 1e15:
            return f"{value:.6g}"
        return f"{value:.1f}"
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    text = _CONTROL.sub("?", text.replace("\t", " ").replace("\n", " \u2190 ").strip())
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"
