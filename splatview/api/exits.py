"""The end of this process, also where it is a child of multiprocessing, which skips `atexit` if it was forked."""

from __future__ import annotations

import atexit
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGES = "multiprocessing", "multiprocess"
"""The standard library's, and the fork of it that pickles with dill."""
_LAST = -100
"""Priority among the finalizers of multiprocessing: behind those of scripts, and of its own queues and pools."""


class ExitCall:
    """A call that is made at the end of this process."""

    def __init__(self, call: Callable[[], None]) -> None:
        """`call` may be made more than once, by any thread."""
        self._call = call
        self._finalizers: dict[str, Any] = {}
        """By package."""

    def register(self) -> None:
        """Have the call made before those that are registered until now, again where it was registered before."""
        atexit.unregister(self._call)
        atexit.register(self._call)
        for package in _PACKAGES:
            util = sys.modules.get(f"{package}.util")  # every child has it
            finalizer = self._finalizers.get(package)
            if util is None or (finalizer is not None and finalizer.still_active()):
                continue
            self._finalizers[package] = util.Finalize(
                None, self._finalize, exitpriority=_LAST
            )

    def _finalize(self) -> None:
        """Make the call in a forked child of multiprocessing, once its threads have ended, as interpreters wait for
        them before `atexit`.
        """
        if _atexit_follows():
            return
        if _threads():
            threading.Thread(target=self._call_last, name="splatview exit").start()
        else:
            self._call()

    def _call_last(self) -> None:
        while threads := _threads():
            for thread in threads:
                thread.join()
        self._call()


def _threads() -> list[threading.Thread]:
    """Return the threads that this process waits for before it ends."""
    not_waited_for = threading.main_thread(), threading.current_thread()
    return [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread not in not_waited_for
    ]


def _atexit_follows() -> bool:
    """Return whether the process goes on to `atexit` after the finalizers of multiprocessing, as all but forks do."""
    frame = sys._getframe()
    while frame is not None:
        module, _, file = frame.f_globals.get("__name__", "").partition(".")
        if module in _PACKAGES and file in ("popen_fork", "forkserver"):
            return False
        if module in _PACKAGES and file == "spawn":
            if frame.f_code.co_name == "spawn_main":
                return True
        frame = frame.f_back
    return True
