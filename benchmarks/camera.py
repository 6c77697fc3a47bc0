"""Compare `splatview camera` with async-tensorrt's design, at 30 pictures/s.

A detector takes its time.

Ours is `splatview camera test` with its capturing and its inference process, and the
viewer of `splatview serve`, which draws offscreen. The other is one process: the main
thread captures and draws, a thread takes every third picture from an unbounded queue.
The detectors find the test picture's square; their networks sleep as long as a GPU
would work, "+ 20 ms Python" takes processor time behind that. Pictures are counted by
the number that each bears, read from what was drawn; a result's age is that of the
picture it was found in, at the moment when it is drawn first. Results are checked in
the same run: label and box, the box in the drawn pixels, must be those of the picture
that the result names.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.cameras import detectors
from benchmarks.gpu.viewer import Viewer
from benchmarks.harness import ROOT, percentile, tried, wait_until
from splatview.camera.pattern import square

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = (1280, 720)
HZ = 30.0
SECONDS = 20.0
WARM = 4.0
DETECTORS = {
    "fast": "40 ms",
    "fast_python": "40 ms + 20 ms Python",
    "slow": "400 ms",
    "slow_python": "400 ms + 20 ms Python",
}


def run() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for name, delay in DETECTORS.items():
        seconds = getattr(detectors, name).seconds
        goal = f">= 29.5/s, age < {seconds * 1e3 + 2e3 / HZ:.0f} ms"
        for title, measure, target in (
            (f"ours, {delay}", _measure_ours, goal),
            (f"one process, {delay}", _measure_other, ""),
        ):

            def measured(
                name: str = name,
                title: str = title,
                measure: Any = measure,
                target: str = target,
            ) -> list[dict[str, str]]:
                return [_row(title, measure(name), target)]

            rows += tried(title, measured)
    return rows


def _measure_ours(name: str) -> dict[str, Any]:
    with (
        _camera(name),
        Viewer(
            "--run", "camera", size=SIZE, program="benchmarks.cameras.viewer"
        ) as viewer,
    ):
        return _watched(viewer)


def _watched(viewer: Viewer) -> dict[str, Any]:
    viewer.ready()
    wait_until("a first result", lambda: viewer.request("result")["result"], 240)
    time.sleep(WARM)
    viewer.request("look")
    time.sleep(SECONDS)
    return viewer.request("seen")


@contextlib.contextmanager
def _camera(name: str) -> Iterator[None]:
    """Run `splatview camera test` with a detector, without a viewer."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "splatview",
            "camera",
            "test",
            "--fps",
            f"{HZ:g}",
            "--no-viewer",
            "--detect",
            f"benchmarks.cameras.detectors:{name}",
        ],
        cwd=ROOT,
        env={**os.environ, "SPLATVIEW_NAME": "camera"},
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _measure_other(name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cameras.one_process", name, f"{SECONDS}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS + 120,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    return json.loads(done.stdout)


def _row(title: str, report: dict[str, Any], target: str) -> dict[str, str]:
    pictures = report["pictures"]
    results = report["results"]
    if len(pictures) < 2 or not results:
        raise RuntimeError(
            f"{len(pictures)} pictures and {len(results)} results were drawn"
        )
    gaps = [(b[0] - a[0]) / 1e6 for a, b in itertools.pairwise(pictures)]
    ages = [(drawn - captured_ns) / 1e6 for drawn, _, captured_ns, *_ in results]
    seconds = (pictures[-1][0] - pictures[0][0]) / 1e9
    return {
        "design, detector": title,
        "shown pictures/s": f"{(len(pictures) - 1) / seconds:.2f}",
        "p99 gap, ms": f"{percentile(gaps, 0.99):.0f}",
        "longest": f"{max(gaps):.0f}",
        "results/s": f"{len(results) / SECONDS:.1f}",
        "age p50, ms": f"{statistics.median(ages):.0f}",
        "age max": f"{max(ages):.0f}",
        "queue in the end": str(report.get("queue", "none")),
        "checked": _check(report),
        "target": target,
    }


def _check(report: dict[str, Any]) -> str:
    """Return the number of results and of drawn boxes that were compared.

    Raises RuntimeError for a wrong one.
    """
    index_of = dict(map(tuple, report["versions"]))
    version_count = 0
    box_count = 0
    for _, version, _, index, x in report["results"]:
        if version in index_of:
            if index_of[version] != index:
                raise RuntimeError(
                    f"the result of version {version}, which shows picture {index_of[version]}, is of "
                    f"picture {index}"
                )
            version_count += 1
        left = square(index, *SIZE)[0]
        if x >= 0:
            if abs(x - left) > 3:
                raise RuntimeError(
                    f"a box was drawn at {x}, that of picture {index} is at {left}"
                )
            box_count += 1
    if box_count < len(report["results"]) // 2 or (
        index_of and version_count < len(report["results"]) // 2
    ):
        raise RuntimeError(
            f"only {version_count} versions and {box_count} boxes of {len(report['results'])} could be compared"
        )
    return (
        f"{version_count} versions, {box_count} boxes"
        if index_of
        else f"{box_count} boxes"
    )
