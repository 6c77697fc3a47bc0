"""The module of the compiled kernel: `kernels()`, which waits until it is loaded: for half a second, or for three where
it has to be compiled, once for each user and version."""

from __future__ import annotations

import contextlib
import threading
from importlib import import_module
from typing import Any

from splatview_ipc.system.optional_packages import needed
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.kinds.snapshot import TIMELINE

_importing = threading.Lock()
"""Held while the kernel is imported, which the end of the program must not interrupt."""
_ended = False


def kernels() -> Any:
    """Return the module `kernels`. Blocks; for worker threads. Raises ViewerError."""
    with _importing:
        if _ended:
            raise ViewerError("the program ends before its kernels are loaded")
        try:
            with needed(TIMELINE, "numba", error=ViewerError):
                return import_module("splatview_viewer.kinds.snapshot.timeline.kernels")
        except RuntimeError as e:
            raise ViewerError(f"{e}; set NUMBA_CACHE_DIR to a folder that can be written to") from None


def warm_up() -> None:
    """Load the kernel ahead of its use, which reports the error if it cannot be loaded. Blocks. Idempotent."""
    with contextlib.suppress(ViewerError):
        kernels()


def end_loading() -> None:
    """Stop `kernels` from loading more, and wait for a load in progress. Call it at the end of the program.

    numba registers finalizers while it is imported. A thread that does so while Python runs the registered ones makes
    Python print a traceback.
    """
    global _ended
    with _importing:
        _ended = True
