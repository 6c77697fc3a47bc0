"""Keep the newest figures of each benchmark and machine as files of JSON."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.harness import column_names
from benchmarks.machines import Machine

RESULTS = Path(__file__).parent / "results"
Row = dict[str, str]

_UNITS = {
    "ms": "ms",
    "us": "us",
    "us per frame": "us",
    "seconds": "s",
    "GB": "GB",
    "KB": "KB",
    "dB": "dB",
    "frames/s": "frames/s",
    "images/s": "images/s",
    "pictures/s": "pictures/s",
    "results/s": "results/s",
    "KB/s": "KB/s",
    "%": "%",
}
"""Units by the words of a column's name."""
_UNIT_WORDS = re.compile(
    "|".join(
        rf"(?<!\w){re.escape(unit)}(?!\w)" for unit in sorted(_UNITS, key=len)[::-1]
    )
)


@dataclass(frozen=True)
class Record:
    """The rows of one benchmark on one machine, and how they came about."""

    benchmark: str
    measures: str
    """One sentence: what the benchmark measures."""
    date: str
    """ISO 8601."""
    command: str
    machine: Machine
    versions: dict[str, str]
    rows: list[Row]
    commit: str | None = None
    source: str = "measured"
    """`entered from the log` for figures whose rows were not kept as they were
    printed."""
    note: str = ""
    columns: list[dict[str, str]] = field(default_factory=list)
    """Name of each column, and its unit where it has one."""

    @property
    def file_name(self) -> str:
        """Return the name of this record's file."""
        return f"{self.benchmark}.{self.machine.key}.json"

    def save(self, folder: Path = RESULTS) -> Path:
        """Write this record in place of the older one of its benchmark and machine."""
        content = asdict(self)
        content["columns"] = columns(self.rows)
        path = folder / self.file_name
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path


def columns(rows: list[Row]) -> list[dict[str, str]]:
    """Return the columns of rows in their order, with the unit that their name has."""
    described = []
    for name in column_names(rows):
        column = {"name": name}
        unit = _UNIT_WORDS.search(name)
        if unit is not None:
            column["unit"] = _UNITS[unit[0]]
        described.append(column)
    return described


def load_records(folder: Path = RESULTS) -> list[Record]:
    """Read all records of a folder, by the names of their files."""
    return [_load(path) for path in sorted(folder.glob("*.json"))]


def _load(path: Path) -> Record:
    content = json.loads(path.read_text(encoding="utf-8"))
    content["machine"] = Machine(**content["machine"])
    return Record(**content)
