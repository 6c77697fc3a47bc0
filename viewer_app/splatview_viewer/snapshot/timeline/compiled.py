"""Loads the compiled kernel, and holds the threads that it runs in."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any

from splatview_ipc.system.optional_packages import importing
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.snapshot import TIMELINE

_MAX_THREADS = 8
_loading = Lock()
"""Held while the kernel is loaded: what fails is not tried by every thread."""


@cache
def pool() -> ThreadPoolExecutor:
    """Return the threads that paint, for all views of the program.

    They import the kernel too: the end of the program waits for them, and must not come
    in the middle of an import of numba's.
    """
    thread_count = min(os.cpu_count() or 1, _MAX_THREADS)
    return ThreadPoolExecutor(thread_count, thread_name_prefix="paint")


def kernels() -> Any:
    """Return the module `kernels` once it is loaded.

    Loading takes half a second, or three where it is compiled: once for each user and
    version.

    Raises:
        ViewerError: numba is missing, or cannot store what it compiles.
    """
    with _loading:
        module, fault = _load()
    if fault:
        raise ViewerError(fault)
    return module


@cache
def _load() -> tuple[Any, str]:
    """Return the module `kernels`, or None and why what was compiled is not stored.

    It is not compiled once more for every picture that is asked for.

    Raises ViewerError where numba is missing.
    """
    try:
        with importing(TIMELINE, "numba", error=ViewerError):
            return import_module("splatview_viewer.snapshot.timeline.kernels"), ""
    except OSError as error:
        reason = f"what draws timelines cannot be stored: {error.strerror or error}"
    except RuntimeError as error:
        reason = str(error)
    return None, f"{reason}; set NUMBA_CACHE_DIR to a folder that can be written to"
