"""Memory that malloc keeps after it was freed, for what comes next."""

from __future__ import annotations

import ctypes
import functools
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def trim() -> None:
    """Release to the system what malloc keeps.

    Takes milliseconds; from any thread.

    glibc keeps freed blocks of up to 32 MB: pictures of large pages on their way
    through the encoders. Without effect where the C library is another one.
    """
    malloc_trim = _malloc_trim()
    if malloc_trim is not None:
        malloc_trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's function; None without one."""
    with suppress(OSError, AttributeError):
        malloc_trim = ctypes.CDLL(None).malloc_trim
        malloc_trim.argtypes = [ctypes.c_size_t]
        return malloc_trim
    return None
