"""Times and their percentiles; clocks of threads."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def mid_and_p99(ns: Sequence[int], unit: float = 1e3) -> tuple[float, float]:
    """Median and 99th percentile of nanoseconds, in units of `unit` ns (default: microseconds)."""
    return statistics.median(ns) / unit, percentile(ns, 0.99) / unit


def thread_cpu_ns(threads: Sequence[threading.Thread]) -> int:
    """Processor time of these threads so far, in ns."""
    total = 0
    for thread in threads:
        if thread.ident is not None and thread.is_alive():
            total += time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
    return total


def until(what: str, condition: Callable[[], bool], timeout: float = 120.0,
          meanwhile: Callable[[], object] | None = None) -> None:
    """Wait for something, doing `meanwhile` again and again. Raises RuntimeError that names it after `timeout` s."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {timeout:g} s in vain: {what}")
        if meanwhile is not None:
            meanwhile()
        else:
            time.sleep(0.005)
