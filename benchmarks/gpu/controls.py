"""Measure the script's own controls: reading one, and how soon a click is seen."""

from __future__ import annotations

import random
import statistics
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import splatview
from benchmarks.harness import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.gpu.viewer import Viewer

CLICKS = 30
_BUTTON = "save"
_READS = 200_000
_LONGEST_S = 10.0


def read_us() -> float:
    """Return the microseconds that reading the value of a control takes."""
    slider = splatview.controls.slider("time", 0.0, 1.0, value=0.5)
    times = timeit.repeat(
        "slider.value", globals={"slider": slider}, number=_READS, repeat=5
    )
    return min(times) / _READS * 1e6


def steps_until_seen(viewer: Viewer, step: Callable[[], object]) -> list[int]:
    """Click in the viewer again and again; return the step that saw each click.

    1 is the first step that asked after the click.

    Args:
        viewer: shows the run.
        step: does a step of the training.
    """
    button = splatview.controls.button(_BUTTON)
    rng = random.Random(0)
    counts: list[int] = []

    def click() -> int:
        """Click at any time within a step; return when, in nanoseconds."""
        time.sleep(rng.uniform(0.0, 0.03))
        return viewer.request("click", name=_BUTTON, timeout=_LONGEST_S)["ns"]

    with ThreadPoolExecutor(1) as threads:
        for _ in range(CLICKS):
            asked_ns: list[int] = []
            future = threads.submit(click)

            def is_seen(asked_ns: list[int] = asked_ns) -> bool:
                asked_ns.append(time.monotonic_ns())
                return button.clicked()

            wait_until("a click", is_seen, _LONGEST_S, step)
            clicked_ns = future.result(_LONGEST_S)
            counts.append(sum(ns >= clicked_ns for ns in asked_ns))
    return counts


def steps_text(counts: list[int]) -> str:
    """Return the steps until clicks were seen as text, median / most."""
    return f"{statistics.median(counts):g} / {max(counts)}"
