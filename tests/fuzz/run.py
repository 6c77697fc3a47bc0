"""Fuzz targets: `python -m fuzz.run TARGET [INPUTS]`, from within tests/.

A target gets its seeds, its crafted inputs, then INPUTS damaged ones. Each has limits of memory and of CPU time. The
kernel keeps the latter, also where a library holds the interpreter's lock: a process that takes more is ended
(SIGXCPU). The input of a failure is kept in a file.
"""

from __future__ import annotations

import math
import random
import resource
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from support.scene_files import little_memory

from fuzz.damage import mutated, odd
from fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fuzz.targets import Target

CPU_SECONDS = 30
"""For one input. Linear readers take a fifth of it, quadratic ones more."""


def inputs(target: Target, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield inputs with their names; the same ones each time."""
    seeds, luck = target.seeds(), random.Random(0)
    for seed in seeds:
        target.run(seed)  # imports and compiles what the target needs, without limits
    yield from target.crafted(seeds[0]).items()
    for number in range(count):
        strange = target.documents and number % 2
        yield f"input {number}", odd(target.documents, luck) if strange else mutated(seeds, luck)


def main(name: str, count: str = "1000000") -> int:
    if name not in TARGETS:
        print(f"there is no target {name!r}; there are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    path, what = Path(tempfile.gettempdir(), f"splatview-fuzz-{name}"), ""
    try:
        for what, data in inputs(TARGETS[name], int(count)):
            path.write_bytes(data)
            print(f"{what} ({len(data):,} bytes, {path})", flush=True)  # the last one, where the process is ended
            used = resource.getrusage(resource.RUSAGE_SELF)
            seconds = math.ceil(used.ru_utime + used.ru_stime) + CPU_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
            with little_memory():
                TARGETS[name].run(data)
    except Exception:
        traceback.print_exc()
        return 1
    path.unlink(missing_ok=True)
    print(f"{name}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
