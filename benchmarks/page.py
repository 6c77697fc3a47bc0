"""Make docs/performance.md from the records and the questions of `page.toml`.

A figure of the questions selects rows of a benchmark's records; each row is a line of
its table, for each machine. Texts of a figure name columns in braces, `{median us}`; of
a column that holds more than the number, `{column:expression}` takes the group of a
regular expression. The ratio is that of the first number of "measured" to the first one
of "peer", or of the target where there is no peer.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from datetime import date
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.records import load_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.records import Record, Row

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
SPECIFICATION = Path(__file__).with_name("page.toml")
UNKNOWN = "-"
_HEADER = "| What is measured | Ours | Beside it | Target | Ratio | Run |\n|---|---|---|---|---|---|"
_FIELD = re.compile(r"\{([^{}:]+)(?::([^{}]+))?\}")
_OPTION = re.compile(r"(--\S+ \d+)")
"""An option of a command, which typography would change."""
_DECIMAL = re.compile(r"\d[\d,]*(?:\.\d+)?")


@dataclass(frozen=True)
class Figure:
    """One thing that is measured: the rows it is read from, and their wording."""

    label: str
    benchmark: str
    measured: str
    row: dict[str, str] = field(default_factory=dict)
    """Patterns, as of file names, that the row's columns match."""
    peer: str = ""
    peer_row: dict[str, str] | None = None
    """Patterns of the peer's row; None: it stands in the same row."""
    peer_benchmark: str = ""
    """Where the peer's row is; "": in the same record."""
    ratio: str = ""
    """The ratio's text, where the row has it."""
    maximum: str = ""
    minimum: str = ""
    """Targets of "measured"."""
    ratio_maximum: str = ""
    """Target of the ratio."""
    reason: str = ""
    """Why a target was missed."""


@dataclass(frozen=True)
class Question:
    """A table of the page, under a heading that is its anchor."""

    title: str
    text: str
    figures: list[Figure]


@dataclass(frozen=True)
class TableLine:
    """A line of a table."""

    figure: Figure
    record: Record
    date: str
    label: str
    measured: str
    peer: str
    target: str
    ratio: float | None
    is_missed: bool

    @property
    def run(self) -> str:
        """Return machine, date and command."""
        command = "command not kept"
        if self.record.command:
            command = f"`{self.record.command}`"
        return f"{self.record.machine.label}, {_day(self.date)}: {command}"

    def text(self, run_number: int) -> str:
        """Return the line as Markdown."""
        ratio = UNKNOWN
        if self.ratio is not None:
            ratio = _ratio_text(self.ratio)
        if self.is_missed:
            ratio += ", **missed**"
        cells = (
            self.label,
            self.measured or UNKNOWN,
            self.peer or UNKNOWN,
            self.target or UNKNOWN,
            ratio,
            f"{self.record.machine.name}, run {run_number}",
        )
        return "| " + " | ".join(cells) + " |"


def write_page(folder: Path, page: Path = PAGE) -> None:
    """Write the page from the records of a folder."""
    page.write_text(page_text(load_records(folder)), encoding="utf-8")


def page_text(records: Sequence[Record]) -> str:
    """Return the page of these records.

    Raises ValueError for a figure whose benchmark has records but no such row.
    """
    content = tomllib.loads(SPECIFICATION.read_text(encoding="utf-8"))
    sections = [content["introduction"].strip()]
    for entry in content["question"]:
        figures = [Figure(**figure) for figure in entry["figure"]]
        question = Question(entry["title"], entry["text"].strip(), figures)
        lines = list(_lines(question, records))
        if lines:
            sections += _question_sections(question, lines)
    sections += _sources(records)
    return "\n\n".join(sections) + "\n"


def _question_sections(question: Question, lines: list[TableLine]) -> Iterator[str]:
    yield f"## {question.title}"
    yield question.text
    runs: dict[str, int] = {}
    table = [_HEADER]
    for line in lines:
        run_number = runs.setdefault(line.run, len(runs) + 1)
        table.append(line.text(run_number))
    yield "\n".join(table)
    yield "Runs:"
    yield "\n".join(f"{run_number}. {run}" for run, run_number in runs.items())
    missed_lines = [line for line in lines if line.is_missed]
    if missed_lines:
        yield "Missed:"
        yield "\n".join(_missed_texts(missed_lines))


def _missed_texts(lines: list[TableLine]) -> Iterator[str]:
    """Yield an item of a list for all lines that missed one target for one reason."""
    for (target, reason), group in groupby(lines, key=_target_and_reason):
        machines: dict[str, list[str]] = {}
        for line in group:
            machines.setdefault(line.label, []).append(line.record.machine.name)
        cases = "; ".join(f"{label} ({'; '.join(m)})" for label, m in machines.items())
        yield f"- {cases}: {target} was the target. {reason}".rstrip()


def _target_and_reason(line: TableLine) -> tuple[str, str]:
    return line.target, line.figure.reason


def _lines(question: Question, records: Sequence[Record]) -> Iterator[TableLine]:
    for figure in question.figures:
        is_measured = False
        lines: list[TableLine] = []
        for record in records:
            if record.benchmark != figure.benchmark:
                continue
            is_measured = True
            for row in _matching(figure.row, record.rows):
                lines.append(_line(figure, record, row, records))
        if is_measured and not lines:
            raise ValueError(
                f"no row of {figure.benchmark!r} matches {figure.row} of the figure "
                f"{figure.label!r}: name a row that the benchmark prints in "
                f"{SPECIFICATION.name}"
            )
        yield from lines


def _matching(patterns: dict[str, str], rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if _matches(patterns, row)]


def _matches(patterns: dict[str, str], row: Row) -> bool:
    return all(fnmatchcase(row.get(name, ""), text) for name, text in patterns.items())


def _line(
    figure: Figure, record: Record, row: Row, records: Sequence[Record]
) -> TableLine:
    measured = _filled(figure.measured, row)
    peer = _peer_text(figure, record, row, records)
    target = _target_text(figure, row)
    value = _decimal(measured)
    if figure.ratio:
        ratio = _decimal(_filled(figure.ratio, row))
    elif peer or figure.ratio_maximum:
        ratio = _quotient(value, _decimal(peer))
    else:
        ratio = _quotient(value, _decimal(target))
    if figure.ratio_maximum:
        value = ratio
    return TableLine(
        figure=figure,
        record=record,
        date=row.get("measured on", record.date),
        label=_OPTION.sub(r"`\1`", _filled(figure.label, row) or figure.label),
        measured=measured,
        peer=peer,
        target=target,
        ratio=ratio,
        is_missed=_is_missed(figure, target, value),
    )


def _peer_text(
    figure: Figure, record: Record, row: Row, records: Sequence[Record]
) -> str:
    """Return the peer's wording, "" where it was not measured on this machine."""
    if figure.peer_row is None:
        return _filled(figure.peer, row)
    for candidate in records:
        is_same_machine = candidate.machine.key == record.machine.key
        benchmark = figure.peer_benchmark or record.benchmark
        if not is_same_machine or candidate.benchmark != benchmark:
            continue
        for peer_row in _matching(figure.peer_row, candidate.rows):
            return _filled(
                figure.peer, {**peer_row, "measured on": _day(candidate.date)}
            )
    return ""


def _filled(template: str, row: Row) -> str:
    """Return the text with its columns' values, "" where the row lacks one."""
    values = []
    for name, expression in _FIELD.findall(template):
        value = row.get(name, "")
        if expression:
            groups = re.findall(expression, value)
            value = "".join(groups[:1])
        if not value:
            return ""
        values.append(value)
    remaining = iter(values)
    return _FIELD.sub(lambda _: next(remaining), template)


def _target_text(figure: Figure, row: Row) -> str:
    maximum = _filled(figure.maximum or figure.ratio_maximum, row)
    if maximum:
        return f"at most {maximum}"
    minimum = _filled(figure.minimum, row)
    if minimum:
        return f"at least {minimum}"
    return ""


def _is_missed(figure: Figure, target: str, value: float | None) -> bool:
    limit = _decimal(target)
    if value is None or limit is None:
        return False
    if figure.minimum:
        return value < limit
    return value > limit


def _decimal(text: str) -> float | None:
    """Return the first number of a text."""
    match = _DECIMAL.search(text)
    if match is None:
        return None
    return float(match[0].replace(",", ""))


def _quotient(value: float | None, peer: float | None) -> float | None:
    if value is None or not peer:
        return None
    return value / peer


def _ratio_text(ratio: float) -> str:
    """Return a ratio with as many digits as tell something."""
    if ratio >= 10:
        return f"{ratio:.0f}"
    if ratio >= 0.1:
        return f"{ratio:.2f}"
    return f"{ratio:.2g}"


def _day(iso_date: str) -> str:
    day = date.fromisoformat(iso_date)
    return f"{day.day} {day:%b %Y}"


def _sources(records: Sequence[Record]) -> Iterator[str]:
    """Yield the last sections: machines, and the file that each figure comes from."""
    yield "## Machines"
    machines = {record.machine.key: record.machine for record in records}
    lines = ["| Machine | Processor | GPU, driver | OpenGL |", "|---|---|---|---|"]
    for key in sorted(machines):
        machine = machines[key]
        gpu = ", ".join(text for text in (machine.gpu, machine.driver) if text)
        lines.append(
            f"| {machine.label} | {machine.cpu}, {machine.cores} cores | {gpu or 'none'} "
            f"| {machine.renderer or UNKNOWN} |"
        )
    yield "\n".join(lines)
    yield "## Where each figure comes from"
    yield (
        "The rows as they were printed are in `benchmarks/results`, the newest of each "
        "benchmark and machine. Figures entered from the log were measured before rows "
        "were kept: their commit and driver are not known, and some of their columns are "
        "missing."
    )
    lines = [
        "| File | Date | Commit | Versions | Source | Note |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_source_line(record) for record in records]
    yield "\n".join(lines)


def _source_line(record: Record) -> str:
    versions = ", ".join(
        f"{name} {version}" for name, version in record.versions.items()
    )
    return (
        f"| `{record.file_name}` | {_day(record.date)} | {record.commit or UNKNOWN} "
        f"| {versions} | {record.source} | {record.note} |"
    )
