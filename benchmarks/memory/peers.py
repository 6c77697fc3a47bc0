"""SnapViewer's converter, which its viewer cannot do without, and memory_viz's processing, on the same traces."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.memory.processes import program

if TYPE_CHECKING:
    from benchmarks.memory.processes import Told

MOST_EVENTS = 2_000_000
"""What both can take here: ten million events do not fit into 16 GB, nor into node's heap and strings."""


def missing(variable: str, events: int) -> str:
    """Why the peer that an environment variable names cannot be measured here, or ""."""
    named = os.environ.get(variable, "")
    if not named:
        return f"{variable} names no file of its"
    if not Path(named).is_file():
        return f"{variable}={named} is no file"
    return "" if events <= MOST_EVENTS else "it would take more memory than there is"


def convert(trace: Path) -> tuple[Told, int]:
    """What it took, and how many allocations it found."""
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
        told = program(
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
    return told, int(counted[1])


def process(trace: Path) -> Told:
    """memory_viz in node: unpickling, and the points of the 15,000 largest allocations; without drawing them."""
    return program(
        [
            "node",
            "--max-old-space-size=12000",
            str(Path(__file__).with_name("memory_viz.cjs")),
            os.environ["SPLATVIEW_MEMORY_VIZ"],
            str(trace),
        ]
    )
