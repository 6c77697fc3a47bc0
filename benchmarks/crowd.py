"""Viewers that come and go while something is measured: one process forks and kills them.

The process that is measured only writes a line to it: whoever starts processes itself, or runs a thread that does,
measures that.
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
from benchmarks.harness import Program, say
from splatview_ipc.control.frame import DeviceTensor, StreamFrame
from splatview_ipc.subscriber.subscriber import Subscriber


class Crowd(Program):
    """Viewers of everything that is published, as a context manager: none outlives it. One of them stays."""

    def __init__(self) -> None:
        self.late: list[tuple[float, int]] = []
        """What the viewer that stays told: milliseconds from publish to read, the middle of so many frames."""
        super().__init__("benchmarks.crowd")
        self.steady: int = self.answer()["pid"]

    def take(self, message: dict[str, Any]) -> None:
        if "late" in message:
            self.late.append((message["late"], message["frames"]))
        else:
            super().take(message)

    def churn(self, every: float) -> int:
        """From now on start a viewer every so many seconds and kill it after 0.3 to 1.7 seconds; 0: kill those that
        there are, and start none. How many have been killed until now.
        """
        return self.ask("churn", every=every)["killed"]


def _born(stays: bool = False) -> int:
    """Fork a viewer; its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            os.close(0)
            torch.set_num_threads(1)
            _look(stays)
        finally:
            os._exit(1)
    return pid


def _look(tells: bool) -> None:
    seen: dict[str, int] = {}
    late: list[float] = []
    told = time.monotonic()
    with Subscriber() as subscriber:
        while True:
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                frame = stream.read(seen.get(stream.name, 0))
                if frame is not None:
                    with frame:
                        _sum(frame)
                        if frame.intact():
                            seen[stream.name] = frame.version
                            late.append((time.time_ns() - frame.time_ns) / 1e6)
            if tells and late and time.monotonic() > told + 0.2:
                told = time.monotonic()
                say(late=sorted(late)[len(late) // 2], frames=len(late))
                late.clear()
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
    every = 0.0
    due = 0.0
    killed = 0
    ends: list[tuple[float, int]] = []
    steady = _born(stays=True)
    say(pid=steady)
    while True:
        now = time.monotonic()
        while ends and ends[0][0] <= now:
            os.kill(ends.pop(0)[1], signal.SIGKILL)
            killed += 1
        if every and now >= due:
            due = now + every
            ends = sorted([*ends, (now + random.uniform(0.3, 1.7), _born())])
        wait = (
            min(([due] if every else [now + 60.0]) + [end for end, _ in ends[:1]]) - now
        )
        if not select.select([0], [], [], max(0.0, wait))[0]:
            continue
        line = os.read(0, 4096)  # one request: each waits for its answer
        every = json.loads(line)["every"] if line else 0.0
        if not every:
            for _, pid in ends:
                os.kill(pid, signal.SIGKILL)
            killed = killed + len(ends)
            ends = []
        if not line:
            break
        say(killed=killed)
    os.kill(steady, signal.SIGKILL)


if __name__ == "__main__":
    main()
