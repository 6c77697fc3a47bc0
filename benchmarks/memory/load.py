"""Load a snapshot as the viewer does: `python -m benchmarks.memory.load FILE`."""

from __future__ import annotations

import json
import os
import resource
import sys
import time

from splatview_viewer.snapshot.loading import load_snapshot


def _cpu() -> float:
    """Return the processor time of this process and of those that it waited for."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(
            resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
    )


def main() -> None:
    started_at = time.perf_counter()
    cpu_before = _cpu()
    snapshot = load_snapshot(sys.argv[1])
    seconds = time.perf_counter() - started_at
    from benchmarks.memory.processes import rss

    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu": _cpu() - cpu_before,
                "events": sum(len(t.events) for t in snapshot.traces),
                "allocations": sum(len(t.allocations) for t in snapshot.traces),
                "left": rss(os.getpid()),
                "file": snapshot.file_bytes,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
