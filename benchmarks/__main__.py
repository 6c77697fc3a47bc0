"""Run benchmarks and print their tables: `python -m benchmarks [NAME ...] [--save]`.

`python -m benchmarks memory-trace OUT --events N` writes a memory snapshot to try
things with.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from benchmarks.harness import Skipped, machine, table

NAMES = (
    "imports",
    "publish",
    "renderer",
    "opening",
    "gpu_publish",
    "gpu_texture",
    "gpu_frame",
    "gpu_training",
    "gpu_latency",
    "interface",
    "selecting",
    "interface_turn",
    "gpu_grab",
    "web",
    "web_latency",
    "web_page",
    "slow_scene",
    "frames",
    "camera",
    "memory",
    "memory_sample",
)
"""Those that need a GPU or a display say so where there is none, and are passed
over."""


def main() -> int:
    if sys.argv[1:2] == ["memory-trace"]:
        from benchmarks.memory.traces import main as memory_trace

        return memory_trace(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join(NAMES)}; all by default",
    )
    parser.add_argument(
        "--save", action="store_true", help="append the tables to benchmarks/RESULTS.md"
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(
            f"{unknown.pop()!r} is not a benchmark; expected {', '.join(NAMES)}"
        )
    failed = False
    with tempfile.TemporaryDirectory(prefix="sv-bench-") as folder:
        os.environ["SPLATVIEW_RUNTIME_DIR"] = folder  # not among the user's own runs
        for name in options.names or NAMES:
            started_at = time.monotonic()
            print(f"\n{name} ...", file=sys.stderr, flush=True)
            module = importlib.import_module(f"benchmarks.{name}")
            try:
                rows = module.run()
            except Skipped as e:
                print(f"{name}: {e}", flush=True)
                continue
            print(f"{table(rows)}\n({time.monotonic() - started_at:.0f} s)", flush=True)
            complete = [row for row in rows if "failed" not in row]
            failed |= len(complete) < len(rows)
            if options.save and complete:
                save(name, module.__doc__ or "", table(complete))
    return int(failed)


def save(name: str, description: str, text: str) -> None:
    results = Path(__file__).parent / "RESULTS.md"
    with results.open("a", encoding="utf-8") as f:
        f.write(
            f"\n## {name}, {date.today().isoformat()}\n\n{description.splitlines()[0]}\n\n{machine()}  \n"
            f"`python -m benchmarks {name}`\n\n{text}\n"
        )


if __name__ == "__main__":
    sys.exit(main())
