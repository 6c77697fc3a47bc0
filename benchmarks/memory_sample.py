"""Measure the processor time of one sample of `publish_memory`.

Without a reader and with one, and of the process's idle threads.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import torch

import splatview
from benchmarks.harness import tried, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE_HZ = 100.0
"""Samples a second: the most that `publish_memory` allows."""
MEASURED_S = 10.0
_READER = """
import splatview
with splatview.frames("memory", timeout=60) as frames:
    for frame in frames:
        print(frame.version, flush=True)
"""


def run() -> list[dict[str, str]]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return tried("samples of the memory", lambda: _measure(device))
    finally:
        splatview.close()


def _measure(device: str) -> list[dict[str, str]]:
    keep_allocated = torch.zeros(1 << 20, device=device)
    splatview.publish(torch.zeros(8, 8), "idle")
    idle_s = _processor_time(MEASURED_S)
    splatview.publish_memory(device=device, hz=RATE_HZ, record=False)
    rows = []
    rows.append(_row(device, "without a reader", _processor_time(MEASURED_S) - idle_s))
    with _reader():
        rows.append(_row(device, "with a reader", _processor_time(MEASURED_S) - idle_s))
    del keep_allocated
    return rows


def _processor_time(seconds: float) -> float:
    """Return the processor time of all threads while this one sleeps."""
    started_at = time.process_time()
    time.sleep(seconds)
    return time.process_time() - started_at


@contextlib.contextmanager
def _reader() -> Iterator[None]:
    """Run another process that reads the stream, from its first frame on."""
    program = subprocess.Popen(
        [sys.executable, "-c", _READER], stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    lines = program.stdout
    try:
        wait_until("the reader's first frame", lambda: bool(lines.readline()))
        yield
    finally:
        program.kill()
        program.wait()
        lines.close()


def _row(device: str, title: str, busy_s: float) -> dict[str, str]:
    samples = RATE_HZ * MEASURED_S
    return {
        "device": device,
        "what": title,
        "processor time of a sample": f"{1000 * busy_s / samples:.3f} ms",
    }
