"""The memory that a query over a snapshot may take.

DuckDB counts its tables and sorts (`memory_limit`), not what one function of SQL makes: `range(400000000)` took 15 GB.
The kernel's bound on the data of the process stops that: the largest request for memory fails, which is the query's.
"""

from __future__ import annotations

import os
import re
import resource
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from splatview_ipc.system.free_memory import available_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULT_BYTES = 256 << 20
"""Bytes of the values of an answer that is kept."""
_LEAST_BYTES = 256 << 20

_lock = threading.Lock()
_bounded: list[tuple[int, int]] = []
"""The process's limits before the queries that run, once for each of them."""


def memory_bound() -> int:
    """Return the bytes that a query may take: a quarter of the machine's, and half of what is free."""
    bound = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    free = available_bytes()
    if free is not None:
        bound = min(bound, free // 2)
    return max(bound, _LEAST_BYTES)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Let this process take no more memory meanwhile than a query may, half as much for others, and its answer."""
    bound = memory_bound() * 3 // 2 + 2 * RESULT_BYTES
    with _lock:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if not _bounded:
            limits = [n for n in (soft, hard) if n != resource.RLIM_INFINITY]
            limit = min([_data_bytes() + bound, *limits])
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        _bounded.append(_bounded[0] if _bounded else (soft, hard))
    try:
        yield
    finally:
        with _lock:
            before = _bounded.pop()
            if not _bounded:
                resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """Return what RLIMIT_DATA counts of this process."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        data = re.search(r"^VmData:\s+(\d+) kB", status.read(), re.MULTILINE)
    return int(data[1]) << 10 if data else 0
