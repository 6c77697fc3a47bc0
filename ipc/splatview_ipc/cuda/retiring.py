"""Memory that queued GPU work still uses, given back later, without a trainer waiting for it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FINISH_PERIOD_S = 0.005
"""Time between two looks of the thread that gives back what a run leaves behind."""

_waiting: deque[tuple[int, Callable[[], bool], Callable[[], None]]] = deque()
"""Process, condition, release. An entry belongs to the thread that popped it, so no lock is needed: the garbage
collector may call `retire` at any line."""


def retire(ready: Callable[[], bool], free: Callable[[], None]) -> None:
    """Call `free()` in a later `turn`, once `ready()` gives True. Neither may raise. Any thread."""
    _waiting.append((os.getpid(), ready, free))


def release_idle() -> bool:
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


def release_all() -> None:
    """Give everything back though no run takes turns any more: what a GPU still uses, in a thread that ends with it."""
    if release_idle() or any(t.name == _FINISHER for t in threading.enumerate()):
        return
    finisher = threading.Thread(target=_finish, name=_FINISHER, daemon=True)
    with contextlib.suppress(RuntimeError):  # no thread can be started: the next run's
        finisher.start()


_FINISHER = "splatview retiring"


def _finish() -> None:
    never = threading.Event()
    while not release_idle():
        never.wait(_FINISH_PERIOD_S)
