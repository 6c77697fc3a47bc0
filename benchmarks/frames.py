"""Measure `splatview.frames`: from `publish` to a tensor in another process.

Frames of 1080p, against a bare copy.

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
records = numpy.memmap(sys.argv[4], numpy.int64, "r+", shape=(4096, 3))
frame = torch.zeros(1080, 1920, 4, dtype=torch.uint8, device=device)
targets = [torch.zeros_like(frame) for _ in range(4)]


def synchronize():
    if device == "cuda":
        torch.cuda.synchronize()


copy_durations = [0.0]
due_at = time.perf_counter()
version = 0
while True:
    version += 1
    if device == "cuda" and not in_place:
        frame = frame.clone()
    frame.fill_(version % 251)
    synchronize()
    copy_ns = 1000 * statistics.median(copy_durations[-101:])
    records[version % 4096] = time.perf_counter_ns(), version, copy_ns
    records[version % 4096, 0] = time.perf_counter_ns()
    splatview.publish(frame, "frame")
    due_at = max(due_at + 1 / rate, time.perf_counter())
    time.sleep(max(0.0, due_at - 0.5 / rate - time.perf_counter()))
    synchronize()
    started_at = time.perf_counter()
    targets[version % 4].copy_(frame)
    synchronize()
    copy_durations.append((time.perf_counter() - started_at) * 1e6)
    time.sleep(max(0.0, due_at - time.perf_counter()))
"""
"""Arguments: device, frames per second, "in-place" for a tensor that stays, and a file
that both map, for what is not the stream's: of each version when it was published (ns),
its number, and what a bare copy takes between two (ns)."""


def run() -> list[dict[str, str]]:
    rows = tried("CPU frames", lambda: [_hand_over("cpu", "new", RATES[0]), _idle()])
    if not torch.cuda.is_available():
        return rows
    # At the higher rate a tensor that stays is overwritten while it is compared.
    cases = [*(("new", rate) for rate in RATES), ("in-place", RATES[0])]
    for sharing, rate in cases:

        def measure(sharing: str = sharing, rate: float = rate) -> list[dict[str, str]]:
            return [_hand_over("cuda", sharing, rate)]

        rows += tried(f"CUDA frames, {sharing}, {rate:.0f} Hz", measure)
    return rows


def _hand_over(device: str, sharing: str, rate: float) -> dict[str, str]:
    """Measure frames from `publish` in one process to a tensor in this one.

    Args:
        device: "cpu" or "cuda".
        sharing: "new" for a tensor of each version, "in-place" for one that stays.
        rate: frames per second.
    """
    arrival_us: list[float] = []
    readable_us: list[float] = []
    copy_ns = 0.0
    folder = tempfile.TemporaryDirectory()
    path = f"{folder.name}/records"
    records = np.memmap(path, np.int64, "w+", shape=(4096, 3))
    arguments = [device, str(rate), sharing, path]
    program = subprocess.Popen([sys.executable, "-c", _PUBLISHER, *arguments])
    in_place = True if sharing == "in-place" else None
    try:
        with splatview.frames("frame", timeout=60, in_place=in_place) as frames:
            for frame in frames:
                tensor = frame.tensor
                arrived_ns = time.perf_counter_ns()
                pixels = tensor[[0, -1], [0, -1]].cpu()
                read_ns = time.perf_counter_ns()
                record = records[frame.version % 4096].tolist()
                published_ns, version, copy_ns = record
                if version != frame.version:
                    raise RuntimeError(
                        f"version {frame.version} is recorded as {version}"
                    )
                level = version % 251
                is_whole = bool((tensor == level).all())
                if not is_whole or not bool((pixels == level).all()):
                    raise RuntimeError(
                        f"version {frame.version} does not hold what was published"
                    )
                if not frame.intact():
                    raise RuntimeError(
                        f"version {frame.version} was overwritten while it was held"
                    )
                arrival_us.append((arrived_ns - published_ns) / 1e3)
                readable_us.append((read_ns - published_ns) / 1e3)
                if len(arrival_us) == ROUNDS + WARM:
                    break
            sharing_path = frames.path
            skipped = frames.skipped
    finally:
        program.kill()
        program.wait()
        del records
        folder.cleanup()
    copy_us = copy_ns / 1e3
    arrival_us = sorted(arrival_us[WARM:])
    p50 = statistics.median(arrival_us)
    p99 = arrival_us[int(0.99 * ROUNDS)]
    return {
        "what": f"a 1080p RGBA8 frame, {device}, {sharing_path}, {rate:.0f} Hz",
        "p50 us": f"{p50:.0f}",
        "p99 us": f"{p99:.0f}",
        "two pixels on the host, p50 us": f"{statistics.median(readable_us[WARM:]):.0f}",
        "bare copy, us": f"{copy_us:.0f}",
        "ratio": f"{p50 / copy_us:.2f}",
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
        cpu_before = time.process_time()
        with contextlib.suppress(TimeoutError):
            next(frames)
        cpu_seconds = time.process_time() - cpu_before
        share = cpu_seconds / (time.perf_counter() - started_at)
    splatview.close()
    return {
        "what": f"a reader that waits {IDLE:.0f} s in vain",
        "share of a processor": f"{100 * share:.2f} %",
    }
