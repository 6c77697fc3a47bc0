"""Limits the memory that a query over a snapshot may take.

DuckDB counts its tables and sorts (`memory_limit`), not what one function of SQL makes:
`range(400000000)` took 15 GB. The kernel's limit on the data of the process stops that: the
largest request for memory fails, which is the query's.
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
_MIN_BYTES = 256 << 20

_lock = threading.Lock()
_limits_before: list[tuple[int, int]] = []
"""The process's limits before the queries that run, once for each of them."""


def memory_bound() -> int:
    """Return the bytes for a query: a quarter of the machine's, and half of the free."""
    bound = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    free = available_bytes()
    if free is not None:
        bound = min(bound, free // 2)
    return max(bound, _MIN_BYTES)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Limit the memory of this process meanwhile.

    It may take what a query may, half as much for others, and its answer.
    """
    bound = memory_bound() * 3 // 2 + 2 * RESULT_BYTES
    with _lock:
        if _limits_before:
            _limits_before.append(_limits_before[0])
        else:
            soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limits = [n for n in (soft, hard) if n != resource.RLIM_INFINITY]
            limit = min([_data_bytes() + bound, *limits])
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
            _limits_before.append((soft, hard))
    try:
        yield
    finally:
        with _lock:
            limits_before = _limits_before.pop()
            if not _limits_before:
                resource.setrlimit(resource.RLIMIT_DATA, limits_before)


def _data_bytes() -> int:
    """Return the bytes of this process that RLIMIT_DATA counts."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        data = re.search(r"^VmData:\s+(\d+) kB", status.read(), re.MULTILINE)
    if data:
        return int(data[1]) << 10
    return 0
