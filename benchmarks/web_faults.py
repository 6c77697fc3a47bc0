"""Pictures that an honest page gets while others mean no good: each kind of flood between two quiet times, in one run.

The viewer is `splatview serve --web`, the publisher, the page and the flood are processes of their own on the same
machine. The ratio is pictures a second during the flood over the mean of the quiet times before and after it; the
target is 0.9. What the flood's own process takes of the processors is in that ratio as well, though it is niced; the
first line is the same beside a process that takes a core and never talks to the viewer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.browser import clocks
from benchmarks.browser.hostile import KINDS
from benchmarks.gpu import tried
from benchmarks.gpu.clocks import until
from benchmarks.programs import ROOT, Program
from benchmarks.web import address, base_picture

SIZE, HZ = (1280, 720), 30
WARM, BLOCK = 5.0, 3.0
_IDLE = "import os, time\nos.nice(5)\nend = time.monotonic() + {}\nwhile time.monotonic() < end: os.getpid()"


def run() -> list[dict[str, str]]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        base, what = base_picture(Path(folder), SIZE)
        with (Program("benchmarks.browser.publisher", device) as publisher,
              Program("benchmarks.browser.serve", "--web") as viewer):
            publisher.ask("pictures", base=base, size=SIZE, hz=HZ, timeout=60)
            place = address(viewer)
            with Program("benchmarks.browser.page", place.page(SIZE)) as page:
                until("a first picture", lambda: page.ask("state")["pictures"] > 0, 60)
                page.ask("key", name="h")
                until("pictures that change", lambda: _rate(page) > 2)
                time.sleep(WARM)
                threads = viewer.ask("threads")["threads"]
                rows = []
                idle = _measure(viewer.pid, threads, page, [sys.executable, "-c", _IDLE.format(BLOCK)])
                rows.append({"what": f"a process that takes one core and never comes; 720p of {what}, {HZ} times/s",
                             **idle.row()})
                for kind in KINDS:
                    command = [sys.executable, "-m", "benchmarks.browser.hostile", kind, str(place.port), place.token,
                               str(BLOCK)]
                    rows += tried(kind, lambda kind=kind, command=command: [
                        {"what": kind, **_measure(viewer.pid, threads, page, command).row(),
                         "target": "ratio 0.9"}])
    return rows


@dataclass(frozen=True)
class _Block:
    """What came in a flood, and in the quiet around it."""

    quiet: float
    flood: float
    cpu: clocks.Cpu
    seconds: float
    grown: int
    said: str

    def row(self) -> dict[str, str]:
        if self.quiet < 1:
            raise RuntimeError(f"only {self.quiet:.1f} pictures a second came in the quiet")
        done = json.loads(self.said) if self.said.startswith("{") else {}
        return {"pictures/s": f"{self.flood:.1f}", "quiet": f"{self.quiet:.1f}",
                "ratio": f"{self.flood / self.quiet:.2f}",
                "web thread, % of a core": f"{self.cpu.parts['web'] / self.seconds / 10:.0f}",
                "memory + MB": f"{self.grown / 1e6:.0f}",
                "it came": f"{done['connections']} times, {done['bytes'] / 1e6:.0f} MB" if done else ""}


def _measure(viewer: int, threads: dict[str, int], page: Program, command: list[str]) -> _Block:
    quiet = [_rate(page)]
    before, memory = clocks.cpu(viewer, threads), _memory(viewer)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as flood:
        begin = time.monotonic()
        page.ask("begin")
        said, _ = flood.communicate()
        report, seconds = page.ask("report"), time.monotonic() - begin
    after, grown = clocks.cpu(viewer, threads), _memory(viewer) - memory
    time.sleep(0.5)
    quiet.append(_rate(page))
    last = said.splitlines()[-1] if said else ""
    return _Block(sum(quiet) / 2, report["per_s"], after - before, seconds, grown, last)


def _rate(page: Program) -> float:
    page.ask("begin")
    time.sleep(BLOCK)
    return page.ask("report")["per_s"]


def _memory(pid: int) -> int:
    """Bytes of anonymous memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon"))) * 1024
