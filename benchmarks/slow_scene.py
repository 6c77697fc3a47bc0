"""Measure how long the interface takes to answer beside a scene that is slow to draw.

A million Gaussians at 1920x1080, drawn by the processor. The page moves the pointer
between two tabs of the panel, and waits for the interface that shows it: while nothing
happens, while keys that are held move the camera to and fro, and while a training
publishes. Pictures are counted meanwhile; one that rests is sent once more, without
loss. "at once" has the same pictures drawn in one go.
"""

from __future__ import annotations

import time
from functools import partial

from benchmarks.browser.serve import AT_ONCE
from benchmarks.harness import Program, percentile, tried
from benchmarks.web import page_of, wait_for_picture

SIZE = (1920, 1080)
GAUSSIANS = 1_000_000
HZ = 1.0
"""Versions that are published in a second."""
SECONDS = 15.0
FIRST_S = 20.0
TABS = ((40.0, 420.0), (120.0, 420.0))
"""Two tabs of the panel."""
SWAY = ("d", "a")
"""Keys that fly to the right and to the left: the scene stays in the picture."""


def run() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for title, options in (("at once", (AT_ONCE,)), ("in steps", ())):
        rows += tried(title, partial(_measure, title, options))
    return rows


def _measure(title: str, options: tuple[str, ...]) -> list[dict[str, str]]:
    with (
        Program("benchmarks.browser.publisher", "cpu") as publisher,
        Program("benchmarks.browser.serve", "--web", "--port", "0", *options) as viewer,
        Program("benchmarks.browser.page", page_of(viewer, SIZE)) as page,
    ):
        publisher.request("training", gaussians=GAUSSIANS, hz=0.0, timeout=60)
        wait_for_picture(page)
        # The scene is read, its first picture drawn, and all is loaded that it takes.
        time.sleep(FIRST_S)
        rows = [_used(page, f"{title}, nothing happens")]
        rows.append(_used(page, f"{title}, the camera moves", SWAY))
        page.request("key", name="f")
        time.sleep(8)
        publisher.request("training", gaussians=GAUSSIANS, hz=HZ, timeout=60)
        time.sleep(4)
        rows.append(_used(page, f"{title}, a training runs"))
        return rows


def _used(page: Program, title: str, keys: tuple[str, ...] = ()) -> dict[str, str]:
    timeout = SECONDS + 60
    used = page.request("use", seconds=SECONDS, points=TABS, keys=keys, timeout=timeout)
    latencies = used["latencies"]
    return {
        "what": title,
        "p50 ms": f"{percentile(latencies, 0.5):.0f}",
        "p95 ms": f"{percentile(latencies, 0.95):.0f}",
        "worst ms": f"{max(latencies):.0f}",
        "moves": f"{len(latencies)}",
        "unanswered": f"{used['missed']}",
        "pictures/s": f"{used['per_s']:.2f}",
        "target": "p95 60 ms",
    }
