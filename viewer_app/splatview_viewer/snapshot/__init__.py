"""Memory of the CUDA allocator over time: PyTorch's snapshots, and their analysis.

`model` defines a snapshot, `loading` reads one from a file, `timeline` lays it out and
paints columns of pixels, `analysis` answers questions, `query` runs SQL. No file of this
room draws in a window.
"""

from __future__ import annotations

from splatview_ipc.system.optional_packages import require
from splatview_viewer.core.errors import ViewerError

TIMELINE = "memory snapshots need"
SQL = "SQL over memory snapshots needs"
"""Subjects of the errors that name a missing numba or DuckDB, of the extra `memory`."""


def check_timeline() -> None:
    """Raise ViewerError if numba, which paints timelines, is not installed.

    Imports nothing.
    """
    require(TIMELINE, "numba", error=ViewerError)


def check_sql() -> None:
    """Raise ViewerError if DuckDB, which answers SQL, is not installed.

    Imports nothing.
    """
    require(SQL, "duckdb", error=ViewerError)
