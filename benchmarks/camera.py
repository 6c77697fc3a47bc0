"""A camera at 30 pictures/s and a detector that takes its time: `splatview camera`, and async-tensorrt's design.

Ours is `splatview camera test` with its capturing and its inference process, and the viewer of `splatview serve`, which
draws offscreen. The other is one process: the main thread captures and draws, a thread takes every third picture from
an unbounded queue. The detectors find the test picture's square; their networks sleep as long as a GPU would work,
"+ 20 ms Python" takes processor time behind that. Pictures are counted by the number that each bears, read from what
was drawn; a result's age is that of the picture it was found in, at the moment when it is drawn first. Results are
checked in the same run: label and box, the box in the drawn pixels, must be those of the picture that the result names.
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
from benchmarks.harness import ROOT, percentile, tried, until
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
    for name, words in DETECTORS.items():
        seconds = getattr(detectors, name).seconds
        goal = f">= 29.5/s, age < {seconds * 1e3 + 2e3 / HZ:.0f} ms"
        for title, measure, target in (
            (f"ours, {words}", _ours, goal),
            (f"one process, {words}", _other, ""),
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


def _ours(name: str) -> dict[str, Any]:
    with (
        _camera(name),
        Viewer(
            "--run", "camera", size=SIZE, program="benchmarks.cameras.viewer"
        ) as viewer,
    ):
        return _watched(viewer)


def _watched(viewer: Viewer) -> dict[str, Any]:
    viewer.ready()
    until("a first result", lambda: viewer.ask("result")["result"], 240)
    time.sleep(WARM)
    viewer.ask("look")
    time.sleep(SECONDS)
    return viewer.ask("seen")


@contextlib.contextmanager
def _camera(name: str) -> Iterator[None]:
    """`splatview camera test` with a detector, without a viewer."""
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


def _other(name: str) -> dict[str, Any]:
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


def _row(title: str, seen: dict[str, Any], target: str) -> dict[str, str]:
    pictures = seen["pictures"]
    results = seen["results"]
    if len(pictures) < 2 or not results:
        raise RuntimeError(
            f"{len(pictures)} pictures and {len(results)} results were drawn"
        )
    gaps = [(b[0] - a[0]) / 1e6 for a, b in itertools.pairwise(pictures)]
    ages = [(drawn - taken) / 1e6 for drawn, _, taken, *_ in results]
    seconds = (pictures[-1][0] - pictures[0][0]) / 1e9
    return {
        "design, detector": title,
        "shown pictures/s": f"{(len(pictures) - 1) / seconds:.2f}",
        "p99 gap, ms": f"{percentile(gaps, 0.99):.0f}",
        "longest": f"{max(gaps):.0f}",
        "results/s": f"{len(results) / SECONDS:.1f}",
        "age p50, ms": f"{statistics.median(ages):.0f}",
        "age max": f"{max(ages):.0f}",
        "queue in the end": str(seen.get("queue", "none")),
        "checked": _check(seen),
        "target": target,
    }


def _check(seen: dict[str, Any]) -> str:
    """How many results were compared, and how many boxes in the drawn pixels. Raises RuntimeError for a wrong one."""
    numbers = dict(map(tuple, seen["versions"]))
    tied = 0
    placed = 0
    for _, version, _, number, x in seen["results"]:
        if version in numbers:
            if numbers[version] != number:
                raise RuntimeError(
                    f"the result of version {version}, which shows picture {numbers[version]}, is of "
                    f"picture {number}"
                )
            tied += 1
        left = square(number, *SIZE)[0]
        if x >= 0:
            if abs(x - left) > 3:
                raise RuntimeError(
                    f"a box was drawn at {x}, that of picture {number} is at {left}"
                )
            placed += 1
    if placed < len(seen["results"]) // 2 or (
        numbers and tied < len(seen["results"]) // 2
    ):
        raise RuntimeError(
            f"only {tied} versions and {placed} boxes of {len(seen['results'])} could be compared"
        )
    return f"{tied} versions, {placed} boxes" if numbers else f"{placed} boxes"
