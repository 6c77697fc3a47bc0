"""Programs that are measured from outside."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_PERIOD = 0.005
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Watch:
    """The most memory that a process and all those below it had at one time.

    As RSS; until `end` is called.
    """

    pid: int
    peak: int = 0
    """Bytes."""
    _has_ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(
            target=self._sample, name="memory of a program", daemon=True
        )
        self._thread.start()

    def _sample(self) -> None:
        while not self._has_ended.wait(_PERIOD):
            self.peak = max(self.peak, sum(map(rss, family(self.pid))))

    def end(self) -> int:
        self._has_ended.set()
        self._thread.join()
        return self.peak


def rss(pid: int) -> int:
    """Return the bytes of a process that are in memory; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def family(pid: int) -> list[int]:
    """Return a process and those that it started, and so on."""
    pids = [pid]
    for parent in pids:
        try:
            threads = os.listdir(f"/proc/{parent}/task")
            for thread in threads:
                pids += map(
                    int,
                    Path(f"/proc/{parent}/task/{thread}/children").read_text().split(),
                )
        except OSError:  # it has ended
            continue
    return pids


@dataclass(frozen=True)
class ProgramReport:
    """The output and the cost of a program that ended."""

    answer: dict[str, Any]
    """Its last line, if that is JSON."""
    seconds: float
    cpu: float
    """Seconds of processor time, those of its own programs included: what a busy
    machine changes least."""
    peak: int
    """Bytes"""


def run_program(
    module: str,
    *arguments: object,
    env: dict[str, str] | None = None,
    timeout: float = 600,
) -> ProgramReport:
    """Run a module of ours that says one line of JSON. RuntimeError when it fails."""
    return program(
        [sys.executable, "-m", module, *map(str, arguments)], env=env, timeout=timeout
    )


def program(
    command: list[str], *, env: dict[str, str] | None = None, timeout: float = 600
) -> ProgramReport:
    """Run a program to its end; `env` is added to the environment."""
    started_at = time.monotonic()
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watch = Watch(process.pid)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"{' '.join(command[1:])[:200]}: not done within {timeout:g} s"
        ) from None
    finally:
        process.kill()
        process.wait()
        peak = watch.end()
    if process.returncode:
        raise RuntimeError(
            f"{' '.join(command[1:])[:200]}: ended with {process.returncode}: {err[-300:]}"
        )
    last = out.strip().rpartition("\n")[2]
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ProgramReport(
        json.loads(last) if last.startswith("{") else {},
        time.monotonic() - started_at,
        usage_after.ru_utime
        + usage_after.ru_stime
        - usage_before.ru_utime
        - usage_before.ru_stime,
        peak,
    )


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
