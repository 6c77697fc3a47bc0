"""`splatview memory FOLDER --summary`: the peaks of the processes of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.quantities import count_text, size_text
from splatview_viewer.snapshot.loading.ranks import scan_ranks
from splatview_viewer.snapshot.model import device_text

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.formats.common import Progress
    from splatview_viewer.snapshot.loading.ranks import Rank

_TITLES = ("rank", "peak", "reserved", "at the end", "events", "device", "file")
_NUMBERS = 5
"""Columns that end at the same letter, the first ones."""


def rank_report(folder: Path, progress: Progress) -> dict[str, Any]:
    """Return the peaks of a folder's snapshots, as JSON has them.

    Raises:
        FileError: the folder holds no snapshot, or cannot be read.
    """
    table = scan_ranks(folder, progress)
    return {
        "folder": str(folder),
        "ranks": [_row(rank) for rank in table.ranks],
        "highest": table.highest,
        "not_read": table.hidden_count,
    }


def _row(rank: Rank) -> dict[str, Any]:
    """Return the facts about one file."""
    row: dict[str, Any] = {"rank": rank.index, "file": rank.name}
    memory = rank.memory
    if memory is None:
        return {**row, "fault": rank.fault}
    return {
        **row,
        "device": device_text(memory.device),
        "events": memory.events,
        "allocations": memory.allocations,
        "peak_bytes": memory.peak_bytes,
        "peak_moment": memory.peak_moment,
        "reserved_bytes": memory.reserved_bytes,
        "end_bytes": memory.end_bytes,
    }


def rank_text(report: dict[str, Any]) -> str:
    """Return a report as the lines of a table; the highest peak is marked by "<"."""
    rows: list[tuple[str, ...]] = [_TITLES]
    for index, row in enumerate(report["ranks"]):
        rows.append(_cells(row, is_highest=index == report["highest"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column < _NUMBERS else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    if report["not_read"]:
        lines.append(f"{count_text(report['not_read'], 'file')} more, not read")
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any], *, is_highest: bool) -> tuple[str, ...]:
    """Return the cells of a line."""
    rank = ""
    if row["rank"] is not None:
        rank = str(row["rank"])
    if "fault" in row:
        return rank, "", "", "", "", "", f"{row['file']}: {row['fault']}"
    file = row["file"]
    if is_highest:
        file += "  < highest"
    return (
        rank,
        size_text(row["peak_bytes"]),
        size_text(row["reserved_bytes"]),
        size_text(row["end_bytes"]),
        f"{row['events']:,}",
        row["device"],
        file,
    )
