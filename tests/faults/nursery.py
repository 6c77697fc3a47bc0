"""Programs by the hundred, each forked in milliseconds (`forking`), to be killed, stopped and watched."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from forking import _PROGRAMS, environment, program_server, readable, server
from patience import PATIENCE

if TYPE_CHECKING:
    from forking import Forker
    from programs import Processes


class Child:
    """A program that the nursery started."""

    def __init__(self, forker: Forker, pid: int, watched: int, said: int):
        self.pid = pid
        self._forker = forker
        self._said, self._begun = said, b""
        self._watched = watched
        self._status: int | None = None

    def line(self, seconds: float = PATIENCE) -> str:
        """The next line that it prints, without its end; "" when it has ended. Raises TimeoutError."""
        while b"\n" not in self._begun and self._more(seconds):
            pass
        line, _, self._begun = self._begun.partition(b"\n")
        return line.decode()

    def rest(self) -> list[str]:
        """All lines to come, to its end. Raises TimeoutError when it says nothing for long and goes on."""
        while self._more(PATIENCE):
            pass
        rest, self._begun = self._begun, b""
        return rest.decode().splitlines()

    def _more(self, seconds: float) -> bool:
        """Wait for more of what it prints: False when there is no more to come."""
        if not readable(self._said, seconds):
            raise TimeoutError(f"process {self.pid} said nothing for {seconds} s, before that {self._begun!r}")
        more = os.read(self._said, 1 << 16)
        self._begun += more
        return bool(more)

    @property
    def alive(self) -> bool:
        return self._status is None and not readable(self._watched, 0.0)

    def signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._watched, number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """Wait for its end; what it exits with, None when it was killed. Raises TimeoutError."""
        if self._status is None:
            if not readable(self._watched, seconds):
                raise TimeoutError(f"process {self.pid} did not end within {seconds} s")
            self._status = self._forker.status(self.pid)
            os.close(self._watched)  # a module starts more programs than it may have open files
        return os.WEXITSTATUS(self._status) if os.WIFEXITED(self._status) else None

    def close(self) -> None:
        """End it, however it is, and forget it."""
        self.kill()
        os.close(self._said)


class Watcher:
    """Listens to a program that prints JSON, a line at a time, and knows what it said last."""

    def __init__(self, child: Child, **at_first: Any):
        """`at_first`: what counts as said before it has said anything."""
        self.child = child
        self.said: dict[str, Any] = at_first
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in iter(self.child.line, ""):
            self.said = json.loads(line)

    def close(self) -> None:
        self.child.kill()
        self._thread.join()


class Nursery:
    """Starts programs given as text: `with Nursery(processes) as nursery: child = nursery.start(source, *args)`.

    They are as `python -c` makes them, in process groups of their own. None outlives the nursery.
    """

    def __init__(self, processes: Processes, *modules: str):
        """`modules` are imported as well before anything is started, "splatview.viewer_app.app" for example. They must
        not begin threads. They run in the folder of `processes`."""
        # The server of splatview's programs has begun already in most workers: another takes seconds to load torch.
        loaded = bool(modules) and set(modules) <= set(_PROGRAMS)
        self._forker = program_server() if loaded else server(*modules)
        self._folder = str(processes.folder)
        self._children: list[Child] = []

    def start(self, source: str, *args: Any, **env: str) -> Child:
        """Start `source` with `args`, as text, and more variables of the environment."""
        read, write = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        try:
            pid, watched = self._forker.fork(source, [str(a) for a in args], [null, write, 2], environment(**env),
                                             self._folder, group=True)
        finally:
            os.close(write)
            os.close(null)
        child = Child(self._forker, pid, watched, read)
        self._children.append(child)
        return child

    def close(self) -> None:
        """End everything. Idempotent."""
        for child in self._children:
            child.close()
        self._children.clear()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def until(moment: float) -> None:
    """Sleep until time.monotonic() is `moment`, to a few microseconds: the last millisecond is waited for awake."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(max(0.0, left - 0.001))
