"""Packages of the extra `memory`: what of memory snapshots needs which. Nothing is imported to look for them."""

from __future__ import annotations

from splatview_ipc.system.optional_packages import require
from splatview_viewer.core.errors import ViewerError

TIMELINE, SQL = "memory snapshots need", "SQL over memory snapshots needs"
"""Subjects of the errors for a missing numba and a missing DuckDB."""


def check_timeline() -> None:
    """Raise ViewerError unless timelines can be laid out and painted."""
    require(TIMELINE, "numba", error=ViewerError)


def check_sql() -> None:
    """Raise ViewerError unless snapshots can be queried."""
    require(SQL, "duckdb", error=ViewerError)
