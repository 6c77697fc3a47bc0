"""Measure the time from the trainer's write to the pixel in the framebuffer.

Two processes, no vsync.

The trainer paints 1M Gaussians (or makes a new 1080p picture) and publishes; the
viewer, `splatview serve --offscreen --max-fps 1000 --gpu-budget 1`, reads the pixel in
the middle after each of its pictures and says at what time it had changed. The clock
(CLOCK_MONOTONIC) is the same in both. Each change waits for the one before to be seen,
and for a random while.

"of which" are the medians of the parts, in ms, each from the end of the one before:
until the viewer has seen the version, until its view has taken it, until CUDA was given
its work, until CUDA is done, until the pixel is read; and the same for the slowest
changes. In the trainer Python collects no garbage meanwhile: that is not the viewer's
time.
"""

from __future__ import annotations

import gc
import queue
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

import splatview
from benchmarks.gpu.scenes import ball, paint
from benchmarks.gpu.viewer import Viewer
from benchmarks.harness import mid_and_p99, require_gpu, tried

if TYPE_CHECKING:
    from collections.abc import Callable

CHANGES = 200
SLOWEST = 4
OPTIONS = "--max-fps", "1000", "--gpu-budget", "1"
GAUSSIANS = 1_000_000
RED = (0.9, 0.05, 0.05)
BLUE = (0.05, 0.05, 0.9)


def run() -> list[dict[str, str]]:
    require_gpu()
    scene = ball(GAUSSIANS)
    pictures = [
        torch.tensor(
            [*(round(255 * v) for v in rgb), 255], dtype=torch.uint8, device="cuda"
        )
        for rgb in (RED, BLUE)
    ]
    blank = torch.zeros(1080, 1920, 4, dtype=torch.uint8, device="cuda")

    def scene_change(i: int) -> None:
        paint(scene, (RED, BLUE)[i % 2])
        splatview.publish(scene)

    def image_change(i: int) -> None:
        splatview.publish(blank + pictures[i % 2], "frame")

    rows = []
    for title, change, target in (
        ("scene of 1M Gaussians", scene_change, "p99 4.5 ms"),
        ("1080p RGBA8 picture", image_change, "p99 2.5 ms"),
    ):
        try:
            rows += tried(title, lambda a=(title, change, target): [_measure(*a)])
        finally:
            splatview.close()
    return rows


def _measure(title: str, change: Callable[[int], None], target: str) -> dict[str, str]:
    change(0)
    rng = random.Random(0)
    delays = []
    durations = []
    with Viewer(*OPTIONS) as viewer:
        viewer.ready(lambda: (change(0), time.sleep(0.02)))
        time.sleep(0.5)
        viewer.request("watch", on=True)
        viewer.request("begin")
        gc.collect()
        gc.disable()
        try:
            for i in range(1, CHANGES + 11):
                torch.cuda.synchronize()
                started_ns = time.monotonic_ns()
                change(i)
                change_report = _wait(viewer, i, started_ns)
                if i > 10:
                    delays.append(change_report["ns"] - started_ns)
                    durations.append(_durations(started_ns, change_report))
                time.sleep(rng.uniform(0.01, 0.025))
        finally:
            gc.enable()
        report = viewer.request("report")
        state = viewer.request("state")
    median, p99 = mid_and_p99(delays, 1e6)
    sizes = ", ".join(size for size, _ in report["sizes"][:2])
    slowest = sorted(range(len(delays)), key=delays.__getitem__)[-SLOWEST:]
    return {
        "what": title,
        "median ms": f"{median:.2f}",
        "p99 ms": f"{p99:.2f}",
        "worst ms": f"{max(delays) / 1e6:.2f}",
        "target": target,
        "of which": _medians(durations),
        f"of the slowest {SLOWEST}": _medians([durations[i] for i in slowest]),
        "changes": str(len(delays)),
        "drawn in": sizes or "1920x1080",
        "way": " > ".join(state["path"]),
    }


def _durations(started_ns: int, report: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of each part of a change that began then, in their order."""
    step_times = report["moments"]
    durations = {}
    previous_ns = started_ns
    for name, step in (
        ("seen", "seen"),
        ("taken", "taken"),
        ("launched", "launched"),
        ("CUDA", "cuda"),
    ):
        if step not in step_times:  # an image is shown without
            continue
        step_ns = max(step_times[step], previous_ns)
        durations[name] = (step_ns - previous_ns) / 1e6
        previous_ns = step_ns
    return {**durations, "OpenGL + read": (report["ns"] - previous_ns) / 1e6}


def _medians(durations: list[dict[str, float]]) -> str:
    return ", ".join(
        f"{name} {statistics.median(p[name] for p in durations if name in p):.2f}"
        for name in dict.fromkeys(name for p in durations for name in p)
    )


def _wait(viewer: Viewer, i: int, started_ns: int) -> dict[str, Any]:
    """Return the viewer's report of the colour of change `i`."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        try:
            message: dict[str, Any] = viewer.changes.get(timeout=0.5)
        except queue.Empty:
            continue
        r, _, b = message["seen"]
        if (r > b) == (i % 2 == 0) and message["ns"] > started_ns:
            return message
    raise RuntimeError(
        f"change {i} was not seen within 3 s; the pixel is {viewer.pixel()}"
    )
