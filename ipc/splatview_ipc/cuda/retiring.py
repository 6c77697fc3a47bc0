"""Memory that queued GPU work still uses, given back later, without a trainer waiting for it."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_waiting: deque[tuple[int, Callable[[], bool], Callable[[], None]]] = deque()
"""Process, condition, release. An entry belongs to the thread that popped it, so no lock is needed: the garbage
collector may call `retire` at any line."""


def retire(ready: Callable[[], bool], free: Callable[[], None]) -> None:
    """Call `free()` in a later `turn`, once `ready()` gives True. Neither may raise. Any thread."""
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
