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


def measure(
    modes: str = "none,still,moving,burst", seconds: float = 5.0
) -> tuple[list[str], str]:
    """Return the script's own rows, and why there are none.

    Prints them to standard error as well.
    """
    script = FOLDER / SCRIPT
    if not script.exists():
        return [], f"no {SCRIPT} in {FOLDER}: set SPLATVIEW_PEERS to its folder"
    started_at = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [
                sys.executable,
                str(script),
                "--modes",
                modes,
                "--seconds",
                str(seconds),
                "--warm",
                "2",
            ],
            stdout=subprocess.PIPE,
            text=True,
            timeout=200,
            cwd=folder,
        )
    print(
        done.stdout,
        f"({time.monotonic() - started_at:.0f} s)",
        file=sys.stderr,
        flush=True,
    )
    lines = [
        line
        for line in done.stdout.splitlines()
        if line.split(" ")[0] in modes.split(",") and "failed" not in line
    ]
    return (
        lines,
        "" if lines else f"{SCRIPT} ended with {done.returncode} and no result",
    )
