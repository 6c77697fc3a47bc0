"""A limit of CPU time for one input. The kernel keeps it, also where a library holds the interpreter's lock.

CPU time depends little on what else the machine is doing. A process that takes more is ended (SIGXCPU).
"""

from __future__ import annotations

import math
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CPU_SECONDS = 30
"""For one input, within a second. The slowest took 6 s on a slow machine that did nothing else, and more than 8 s on
one like it that ran other tests; those that took time quadratic in their size took 40 s on one thrice as quick."""


@contextmanager
def cpu_limit(seconds: int = CPU_SECONDS) -> Iterator[None]:
    """End this process if what is within takes more CPU time, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    before = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime) + seconds, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)
