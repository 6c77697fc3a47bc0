"""`splatview memory FILE` without a viewer: the answer to a query as text."""

from __future__ import annotations

import json
import re
import sys
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.quantities import count_text

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.snapshot.model import MemorySnapshot
    from splatview_viewer.snapshot.query import QueryResult

_MAX_CELL = 80
"""Characters of a cell of the table; longer ones are cut. A CSV has all."""
_MAX_LAST_CELL = 200
"""The same of a cell in the last column."""
_NUMBER_TYPES = (
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
"""The characters that a terminal would obey: a snapshot is written by others. Tabs and
ends of lines are not among them."""
_PROGRESS_DELAY_S = 0.5
_PROGRESS_PERIOD_S = 0.1
"""Seconds from the start to the first report of progress, and between two."""


def answer(
    path: Path, sql: str, *, as_csv: bool, out: TextIO, second_path: Path | None = None
) -> None:
    """Print the answer of a snapshot's tables to a query.

    Args:
        path: a snapshot's file.
        second_path: a second one, whose tables are in the schema `b`, beside `a`.
        sql: one query; "-": it is read from standard input.
        as_csv: print all rows as CSV, not the first ones as an aligned table.
        out: the text is printed there.

    Raises:
        ViewerError: no snapshot, or no query that can be answered.
    """
    from splatview_viewer.snapshot.query import Database

    if sql == "-":
        sql = sys.stdin.read()
    try:
        if second_path is None:
            second = None
        else:
            second = read(second_path)
        with Database(read(path), second) as database:
            if as_csv:
                target: Any = out
                if out.isatty():
                    target = _Printable(out)
                database.csv(sql, target)
            else:
                result = database.run(sql, timeout=float("inf"))
                out.write(table(result))
                # It stands before the summary on a terminal.
                out.flush()
                if sys.stderr.isatty():
                    print(_summary(result), file=sys.stderr)
        out.flush()
    except BrokenPipeError:
        # `| head` has read enough.
        pass


def summarise_files(files: list[Path], out: TextIO, *, as_json: bool) -> None:
    """Print what snapshots hold.

    Args:
        files: of the snapshots, one or two.
        out: the text is printed there.
        as_json: as JSON, and not as lines for people.

    Raises:
        ViewerError: one of the files is no snapshot.
    """
    from splatview_viewer.app.memory_summary import summarise, summary_text

    summary = summarise([read(file) for file in files])
    _print(_json_text(summary) if as_json else summary_text(summary), out)


def summarise_folder(folder: Path, out: TextIO, *, as_json: bool) -> None:
    """Print the peaks of a folder's snapshots, one for each process of a training.

    Args:
        folder: of the snapshots.
        out: the text is printed there.
        as_json: as JSON, and not as a table.

    Raises:
        ViewerError: the folder holds no snapshot, or cannot be read.
    """
    from splatview_viewer.app.memory_ranks import rank_report, rank_text

    progress = _ReadProgress()
    try:
        report = rank_report(folder, progress.report)
    finally:
        progress.clear()
    _print(_json_text(report) if as_json else rank_text(report), out)


def _json_text(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2) + "\n"


def _print(text: str, out: TextIO) -> None:
    """Print a text, on a terminal without what that would obey."""
    if out.isatty():
        text = _CONTROL.sub("?", text)
    out.write(text)
    out.flush()


def _summary(result: QueryResult) -> str:
    """Return how many rows an answer has."""
    count = len(result.rows)
    if result.truncated:
        return f"the first {count:,} rows; --csv prints all"
    return f"{count_text(count, 'row')}, {result.seconds * 1000:,.0f} ms"


class _Printable:
    """Writes text to a terminal without what the terminal would obey."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(_CONTROL.sub("?", text))


class _ReadProgress:
    """Shows on a terminal how far a file has been read, where that takes a while."""

    def __init__(self) -> None:
        self._next_report = time.perf_counter() + _PROGRESS_DELAY_S
        self._has_printed = False

    def report(self, stage: str, fraction: float) -> None:
        now = time.perf_counter()
        if now >= self._next_report and sys.stderr.isatty():
            self._next_report = now + _PROGRESS_PERIOD_S
            self._has_printed = True
            text = f"\r\x1b[K{stage} {fraction:.0%}"
            print(text, end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._has_printed:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def read(path: Path) -> MemorySnapshot:
    """Return the snapshot in a file. Raises FileError.

    Its progress is shown on stderr when that takes a while on a terminal.
    """
    from splatview_viewer.kinds.files import open_file, recognise
    from splatview_viewer.snapshot.model import MemorySnapshot

    try:
        file_format = recognise(path)
    except FileError as e:
        raise FileError(f"{path}: {e}") from None
    if file_format != "snapshot":
        raise FileError(
            f"{path}: of the format {file_format}, not a snapshot of memory; splatview "
            "serve shows it"
        )
    progress = _ReadProgress()
    try:
        value = open_file(path, progress.report)
    finally:
        progress.clear()
    # Its format says so.
    assert isinstance(value, MemorySnapshot)
    return value


def table(result: QueryResult) -> str:
    """Return the rows as lines of text: numbers at the right, NULL as nothing."""
    is_drawing = result.columns == ("explain_key", "explain_value")
    if is_drawing:
        texts = [_CONTROL.sub("?", str(text)).rstrip() for _, text in result.rows]
        return "".join(f"{text}\n" for text in texts)
    cells = [_row_cells(row) for row in result.rows]
    head = [_cell(column) for column in result.columns]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    are_numbers = [
        name.removeprefix("U").startswith(_NUMBER_TYPES) for name in result.types
    ]

    def line(row: list[str]) -> str:
        columns = []
        for cell, width, is_number in zip(row, widths, are_numbers, strict=True):
            if is_number:
                columns.append(cell.rjust(width))
            else:
                columns.append(cell.ljust(width))
        return "  ".join(columns).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(head), rule, *map(line, cells)]) + "\n"


def _row_cells(row: tuple[Any, ...]) -> list[str]:
    """Return the cells of a row; the last one may be longer."""
    if not row:
        return []
    *first_values, last_value = row
    return [*map(_cell, first_values), _cell(last_value, _MAX_LAST_CELL)]


def _cell(value: Any, max_length: int = _MAX_CELL) -> str:
    """Return a value in one line without what a terminal would obey."""
    if value is None:
        return ""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return f"{value:.1f}"
        return f"{value:.6g}"
    text = str(value)
    if isinstance(value, Decimal):
        text = f"{value:f}"
    text = text.replace("\t", " ").replace("\n", " \u2190 ").strip()
    text = _CONTROL.sub("?", text)
    if len(text) <= max_length:
        return text
    return text[: max_length - 1] + "\u2026"
