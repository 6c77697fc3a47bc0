"""From the trainer's write to the pixel in the viewer's framebuffer, two processes, no vsync.

The trainer paints 1M Gaussians (or makes a new 1080p picture) and publishes; the viewer, `splatview serve --offscreen
--max-fps 1000 --gpu-budget 1`, reads the pixel in the middle after each of its pictures and says at what time it had
changed. The clock (CLOCK_MONOTONIC) is the same in both. Each change waits for the one before to be seen, and for a
random while.

"of which" are the medians of the parts, in ms, each from the end of the one before: until the viewer has seen the
version, until its view has taken it, until CUDA was given its work, until CUDA is done, until the pixel is read; and
the same for the slowest changes. In the trainer Python collects no garbage meanwhile: that is not the viewer's time.
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
    for what, change, target in (
        ("scene of 1M Gaussians", scene_change, "p99 5 ms"),
        ("1080p RGBA8 picture", image_change, ""),
    ):
        try:
            rows += tried(what, lambda a=(what, change, target): [_measure(*a)])
        finally:
            splatview.close()
    return rows


def _measure(what: str, change: Callable[[int], None], target: str) -> dict[str, str]:
    change(0)
    rng = random.Random(0)
    delays = []
    parts = []
    with Viewer(*OPTIONS) as viewer:
        viewer.ready(lambda: (change(0), time.sleep(0.02)))
        time.sleep(0.5)
        viewer.ask("watch", on=True)
        viewer.ask("begin")
        gc.collect()
        gc.disable()
        try:
            for i in range(1, CHANGES + 11):
                torch.cuda.synchronize()
                begin = time.monotonic_ns()
                change(i)
                seen = _wait(viewer, i, begin)
                if i > 10:
                    delays.append(seen["ns"] - begin)
                    parts.append(_parts(begin, seen))
                time.sleep(rng.uniform(0.01, 0.025))
        finally:
            gc.enable()
        report = viewer.ask("report")
        state = viewer.ask("state")
    median, p99 = mid_and_p99(delays, 1e6)
    sizes = ", ".join(size for size, _ in report["sizes"][:2])
    slowest = sorted(range(len(delays)), key=delays.__getitem__)[-SLOWEST:]
    return {
        "what": what,
        "median ms": f"{median:.2f}",
        "p99 ms": f"{p99:.2f}",
        "worst ms": f"{max(delays) / 1e6:.2f}",
        "target": target,
        "of which": _medians(parts),
        f"of the slowest {SLOWEST}": _medians([parts[i] for i in slowest]),
        "changes": str(len(delays)),
        "drawn in": sizes or "1920x1080",
        "way": " > ".join(state["path"]),
    }


def _parts(begin: int, seen: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of each part of a change that began then, in their order."""
    moments = seen["moments"]
    parts = {}
    before = begin
    for name, moment in (
        ("seen", "seen"),
        ("taken", "taken"),
        ("launched", "launched"),
        ("CUDA", "cuda"),
    ):
        if moment not in moments:  # an image is shown without
            continue
        at = max(moments[moment], before)
        parts[name] = (at - before) / 1e6
        before = at
    return {**parts, "OpenGL + read": (seen["ns"] - before) / 1e6}


def _medians(parts: list[dict[str, float]]) -> str:
    return ", ".join(
        f"{name} {statistics.median(p[name] for p in parts if name in p):.2f}"
        for name in dict.fromkeys(name for p in parts for name in p)
    )


def _wait(viewer: Viewer, i: int, begin: int) -> dict[str, Any]:
    """What the viewer said when the pixel had the colour of change `i`."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        try:
            message: dict[str, Any] = viewer.seen.get(timeout=0.5)
        except queue.Empty:
            continue
        r, _, b = message["seen"]
        if (r > b) == (i % 2 == 0) and message["ns"] > begin:
            return message
    raise RuntimeError(
        f"change {i} was not seen within 3 s; the pixel is {viewer.pixel()}"
    )
