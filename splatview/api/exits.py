"""Calls at the end of this process, also where it is a child of multiprocessing.

Forked children of multiprocessing skip `atexit`.
"""

from __future__ import annotations

import atexit
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_PACKAGES = ("multiprocessing", "multiprocess")
"""The standard library's, and the fork of it that pickles with dill."""
_PRIORITY = -100
"""Priority among the finalizers of multiprocessing.

It comes after those of scripts, and of multiprocessing's own queues and pools.
"""


class ExitCall:
    """A call that is made at the end of this process."""

    def __init__(self, function: Callable[[], None]) -> None:
        """Note a function that may be called more than once, by any thread."""
        self._function = function
        self._finalizers: dict[str, Any] = {}
        """Finalizers by the package that made them."""

    def register(self) -> None:
        """Have the call made before those that are registered until now.

        It moves to the front where it was registered before.
        """
        atexit.unregister(self._function)
        atexit.register(self._function)
        for package in _PACKAGES:
            # Every child of the package has this module.
            util = sys.modules.get(f"{package}.util")
            finalizer = self._finalizers.get(package)
            is_registered = finalizer is not None and finalizer.still_active()
            if util is None or is_registered:
                continue
            self._finalizers[package] = util.Finalize(
                None, self._finalize, exitpriority=_PRIORITY
            )

    def _finalize(self) -> None:
        """Make the call in a forked child of multiprocessing.

        It comes once the child's threads have ended: interpreters wait for them before
        `atexit`.
        """
        if _atexit_follows():
            return
        if _running_threads():
            thread = threading.Thread(
                target=self._call_after_threads, name="splatview exit"
            )
            thread.start()
        else:
            self._function()

    def _call_after_threads(self) -> None:
        while threads := _running_threads():
            for thread in threads:
                thread.join()
        self._function()


def _running_threads() -> list[threading.Thread]:
    """Return the threads that this process waits for before it ends."""
    excluded = (threading.main_thread(), threading.current_thread())
    threads = threading.enumerate()
    return [t for t in threads if not t.daemon and t not in excluded]


def _atexit_follows() -> bool:
    """Return whether `atexit` comes after the finalizers of multiprocessing.

    It does in all processes but forks.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        module, _, file = frame.f_globals.get("__name__", "").partition(".")
        if module in _PACKAGES:
            if file in ("popen_fork", "forkserver"):
                return False
            if file == "spawn" and frame.f_code.co_name == "spawn_main":
                return True
        frame = frame.f_back
    return True
