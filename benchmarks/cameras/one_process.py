"""Run async-tensorrt's design: capture, drawing and inference in one process.

`python -m benchmarks.cameras.one_process DETECTOR SECONDS`. The main thread reads the
camera, draws the boxes that it has over each picture, and puts every third picture into
an unbounded queue; a thread takes them from there in order, has the detector look at
them, and leaves the boxes. What is drawn is a picture in memory, which costs less than
a window. Prints one JSON object, with what `benchmarks.cameras.viewer` tells, and how
long the queue is in the end.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from typing import Any

import numpy as np

from benchmarks.cameras import detectors
from splatview.camera.pattern import draw, read_index

HZ = 30.0
DETECT_EVERY = 3
WARM = 2.0


def main(name: str, seconds: float) -> None:
    detect: detectors.Detector = getattr(detectors, name)
    waiting: queue.Queue[tuple[int, np.ndarray]] = queue.Queue()
    latest: tuple[int, dict[str, Any]] | None = None

    def infer() -> None:
        nonlocal latest
        while True:
            captured_ns, image = waiting.get()
            latest = captured_ns, detect(image)

    threading.Thread(target=infer, daemon=True).start()
    pictures = []
    results = []
    count = 0
    index = -1
    drawn = None
    started_at = time.monotonic()
    end = started_at + WARM + seconds
    measured_from_ns = time.time_ns() + int(WARM * 1e9)
    while time.monotonic() < end:
        index = max(
            index + 1, int((time.monotonic() - started_at) * HZ)
        )  # a camera's: who comes late misses some
        time.sleep(max(0.0, started_at + index / HZ - time.monotonic()))
        image = draw(index, 1280, 720)
        captured_ns = time.time_ns()
        if count % DETECT_EVERY == 0:
            waiting.put((captured_ns, image.copy()))
        count += 1
        canvas = image.copy()
        if latest is not None:
            x0, y0, x1, y1 = latest[1]["boxes"][0]
            for edge in (
                np.s_[y0:y1, x0 : x0 + 2],
                np.s_[y0:y1, x1 - 2 : x1],
                np.s_[y0 : y0 + 2, x0:x1],
                np.s_[y1 - 2 : y1, x0:x1],
            ):
                canvas[edge] = detectors.MAGENTA
        now = time.time_ns()
        if now < measured_from_ns:
            continue
        pictures.append((now, read_index(canvas)))
        if latest is not None and latest[0] != drawn:
            drawn = latest[0]
            results.append(
                (now, 0, drawn, int(latest[1]["labels"][0]), latest[1]["boxes"][0][0])
            )
    print(
        json.dumps(
            {
                "pictures": pictures,
                "results": results,
                "versions": [],
                "queue": waiting.qsize(),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
