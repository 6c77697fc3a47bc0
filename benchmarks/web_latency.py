"""Measure the time from an input on the page to the picture that shows it.

p50 and p95 over the moves of a drag, 60 a second.

A process of our own stands for the page: from sending the event to the picture received
and decoded. The mark in the pictures (of a scene: that it looks otherwise) is held
against the event that each tells of.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Program, percentile, tried, wait_until
from benchmarks.web import base_picture, page_of, wait_for_picture

SECONDS = 5.0
HZ = 60.0


@dataclass(frozen=True)
class LatencyCase:
    title: str
    size: tuple[int, int]
    gaussians: int = 0
    """0: an image."""
    target: str = "p50 50 ms"


ON_CPU = (
    LatencyCase("image", (1920, 1080)),
    LatencyCase("image", (1280, 720)),
    LatencyCase("10,000 Gaussians on the CPU", (1280, 720), 10_000, ""),
)
ON_GPU = (
    LatencyCase("image", (1920, 1080)),
    LatencyCase("1,000,000 Gaussians", (1920, 1080), 1_000_000),
)


def run() -> list[dict[str, str]]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in ON_GPU if device == "cuda" else ON_CPU:
            rows += tried(
                case.title, lambda case=case: [_measure(device, Path(folder), case)]
            )
    return rows


def _measure(device: str, folder: Path, case: LatencyCase) -> dict[str, str]:
    with (
        Program("benchmarks.browser.publisher", device) as publisher,
        Program("benchmarks.browser.serve", "--web") as viewer,
    ):
        if case.gaussians:
            publisher.request("scene", gaussians=case.gaussians, timeout=60)
        else:
            publisher.request(
                "still",
                base=base_picture(folder, case.size),
                size=case.size,
                timeout=60,
            )
        with Program("benchmarks.browser.page", page_of(viewer, case.size)) as page:
            return _dragged(page, case)


def _dragged(page: Program, case: LatencyCase) -> dict[str, str]:
    wait_for_picture(page)
    page.request("key", name="h")  # the panel away: the picture fills the page
    if case.gaussians:
        time.sleep(2)
    else:
        wait_until(
            "the mark in the middle",
            lambda: _centred(page.request("state")["mark"], case.size),
            30,
        )
    page.request("drag", seconds=SECONDS, hz=HZ, timeout=SECONDS + 20)
    measured = page.request("latency")
    latencies = measured["latencies"]
    if case.gaussians:
        changed = page.request("changed", timeout=60)
        if changed["changed"] < 0.9 * changed["pairs"] or changed["pairs"] < 3:
            raise RuntimeError(
                f"of {changed['pairs']} pictures {changed['changed']} look otherwise"
            )
        checked = f"{changed['changed']} of {changed['pairs']} look otherwise than the one before"
    else:
        moved = page.request("moved", timeout=60)
        if moved["off"] > 3:
            raise RuntimeError(
                f"a picture's mark lies {moved['off']:.1f} px from where its event has put it"
            )
        checked = (
            f"mark at most {moved['off']:.1f} px off in {moved['checked']} pictures"
        )
    return {
        "what": case.title,
        "size": f"{case.size[0]}x{case.size[1]}",
        "p50 ms": f"{percentile(latencies, 0.5):.1f}",
        "p95 ms": f"{percentile(latencies, 0.95):.1f}",
        "worst ms": f"{max(latencies):.1f}",
        "target": case.target,
        "moves": f"{len(latencies)}",
        "pictures/s while dragged": f"{measured['per_s']:.1f}",
        "sent in": ", ".join(size for size, _ in measured["sizes"]),
        "checked": checked,
    }


def _centred(mark: list[float] | None, size: tuple[int, int]) -> bool:
    return (
        mark is not None
        and math.hypot(mark[0] - size[0] / 2, mark[1] - size[1] / 2) < 2
    )
