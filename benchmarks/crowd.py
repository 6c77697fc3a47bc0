"""Start and kill viewers while something is measured, in one process.

The process that is measured only writes a line to it: one that starts processes itself,
or runs a thread that does, measures that.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from typing import Any

import torch

import splatview_ipc.transports  # noqa: F401  (loaded before viewers are forked)
from benchmarks.harness import Program, reply
from splatview_ipc.control.frame import DeviceTensor, StreamFrame
from splatview_ipc.subscriber.subscriber import Subscriber


class Crowd(Program):
    """Viewers of everything that is published, as a context manager.

    None outlives it. One of them stays.
    """

    def __init__(self) -> None:
        self.late: list[tuple[float, int]] = []
        """Milliseconds from publish to read that the viewer that stays told: the middle
        of so many frames."""
        super().__init__("benchmarks.crowd")
        self.steady: int = self.answer()["pid"]

    def handle_message(self, message: dict[str, Any]) -> None:
        if "late" in message:
            self.late.append((message["late"], message["frames"]))
        else:
            super().handle_message(message)

    def churn(self, every: float) -> int:
        """Start a viewer every so many seconds from now on, and kill it soon.

        Each is killed after 0.3 to 1.7 seconds.

        every: 0: kill those that there are, and start none.

        Returns:
            The number that have been killed until now.
        """
        return self.request("churn", every=every)["killed"]


def _fork_viewer(stays: bool = False) -> int:
    """Fork a viewer; return its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            os.close(0)
            torch.set_num_threads(1)
            _view_all(stays)
        finally:
            os._exit(1)
    return pid


def _view_all(reports: bool) -> None:
    version_of: dict[str, int] = {}
    delays_ms: list[float] = []
    reported_at = time.monotonic()
    with Subscriber() as subscriber:
        while True:
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                frame = stream.read(version_of.get(stream.name, 0))
                if frame is not None:
                    with frame:
                        _sum(frame)
                        if frame.intact():
                            version_of[stream.name] = frame.version
                            delays_ms.append((time.time_ns() - frame.time_ns) / 1e6)
            if reports and delays_ms and time.monotonic() > reported_at + 0.2:
                reported_at = time.monotonic()
                reply(
                    late=sorted(delays_ms)[len(delays_ms) // 2], frames=len(delays_ms)
                )
                delays_ms.clear()
            time.sleep(1 / 120)


def _sum(frame: StreamFrame) -> None:
    """Read all of a frame."""
    for t in frame.tensors.values():
        if isinstance(t, DeviceTensor):
            frame.wait(torch.cuda.current_stream().cuda_stream)
            t.torch().flatten()[:100_000].float().sum().item()
        else:
            t.array.sum()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    period_s = 0.0
    due = 0.0
    killed = 0
    ends: list[tuple[float, int]] = []
    steady = _fork_viewer(stays=True)
    reply(pid=steady)
    while True:
        now = time.monotonic()
        while ends and ends[0][0] <= now:
            os.kill(ends.pop(0)[1], signal.SIGKILL)
            killed += 1
        if period_s and now >= due:
            due = now + period_s
            ends = sorted([*ends, (now + random.uniform(0.3, 1.7), _fork_viewer())])
        wake_at = now + 60.0
        if period_s:
            wake_at = due
        if ends:
            wake_at = min(wake_at, ends[0][0])
        if not select.select([0], [], [], max(0.0, wake_at - now))[0]:
            continue
        # One request: each waits for its answer.
        line = os.read(0, 4096)
        period_s = 0.0
        if line:
            period_s = json.loads(line)["every"]
        if not period_s:
            for _, pid in ends:
                os.kill(pid, signal.SIGKILL)
            killed += len(ends)
            ends = []
        if not line:
            break
        reply(killed=killed)
    os.kill(steady, signal.SIGKILL)


if __name__ == "__main__":
    main()
