"""Measure the peer in the same run: nerfview's cost for the same training."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import ROOT

FOLDER = Path(os.environ.get("SPLATVIEW_PEERS", ROOT.parent / "shared" / "peers"))
SCRIPT = "nerfview_slowdown.py"
_PATIENCE_S = 200


def measure(
    modes: str = "none,still,moving,burst", seconds: float = 5.0
) -> tuple[list[str], str]:
    """Return the rows that the peer's script prints, and why there are none.

    Prints them to standard error as well.
    """
    script = FOLDER / SCRIPT
    if not script.exists():
        return [], f"no {SCRIPT} in {FOLDER}: set SPLATVIEW_PEERS to its folder"
    command = [sys.executable, str(script), "--modes", modes]
    command += ["--seconds", str(seconds), "--warm", "2"]
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, timeout=_PATIENCE_S, cwd=folder
        )
    duration = time.monotonic() - started_at
    print(done.stdout, f"({duration:.0f} s)", file=sys.stderr, flush=True)
    mode_names = modes.split(",")
    lines = [
        line
        for line in done.stdout.splitlines()
        if line.split(" ")[0] in mode_names and "failed" not in line
    ]
    if not lines:
        return [], f"{SCRIPT} ended with {done.returncode} and no result"
    return lines, ""
