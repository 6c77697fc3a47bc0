"""Run benchmarks and print their tables: `python -m benchmarks [NAME ...] [--save]`.

`--save` keeps the rows as benchmarks/results/NAME.MACHINE.json, in place of older ones;
`--page` makes docs/performance.md from these files.

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

from benchmarks.harness import Rows, Skipped, table
from benchmarks.machines import commit, this_machine, versions
from benchmarks.page import PAGE, write_page
from benchmarks.records import RESULTS, Record

NAMES = (
    "imports",
    "publish",
    "renderer",
    "opening",
    "gpu_publish",
    "gpu_texture",
    "gpu_frame",
    "gpu_training",
    "gpu_render_functions",
    "gpu_reader",
    "gpu_latency",
    "interface",
    "selecting",
    "interface_turn",
    "gpu_grab",
    "web",
    "web_latency",
    "web_page",
    "reader_gpu",
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
    options = _parse_options()
    if options.page:
        write_page(options.results)
        print(f"wrote {PAGE}")
        return 0
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
                record = _record(name, module.__doc__ or "", complete, options.commit)
                print(f"saved {record.save(options.results)}", flush=True)
    return int(failed)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join(NAMES)}; all by default",
    )
    parser.add_argument(
        "--save", action="store_true", help="keep the rows as a file of the results"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FOLDER",
        default=Path(os.environ.get("SPLATVIEW_BENCHMARK_RESULTS", RESULTS)),
        help="folder of the results (default: $SPLATVIEW_BENCHMARK_RESULTS, or "
        "benchmarks/results)",
    )
    parser.add_argument(
        "--commit",
        metavar="NAME",
        default=commit(),
        help="commit of these sources, where git does not know it",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="make docs/performance.md from the results, and measure nothing",
    )
    options = parser.parse_args()
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(
            f"{unknown.pop()!r} is not a benchmark; expected {', '.join(NAMES)}"
        )
    return options


def _record(name: str, description: str, rows: Rows, revision: str | None) -> Record:
    """Return the record of a benchmark that has just run here."""
    return Record(
        benchmark=name,
        measures=description.splitlines()[0],
        date=date.today().isoformat(),
        command=f"python -m benchmarks {name}",
        machine=this_machine(),
        versions=versions(),
        rows=rows,
        commit=revision,
    )


if __name__ == "__main__":
    sys.exit(main())
