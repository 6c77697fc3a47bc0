"""Programs by the hundred, each forked in milliseconds (`forking`), to be killed, stopped and watched."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

from forking import ForkServer, environment, server
from patience import PATIENCE

if TYPE_CHECKING:
    from programs import Processes


class Child:
    """A program that the nursery started."""

    def __init__(self, forker: ForkServer, pid: int, watched: int, said: int):
        self.pid = pid
        self._forker = forker
        self._said = os.fdopen(said, "r", encoding="utf-8")
        self._watched = watched
        self._status: int | None = None

    def line(self) -> str:
        """The next line that it prints, without its end; "" when it has ended."""
        return self._said.readline().rstrip("\n")

    def rest(self) -> list[str]:
        """All lines to come, to its end."""
        return self._said.read().splitlines()

    @property
    def alive(self) -> bool:
        return not select.select([self._watched], [], [], 0)[0]

    def signal(self, number: int) -> None:
        """Nothing happens when it has ended."""
        try:
            signal.pidfd_send_signal(self._watched, number)
        except ProcessLookupError:
            pass

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """Wait for its end; what it exits with, None when it was killed. Raises TimeoutError."""
        if not select.select([self._watched], [], [], seconds)[0]:
            raise TimeoutError(f"process {self.pid} did not end within {seconds} s")
        if self._status is None:
            self._status = self._forker.status(self.pid)
        return os.WEXITSTATUS(self._status) if os.WIFEXITED(self._status) else None

    def close(self) -> None:
        """End it, however it is, and forget it."""
        self.kill()
        self._said.close()
        os.close(self._watched)


class Nursery:
    """Starts programs given as text: `with Nursery(processes) as nursery: child = nursery.start(source, *args)`.

    They are as `python -c` makes them, in process groups of their own. None outlives the nursery.
    """

    def __init__(self, processes: Processes, *modules: str):
        """`modules` are imported as well before anything is started, "viewer_app.app" for example. They must not begin
        threads. They run in the folder of `processes`."""
        self._own = ForkServer(*modules) if modules else None
        self._forker = self._own or server()
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
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def until(moment: float) -> None:
    """Sleep until time.monotonic() is `moment`, to a few microseconds: the last millisecond is waited for awake."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(max(0.0, left - 0.001))
