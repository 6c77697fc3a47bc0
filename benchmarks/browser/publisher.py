"""Publish as a training run does, a new tensor each time.

`python -m benchmarks.browser.publisher DEVICE`

Commands: pictures, base=, size=, hz=: numbered pictures from now on, on stream
"picture"; still, base=, size=: one picture with a mark in it; scene, gaussians=: a ball
of Gaussians, ten times a second; training, gaussians=, hz=: such a ball whose colours
change, with a curve; stamped, gaussians=, hz=: such a ball whose colour tells the
version, in place; report: what was published since the last report.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import splatview
from benchmarks import harness
from benchmarks.browser import pictures
from benchmarks.browser.reading import Publications
from benchmarks.gpu.scenes import ball

if TYPE_CHECKING:
    from collections.abc import Callable


class Publisher:
    def __init__(self, device: str) -> None:
        self._device = device
        self._publish: Callable[[int], object] | None = None
        self._hz = 0.0
        self._index = 0
        self._times: list[tuple[int, float]] = []
        self._spent = 0.0
        self._stamped: Publications | None = None
        self._has_work = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._has_work.set()
        self._thread.join()
        splatview.close()

    def _run(self) -> None:
        due = 0.0
        while not self._ended:
            if not self._hz:
                self._has_work.wait()
                self._has_work.clear()
                continue
            assert self._publish is not None
            self._index += 1
            self._publish(self._index)
            due = max(due + 1 / self._hz, time.monotonic() - 0.05)
            time.sleep(max(due - time.monotonic(), 0))

    def _timed(self, value: Any, name: str) -> None:
        started_at = time.thread_time()
        splatview.publish(value, name)
        self._spent += time.thread_time() - started_at

    def _start(self, publish: Callable[[int], object], hz: float) -> None:
        self._hz = 0.0
        time.sleep(0.1)
        self._publish = publish
        if hz:
            self._hz = hz
            self._has_work.set()
        else:
            publish(0)

    def do_pictures(self, base: str, size: list[int], hz: float) -> None:
        """Numbers count on from where they were."""
        pool = [
            torch.from_numpy(p).to(self._device)
            for p in pictures.moving(np.load(base), (size[0], size[1]), pictures.POOL)
        ]
        top = torch.empty(pool[0].shape, dtype=torch.uint8)

        def publish(index: int) -> None:
            height = 3 * pictures.BLOCK * size[0] // 1920
            strip = top[:height]
            picture = pool[index % pictures.POOL].clone()
            strip.copy_(picture[:height])
            pictures.write(strip.numpy(), index)
            picture[:height] = strip.to(self._device)
            self._times.append((index, time.monotonic()))
            self._timed(picture, "picture")

        self._start(publish, hz)

    def do_still(self, base: str, size: list[int]) -> None:
        picture = pictures.moving(np.load(base), (size[0], size[1]), 1)[0]
        pictures.mark(picture)
        self._start(
            lambda _: self._timed(
                torch.from_numpy(picture).to(self._device), "picture"
            ),
            0,
        )

    def do_scene(self, gaussians: int) -> None:
        scene = ball(gaussians, self._device)
        self._start(
            lambda _: self._timed(scene, "scene"), 10.0 if self._device == "cuda" else 0
        )

    def do_training(self, gaussians: int, hz: float) -> None:
        scene = dict(ball(gaussians, self._device))
        colors = scene["sh0"]

        def publish(step: int) -> None:
            scene["sh0"] = colors * (1 - 0.3 * math.sin(step / 5))
            splatview.publish(scene, "scene", step=step)
            splatview.log(step, loss=1 / (step + 1))

        self._start(publish, hz)

    def do_stamped(self, gaussians: int, hz: float) -> None:
        if self._stamped is None or len(self._stamped.scene["means"]) != gaussians:
            self._stamped = Publications(ball(gaussians, self._device))
        self._start(self._stamped.publish, hz)

    def do_stamps(self) -> dict[str, Any]:
        """Return when stamped versions were published, and the seconds that each took."""
        assert self._stamped is not None
        return {"times": self._stamped.times, "seconds": self._stamped.seconds}

    def do_report(self) -> dict[str, Any]:
        times = self._times
        self._times = []
        spent = self._spent
        self._spent = 0.0
        return {"times": times, "publish_ms": spent / max(len(times), 1) * 1e3}


if __name__ == "__main__":
    publisher = Publisher(sys.argv[1])
    harness.serve_requests(publisher)
    publisher.close()
