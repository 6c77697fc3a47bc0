"""A limit of CPU time for one input. The kernel keeps it, also where a library holds the interpreter's lock.

CPU time does not depend on what else the machine is doing. A process that takes more is ended (SIGXCPU).
"""

from __future__ import annotations

import math
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CPU_SECONDS = 8
"""For one input: a hundred times what most take, a fifth of what the quadratic ones took. The limit is kept in whole
seconds, so it is 8 to 9."""


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
