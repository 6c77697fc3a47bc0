"""Measure `splatview.frames`: from `publish` to a tensor in another process.

1080p; against a bare copy.

Every frame's pixels are compared with what was published. "idle" is what a reader takes
of a processor for nothing.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

import splatview
from benchmarks.harness import tried

ROUNDS = 300
WARM = 20
"""Frames at first that do not count: the reader learns the rate."""
RATES = 60.0, 500.0
"""Frames per second of CUDA frames: at the lower one processors and GPU have gone cold
when the next frame comes."""
IDLE = 5.0
"""Seconds for which a reader waits for nothing."""
_PUBLISHER = """
import statistics, sys, time, numpy, torch, splatview
device, rate, in_place = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "in-place"
said = numpy.memmap(sys.argv[4], numpy.int64, "r+", shape=(4096, 3))
frame = torch.zeros(1080, 1920, 4, dtype=torch.uint8, device=device)
targets = [torch.zeros_like(frame) for _ in range(4)]
sync = torch.cuda.synchronize if device == "cuda" else lambda: None
bare, i, due = [0.0], 0, time.perf_counter()
while True:
    i += 1
    if device == "cuda" and not in_place:
        frame = frame.clone()
    frame.fill_(i % 251)
    sync()
    said[i % 4096] = time.perf_counter_ns(), i, 1000 * statistics.median(bare[-101:])
    said[i % 4096, 0] = time.perf_counter_ns()
    splatview.publish(frame, "frame")
    due = max(due + 1 / rate, time.perf_counter())
    time.sleep(max(0.0, due - 0.5 / rate - time.perf_counter()))
    sync()
    begin = time.perf_counter()
    targets[i % 4].copy_(frame)
    sync()
    bare.append((time.perf_counter() - begin) * 1e6)
    time.sleep(max(0.0, due - time.perf_counter()))
"""
"""Arguments: device, frames per second, "in-place" for a tensor that stays, and a file
that both map, for what is not the stream's: of each version when it was published (ns),
its number, and what a bare copy takes between two (ns)."""


def run() -> list[dict[str, str]]:
    rows = tried("CPU frames", lambda: [_hand_over("cpu", "new", RATES[0]), _idle()])
    if not torch.cuda.is_available():
        return rows
    for sort, rate in (
        *(("new", rate) for rate in RATES),
        ("in-place", RATES[0]),
    ):  # which is not whole for long

        def measure(sort: str = sort, rate: float = rate) -> list[dict[str, str]]:
            return [_hand_over("cuda", sort, rate)]

        rows += tried(f"CUDA frames, {sort}, {rate:.0f} Hz", measure)
    return rows


def _hand_over(device: str, sort: str, rate: float) -> dict[str, str]:
    handed: list[float] = []
    read: list[float] = []
    bare = 0.0
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/said"
    publish_times = np.memmap(path, np.int64, "w+", shape=(4096, 3))
    program = subprocess.Popen(
        [sys.executable, "-c", _PUBLISHER, device, str(rate), sort, path]
    )
    try:
        with splatview.frames(
            "frame", timeout=60, in_place=sort == "in-place" or None
        ) as frames:
            for frame in frames:
                tensor = frame.tensor
                now = time.perf_counter_ns()
                pixels = tensor[[0, -1], [0, -1]].cpu()
                read_ns = time.perf_counter_ns()
                published_ns, step, bare = publish_times[frame.version % 4096].tolist()
                if step != frame.version:
                    raise RuntimeError(f"version {frame.version} is said to be {step}")
                filled = step % 251
                if not bool((pixels == filled).all()) or not bool(
                    (tensor == filled).all()
                ):
                    raise RuntimeError(
                        f"version {frame.version} does not hold what was published"
                    )
                if not frame.intact():
                    raise RuntimeError(
                        f"version {frame.version} was overwritten while it was held"
                    )
                handed.append((now - published_ns) / 1e3)
                read.append((read_ns - published_ns) / 1e3)
                if len(handed) == ROUNDS + WARM:
                    break
            sharing_path = frames.path
            skipped = frames.skipped
    finally:
        program.kill()
        program.wait()
        del publish_times
        folder.cleanup()
    bare /= 1e3
    handed = sorted(handed[WARM:])
    read = sorted(read[WARM:])
    p50 = statistics.median(handed)
    return {
        "what": f"a 1080p RGBA8 frame, {device}, {sharing_path}, {rate:.0f} Hz",
        "p50 us": f"{p50:.0f}",
        "p99 us": f"{handed[int(0.99 * ROUNDS)]:.0f}",
        "two pixels on the host, p50 us": f"{statistics.median(read):.0f}",
        "bare copy, us": f"{bare:.0f}",
        "ratio": f"{p50 / bare:.2f}",
        "limit": "p50 150 us" if device == "cuda" else "ratio 1.5",
        "checked": f"every pixel of {ROUNDS + WARM} frames; {skipped} skipped",
    }


def _idle() -> dict[str, str]:
    """Measure a reader of a stream that publishes nothing any more."""
    splatview.publish(torch.zeros(64, 64, 3), "still")
    with splatview.frames("still") as frames:
        frames.latest()
    with splatview.frames("still", timeout=IDLE) as frames:
        next(frames)
        started_at = time.perf_counter()
        used = time.process_time()
        with contextlib.suppress(TimeoutError):
            next(frames)
        share = (time.process_time() - used) / (time.perf_counter() - started_at)
    splatview.close()
    return {
        "what": f"a reader that waits {IDLE:.0f} s in vain",
        "share of a processor": f"{100 * share:.2f} %",
    }
