"""Memory that queued GPU work still uses, released later. No trainer waits."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_FINISH_PERIOD_S = 0.005
"""Period of the thread that releases what a run leaves behind."""
_FINISHER = "splatview retiring"
"""Name of that thread."""


class _Retired(NamedTuple):
    """Memory that waits to be released."""

    pid: int
    """The process that it belongs to."""
    is_idle: Callable[[], bool]
    free: Callable[[], None]


_retired: deque[_Retired] = deque()
"""An entry belongs to the thread that popped it, so no lock is needed: the garbage
collector may call `retire` at any line."""


def retire(is_idle: Callable[[], bool], free: Callable[[], None]) -> None:
    """Call `free()` in a later `release_idle`, once `is_idle()` returns True.

    Neither may raise. Any thread.
    """
    _retired.append(_Retired(os.getpid(), is_idle, free))


def release_idle() -> bool:
    """Release the memory that is idle; return True when nothing is left.

    Never waits. Any thread.
    """
    for _ in range(len(_retired)):
        try:
            entry = _retired.popleft()
        except IndexError:
            # Another thread took it.
            break
        if entry.pid != os.getpid():
            # This process was forked: the GPU's memory stays the parent's.
            continue
        if entry.is_idle():
            entry.free()
        else:
            _retired.append(entry)
    return not _retired


def release_all() -> None:
    """Release everything although no run calls `release_idle` any more.

    What a GPU still uses is released by a thread that ends with it.
    """
    if release_idle():
        return
    if any(thread.name == _FINISHER for thread in threading.enumerate()):
        return
    finisher = threading.Thread(target=_finish, name=_FINISHER, daemon=True)
    # Where no thread can be started, the next run releases the rest.
    with contextlib.suppress(RuntimeError):
        finisher.start()


def _finish() -> None:
    never = threading.Event()
    while not release_idle():
        never.wait(_FINISH_PERIOD_S)
