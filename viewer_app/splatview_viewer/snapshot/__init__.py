"""The CUDA allocator's memory over time: what a snapshot of it holds, and what is worked out of that. Draws nothing.

`model` is what a snapshot is, `loading` reads one from a file, `timeline` lays it out and paints columns of pixels,
`analysis` answers questions, `query` takes SQL.
"""

from __future__ import annotations

from splatview_ipc.system.optional_packages import require
from splatview_viewer.core.errors import ViewerError

TIMELINE = "memory snapshots need"
SQL = "SQL over memory snapshots needs"
"""Subjects of the errors for a missing numba and a missing DuckDB, of the extra `memory`."""


def check_timeline() -> None:
    """Raise ViewerError unless timelines can be laid out and painted. Imports nothing."""
    require(TIMELINE, "numba", error=ViewerError)


def check_sql() -> None:
    """Raise ViewerError unless snapshots can be queried. Imports nothing."""
    require(SQL, "duckdb", error=ViewerError)
