"""What the benchmarks count with: the command `serve` with somebody at its screen who counts, looks and drags."""

from __future__ import annotations

import queue
import time

import pytest
import torch
from patience import PATIENCE

import splatview
from benchmarks.gpu.clocks import until
from benchmarks.gpu.viewer import Viewer

SCREENS = ["offscreen", pytest.param("window", marks=pytest.mark.display)]


def publish(i: int) -> tuple[int, int, int]:
    """A picture of one colour, which is returned."""
    colour = (i, 255 - i, 2 * i)
    splatview.publish(torch.tensor([*colour, 255], dtype=torch.uint8).expand(90, 160, 4).contiguous(), "picture")
    return colour


@pytest.mark.exhaustive
@pytest.mark.parametrize("screen", SCREENS)
def test_what_is_shown_is_counted_and_seen(screen: str, request: pytest.FixtureRequest) -> None:
    if screen == "window":
        request.getfixturevalue("display")
    with Viewer("--max-fps", "500", "--gpu-budget", "1", "--no-vsync", size=(160, 90), screen=screen) as viewer:
        viewer.ready(lambda: (publish(0), time.sleep(0.02)))
        viewer.ask("watch", on=True)
        publish(1)
        assert _seen(viewer, (1, 254, 2))["ns"] < time.monotonic_ns()
        viewer.ask("begin")
        for i in range(2, 22):
            _seen(viewer, publish(i))
        report = viewer.ask("report")
        assert round(report["versions_s"] * report["seconds"]) == 20
        assert report["pictures_s"] >= report["versions_s"]
        assert viewer.pixel() == (21, 234, 42)
        assert viewer.ask("limit", seconds=0.2)["pictures_s"] > 0
        until("the picture drawn again after it was cleared", lambda: viewer.pixel() == (21, 234, 42), PATIENCE)
    assert viewer.process.returncode == 0


def _seen(viewer: Viewer, colour: tuple[int, int, int]) -> dict[str, int]:
    """Wait until the viewer reports this colour."""
    seen = []
    while True:
        try:
            message = viewer.seen.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"{colour} was not seen, but {seen}") from None
        seen.append(tuple(message["seen"]))
        if seen[-1] == colour:
            return message
