"""From the trainer's write to the pixel in the viewer's framebuffer, two processes, no vsync.

The trainer paints 1M Gaussians (or makes a new 1080p picture) and publishes; the viewer, `splatview serve --offscreen
--max-fps 1000`, reads the pixel in the middle after each of its pictures and says at what time it had changed. The
clock (CLOCK_MONOTONIC) is the same in both. Each change waits for the one before to be seen, and for a random while.
"""

from __future__ import annotations

import queue
import random
import time
from typing import TYPE_CHECKING, Any

import torch

import splatview
from benchmarks.gpu import require_gpu, tried
from benchmarks.gpu.clocks import mid_and_p99
from benchmarks.gpu.scenes import ball, paint
from benchmarks.gpu.viewer import Viewer

if TYPE_CHECKING:
    from collections.abc import Callable

CHANGES = 200
GAUSSIANS = 1_000_000
RED, BLUE = (0.9, 0.05, 0.05), (0.05, 0.05, 0.9)


def run() -> list[dict[str, str]]:
    require_gpu()
    scene = ball(GAUSSIANS)
    pictures = [torch.tensor([*(round(255 * v) for v in rgb), 255], dtype=torch.uint8, device="cuda")
                for rgb in (RED, BLUE)]
    blank = torch.zeros(1080, 1920, 4, dtype=torch.uint8, device="cuda")

    def scene_change(i: int) -> None:
        paint(scene, (RED, BLUE)[i % 2])
        splatview.publish(scene)

    def image_change(i: int) -> None:
        splatview.publish(blank + pictures[i % 2], "frame")

    fast = ("--max-fps", "1000", "--gpu-budget", "1")
    rows = []
    for what, change, options, target in (
        ("scene of 1M Gaussians", scene_change, fast, "p99 5 ms"),
        ("scene of 1M Gaussians", scene_change, ("--max-fps", "1000"), "p99 5 ms"),
        ("1080p RGBA8 picture", image_change, fast, ""),
        ("1080p RGBA8 picture", image_change, ("--max-fps", "1000"), ""),
    ):
        try:
            rows += tried(what, lambda a=(what, change, options, target): [_measure(*a)])
        finally:
            splatview.close()
    return rows


def _measure(what: str, change: Callable[[int], None], options: tuple[str, ...], target: str) -> dict[str, str]:
    change(0)
    rng, delays = random.Random(0), []
    with Viewer(*options) as viewer:
        viewer.ready(lambda: (change(0), time.sleep(0.02)))
        time.sleep(0.5)
        viewer.ask("watch", on=True)
        viewer.ask("begin")
        for i in range(1, CHANGES + 11):
            torch.cuda.synchronize()
            begin = time.monotonic_ns()
            change(i)
            seen = _wait(viewer, i, begin)
            if i > 10:
                delays.append(seen - begin)
            time.sleep(rng.uniform(0.015, 0.035))
        report, state = viewer.ask("report"), viewer.ask("state")
    median, p99 = mid_and_p99(delays, 1e6)
    sizes = ", ".join(size for size, _ in report["sizes"][:2])
    return {"what": what, "serve": " ".join(options), "median ms": f"{median:.2f}", "p99 ms": f"{p99:.2f}",
            "worst ms": f"{max(delays) / 1e6:.2f}", "target": target, "changes": str(len(delays)),
            "drawn in": sizes or "1920x1080", "way": " > ".join(state["path"])}


def _wait(viewer: Viewer, i: int, begin: int) -> int:
    """The time at which the pixel had the colour of change `i`."""
    end = time.monotonic() + 3
    while time.monotonic() < end:
        try:
            message: dict[str, Any] = viewer.seen.get(timeout=0.5)
        except queue.Empty:
            continue
        r, _, b = message["seen"]
        if (r > b) == (i % 2 == 0) and message["ns"] > begin:
            return message["ns"]
    raise RuntimeError(f"change {i} was not seen within 3 s; the pixel is {viewer.pixel()}")
