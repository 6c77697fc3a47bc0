"""Run the peers on the same traces: SnapViewer's converter, and memory_viz.

SnapViewer's viewer cannot do without its converter.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.memory.processes import program

if TYPE_CHECKING:
    from benchmarks.memory.processes import ProgramReport

MOST_EVENTS = 2_000_000
"""As many as both can take here: ten million events do not fit into 16 GB, nor into node's
heap and strings."""


def missing(variable: str, events: int) -> str:
    """Return why a peer cannot be measured here, or "".

    An environment variable names the peer.
    """
    named = os.environ.get(variable, "")
    if not named:
        return f"{variable} names no file of its"
    if not Path(named).is_file():
        return f"{variable}={named} is no file"
    return "" if events <= MOST_EVENTS else "it would take more memory than there is"


def convert(trace: Path) -> tuple[ProgramReport, int]:
    """Run the converter; return its report, and how many allocations it found."""
    import subprocess

    python = os.environ.get("SPLATVIEW_PEER_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        command = [
            python,
            os.environ["SPLATVIEW_SNAPVIEWER"],
            "-i",
            str(trace),
            "-o",
            str(Path(folder) / "out.zip"),
        ]
        log = Path(folder) / "log"
        report = program(
            [
                "/bin/sh",
                "-c",
                'out=$1; shift; exec "$@" > "$out" 2>&1',
                "sh",
                str(log),
                *command,
            ]
        )
        counted = re.search(r"len\(allocations\) = (\d+)", log.read_text())
    if counted is None:
        raise subprocess.SubprocessError(
            "SnapViewer's converter did not say how many allocations it found"
        )
    return report, int(counted[1])


def process(trace: Path) -> ProgramReport:
    """Run memory_viz in node, without drawing.

    Unpickling, and the points of the 15,000 largest allocations.
    """
    return program(
        [
            "node",
            "--max-old-space-size=12000",
            str(Path(__file__).with_name("memory_viz.cjs")),
            os.environ["SPLATVIEW_MEMORY_VIZ"],
            str(trace),
        ]
    )
