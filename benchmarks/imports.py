"""Measure what `import splatview` adds to a bare interpreter's start."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 41
LIMIT_MS = 15.0


def run() -> list[dict[str, str]]:
    programs = {
        "bare interpreter": "pass",
        "import splatview": "import splatview",
        "import torch": "import torch",
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for i in range(ROUNDS):
        for name, program in programs.items():
            if name == "import torch" and i >= 3:
                continue
            started_at = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True)
            times[name].append((time.perf_counter() - started_at) * 1e3)
    median = {name: statistics.median(t) for name, t in times.items()}
    bare = median["bare interpreter"]
    return [
        {
            "program": name,
            "median ms": f"{t:.1f}",
            "more than bare, ms": f"{t - bare:.1f}",
            "limit": f"{LIMIT_MS:.0f}" if "splatview" in name else "",
        }
        for name, t in median.items()
    ]
