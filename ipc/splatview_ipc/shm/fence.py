"""The memory fence of the slot protocol."""

from __future__ import annotations

import platform
import threading

IS_WEAKLY_ORDERED = platform.machine() not in ("x86_64", "AMD64", "i686")
"""True where the processor may reorder stores (ARM), so that one lock is no fence.

On x86 others see stores in their order, but for those of large copies: a few words, or
a header, need no fence there.
"""
_thread_data = threading.local()
"""Holds the lock of each thread: a forked process then finds none of them taken."""


def full_fence() -> None:
    """Complete all memory accesses that come before it, then go on to those after it.

    Python has no fence, but taking and releasing a lock is one on x86. On ARM, one pair
    lets accesses slip into the critical section from both sides. Two pairs of the same
    lock do not, since a release is ordered before the acquire that follows it.
    """
    try:
        lock = _thread_data.lock
    except AttributeError:
        lock = threading.Lock()
        _thread_data.lock = lock
    with lock:
        pass
    if IS_WEAKLY_ORDERED:
        with lock:
            pass
