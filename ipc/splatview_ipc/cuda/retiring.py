"""Memory that queued GPU work still uses, given back later, without a trainer waiting for it."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_S = 0.002

_waiting: deque[tuple[int, Callable[[], bool], Callable[[], None]]] = deque()
"""Process, condition, release. An entry belongs to the thread that popped it, so no lock is needed: the garbage
collector may call `retire` at any line."""


def retire(ready: Callable[[], bool], free: Callable[[], None]) -> None:
    """Call `free()` in a later `turn` or `settle`, once `ready()` gives True. Neither may raise. Any thread."""
    _waiting.append((os.getpid(), ready, free))


def turn() -> bool:
    """Give back what is ready; True when nothing is left. Never waits. Any thread."""
    for _ in range(len(_waiting)):
        try:
            entry = _waiting.popleft()
        except IndexError:  # another thread took it
            break
        pid, ready, free = entry
        if pid != os.getpid():  # a fork: the GPU's memory stays the parent's
            continue
        if ready():
            free()
        else:
            _waiting.append(entry)
    return not _waiting


def settle(timeout: float = 5.0) -> bool:
    """Wait until everything retired so far has been given back; False when that took longer than `timeout` seconds."""
    end = time.monotonic() + timeout
    while not turn():
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_S)
    return True
