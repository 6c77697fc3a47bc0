"""Starts the viewer with a user at it, in a process of its own, and talks to that user."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.gpu.clocks import until

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]


class Viewer:
    """`splatview serve` on a screen ("offscreen" or "window") with these options, as a context manager: it is ended on
    the way out."""

    def __init__(self, *options: str, size: tuple[int, int] = (1920, 1080), screen: str = "offscreen",
                 env: dict[str, str] | None = None, program: str = "benchmarks.gpu.driver") -> None:
        """program: `driver`, or a module that knows what it knows and more."""
        command = [sys.executable, "-m", program, "serve", f"--{screen}",
                   "--size", f"{size[0]}x{size[1]}", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                                        cwd=ROOT, env={**os.environ, **(env or {})})
        self.pid = self.process.pid
        self.seen: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        """What `watch` reports: {"rgb", "ns"} whenever the pixel in the middle changed."""
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name="viewer's answers", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    message = json.loads(line)
                    (self.seen if "seen" in message else self._answers).put(message)
        self._answers.put({"error": "the viewer ended"})

    def ask(self, do: str, *, timeout: float = 120.0, **arguments: Any) -> dict[str, Any]:
        """Send a command of `driver` and wait for its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        try:
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise RuntimeError(f"the viewer did not answer {do!r} within {timeout:g} s") from None
        if "error" in answer:
            raise RuntimeError(f"{do}: {answer['error']}")
        return answer

    def ready(self, meanwhile: Callable[[], object] | None = None, timeout: float = 240.0) -> dict[str, Any]:
        """Wait until it shows something, then hide the panel; `meanwhile` is what the trainer does. Its state."""
        end = time.monotonic() + timeout
        asked = 0.0
        while True:
            if time.monotonic() - asked > 0.25:
                state = self.ask("state", timeout=timeout)
                if state["shows"]:
                    print("  viewer:", ", ".join(state["path"]), *state["notes"], sep="; ", file=sys.stderr, flush=True)
                    if state["panel"]:
                        self.ask("key", name="h")  # the panel away: the picture fills the screen
                    until("the panel's end", lambda: not self.ask("state")["panel"], timeout, meanwhile)
                    return state
                if state["fault"]:
                    raise RuntimeError(f"the viewer cannot show it: {state['fault']}")
                asked = time.monotonic()
            if time.monotonic() > end:
                raise RuntimeError(f"the viewer showed nothing within {timeout:g} s")
            if meanwhile is not None:
                meanwhile()
            else:
                time.sleep(0.02)

    def pixel(self) -> tuple[int, int, int]:
        """RGB in the middle of what is drawn."""
        r, g, b = self.ask("pixel")["rgb"]
        return r, g, b

    def close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it may have ended
            self.process.stdin.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join(5)

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
