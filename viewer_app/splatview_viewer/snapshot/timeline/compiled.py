"""The compiled kernel, and the threads that it runs in."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import Any

from splatview_ipc.system.optional_packages import needed
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.snapshot import TIMELINE

_MOST_THREADS = 8


@cache
def pool() -> ThreadPoolExecutor:
    """The threads that paint, for all views of the program. They import the kernel: the end of the program waits for
    them, which must not come in the middle of an import of numba's.
    """
    return ThreadPoolExecutor(
        min(os.cpu_count() or 1, _MOST_THREADS), thread_name_prefix="paint"
    )


def kernels() -> Any:
    """Return the module `kernels`, once it is loaded: in half a second, or in three where it has to be compiled, once
    for each user and version. Raises ViewerError.
    """
    try:
        with needed(TIMELINE, "numba", error=ViewerError):
            return import_module("splatview_viewer.snapshot.timeline.kernels")
    except RuntimeError as e:
        raise ViewerError(
            f"{e}; set NUMBA_CACHE_DIR to a folder that can be written to"
        ) from None
