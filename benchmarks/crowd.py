"""Viewers that come and go while something is measured: one process forks and kills them.

The process that is measured only writes a line to it: whoever starts processes itself, or runs a thread that does,
measures that.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.programs import ROOT

_SERVER = """
import os, random, select, signal, sys, time
import numpy, torch, zmq
import splatview_ipc.subscriber.subscriber, splatview_ipc.transports
CLIENT = {client!r}
def look(client):
    from splatview_ipc.subscriber.subscriber import Subscriber
    seen, late, told = dict(), [], time.monotonic()
    with Subscriber(client=client) as subscriber:
        while True:
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                frame = stream.read(seen.get(stream.name, 0))
                if frame is None:
                    continue
                with frame:
                    for t in frame.tensors.values():
                        if frame.on_gpu:
                            frame.wait(torch.cuda.current_stream().cuda_stream)
                            t.torch().flatten()[:100_000].float().sum().item()
                        else:
                            t.array.sum()
                    if frame.intact():
                        seen[stream.name] = frame.version
                        late.append((time.time_ns() - frame.time_ns) / 1e6)
            if client == CLIENT and late and time.monotonic() > told + 0.2:
                told = time.monotonic()
                os.write(1, f"late {{sorted(late)[len(late) // 2]:.4f}} {{len(late)}}\\n".encode())
                late.clear()
            time.sleep(1 / 120)
def born(client):
    pid = os.fork()
    if pid == 0:
        try:
            os.close(0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            torch.set_num_threads(1)
            look(client)
        finally:
            os._exit(1)
    return pid
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
named, every, life, due, killed, ends = {{}}, 0.0, 0.0, 0.0, 0, []
os.write(1, b"ready\\n")
while True:
    now = time.monotonic()
    while ends and ends[0][0] <= now:
        os.kill(ends.pop(0)[1], signal.SIGKILL)
        killed += 1
    if every and now >= due:
        due = now + every
        ends.append((now + life * random.uniform(0.3, 1.7), born("victim")))
        ends.sort()
    wait = min([due - now] if every else [60.0], default=60.0)
    wait = min([wait, *(end - now for end, _ in ends[:1])])
    if not select.select([0], [], [], max(0.0, wait))[0]:
        continue
    line = b""
    while not line.endswith(b"\\n") and (letter := os.read(0, 1)):  # unbuffered: select has to see what is left
        line += letter
    words = line.decode().split()
    if not words:
        break
    if words[0] == "churn":
        every, life = float(words[1]), float(words[2])
        if not every:
            for _, pid in ends:
                os.kill(pid, signal.SIGKILL)
            killed, ends = killed + len(ends), []
        os.write(1, f"killed {{killed}}\\n".encode())
    elif words[0] == "viewer":
        named[words[1]] = born(words[1])
        os.write(1, f"pid {{named[words[1]]}}\\n".encode())
for pid in [*named.values(), *(pid for _, pid in ends)]:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:  # it was killed by request
        pass
"""


class Crowd:
    """Viewers of everything that is published, as a context manager: none outlives it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", _SERVER.format(client="steady")], cwd=ROOT, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)
        self.late: list[tuple[float, int]] = []
        """What the viewer named "steady" told: milliseconds from publish to read, the middle of so many frames."""
        self._answer("ready")

    def viewer(self, name: str) -> int:
        """Start a viewer; its process id. The one that is named "steady" tells how late its frames come."""
        self._say("viewer", name)
        return int(self._answer("pid")[0])

    def churn(self, every: float, life: float = 1.0) -> int:
        """From now on start a viewer every so many seconds and kill it after 0.3 to 1.7 times `life` seconds; 0: kill
        those that there are, and start none. How many have been killed until now."""
        self._say("churn", str(every), str(life))
        return int(self._answer("killed")[0])

    def _say(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")

    def _answer(self, what: str) -> list[str]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *rest = line.split()
            if word == "late":
                self.late.append((float(rest[0]), int(rest[1])))
            elif word == what:
                return rest
        raise RuntimeError(f"whoever starts the viewers ended with {self._process.wait()}")

    def close(self) -> None:
        """Idempotent."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
            if self._process.stdout is not None:
                self._process.stdout.read()
                self._process.stdout.close()
            self._process.wait(30)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
