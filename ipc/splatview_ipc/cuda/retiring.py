"""Giving memory back when the GPU is through with it, without a trainer waiting for that.

Memory that queued work still uses cannot be unmapped, and the thread that lets go of it is often the one that trains.
It hands the last steps over to a short-lived thread here.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 30.0
"""Seconds that the thread waits for a GPU; what is not free by then waits for the next retirement, or for the end."""
_AT_EXIT = 1.0
"""Seconds to wait when the process ends."""

_lock = threading.Lock()
_waiting: list[tuple[Callable[[], bool], Callable[[], None]]] = []
_thread: threading.Thread | None = None


def retire(ready: Callable[[], bool], free: Callable[[], None]) -> None:
    """Call `free()` soon after `ready()` gives True, on another thread. Neither may raise.

    Returns at once, but for when the process is ending: then after a second at most.
    """
    global _thread
    ending = not threading.main_thread().is_alive()  # a thread started now would be cut off in the middle
    with _lock:
        _waiting.append((ready, free))
        if _thread is None or not _thread.is_alive():
            _thread = None
            if not ending:
                _thread = threading.Thread(target=_work, name="splatview-retiring", daemon=True)
                _thread.start()
        running = _thread is not None
    if ending and running:
        settle(_AT_EXIT)
    elif ending:
        _work(_AT_EXIT)


def settle(timeout: float = 5.0) -> bool:
    """Wait until everything retired so far has been given back; False when that took longer than `timeout` seconds."""
    end = time.monotonic() + timeout
    while True:
        with _lock:
            if not _waiting:
                return True
        if time.monotonic() > end:
            return False
        time.sleep(0.002)


def _work(patience: float = _PATIENCE) -> None:
    global _thread
    end = time.monotonic() + patience
    pause = 0.001
    while True:
        with _lock:
            items = list(_waiting)
        freed = [item for item in items if item[0]()]
        for item in freed:
            item[1]()
        with _lock:
            for item in freed:
                _waiting.remove(item)
            if not _waiting or time.monotonic() > end:
                _thread = None  # under the lock: whoever retires something from now on starts another
                return
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _after_fork_in_child() -> None:
    """The GPU's memory stays the parent's."""
    global _lock, _thread
    _lock, _thread = threading.Lock(), None
    _waiting.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
