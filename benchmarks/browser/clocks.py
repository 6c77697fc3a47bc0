"""Processor time of another process, thread by thread, from /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

PARTS = "main", "web", "encode", "other"


@dataclass
class Cpu:
    """Milliseconds of processor time: of the whole process, and by part (`PARTS`)."""

    total: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)

    def __sub__(self, other: Cpu) -> Cpu:
        """What came on top; of threads that came or went between, only the whole knows."""
        return Cpu(self.total - other.total, {k: v - other.parts.get(k, 0.0) for k, v in self.parts.items()})


def cpu(pid: int, threads: dict[str, int] | None = None) -> Cpu:
    """What a process has taken so far; `threads` are the ids of Python's threads by name.

    "web" is the thread of that name, "encode" those whose names begin so, "other" all the rest: of Python's (helpers),
    of the OpenGL driver (Mesa draws in threads of its own), of CUDA.
    """
    names = {tid: name for name, tid in (threads or {}).items()}
    parts: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for task in Path(f"/proc/{pid}/task").iterdir():
        tid, name = int(task.name), names.get(int(task.name), "")
        try:
            taken = _taken(task)
        except OSError:
            continue  # it has just ended
        parts["main" if tid == pid else "web" if name == "web" else
              "encode" if name.startswith("encode") else "other"] += taken
    return Cpu(time.clock_gettime_ns((~pid << 3) | 2) * 1e-6, parts)


def _taken(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[0]) * 1e-6
    except (OSError, IndexError):
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1e3 / os.sysconf("SC_CLK_TCK")
