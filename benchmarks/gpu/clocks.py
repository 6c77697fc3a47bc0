"""Times and their percentiles; clocks of threads, and of the GPU as OpenGL sees it."""

from __future__ import annotations

import ctypes
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

_TIMESTAMP, _QUERY_RESULT = 0x8E28, 0x8866


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def mid_and_p99(ns: Sequence[int], unit: float = 1e3) -> tuple[float, float]:
    """Median and 99th percentile of nanoseconds, in units of `unit` ns (default: microseconds)."""
    return statistics.median(ns) / unit, percentile(ns, 0.99) / unit


def thread_cpu_ns(threads: Sequence[threading.Thread]) -> int:
    """Processor time of these threads so far, in ns."""
    total = 0
    for thread in threads:
        if thread.ident is not None and thread.is_alive():
            total += time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
    return total


def until(what: str, condition: Callable[[], bool], timeout: float = 120.0,
          meanwhile: Callable[[], object] | None = None) -> None:
    """Wait for something, doing `meanwhile` again and again. Raises RuntimeError that names it after `timeout` s."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {timeout:g} s in vain: {what}")
        if meanwhile is not None:
            meanwhile()
        else:
            time.sleep(0.005)


class GlClock:
    """Marks in the GPU's own stream of OpenGL work: how long what lies between two of them took.

    Other than elapsed-time queries they may enclose code that has such queries of its own.
    """

    def __init__(self) -> None:
        """A context must be current."""
        egl = ctypes.CDLL("libEGL.so.1")
        egl.eglGetProcAddress.restype = ctypes.c_void_p
        egl.eglGetProcAddress.argtypes = [ctypes.c_char_p]

        def function(name: str, *arguments: type) -> Callable[..., None]:
            address = egl.eglGetProcAddress(name.encode())
            if not address:
                raise RuntimeError(f"OpenGL has no {name} here")
            return ctypes.CFUNCTYPE(None, *arguments)(address)

        word = ctypes.c_uint
        self._generate = function("glGenQueries", ctypes.c_int, ctypes.POINTER(word))
        self._counter = function("glQueryCounter", word, word)
        self._result = function("glGetQueryObjectui64v", word, word, ctypes.POINTER(ctypes.c_uint64))
        self._marks: list[int] = []
        self._free: list[int] = []

    def mark(self) -> None:
        if not self._free:
            names = (ctypes.c_uint * 64)()
            self._generate(64, names)
            self._free = list(names)
        query = self._free.pop()
        self._counter(query, _TIMESTAMP)
        self._marks.append(query)

    def read(self) -> list[int]:
        """All marks since the last call in ns, oldest first. Waits for the GPU."""
        times = []
        for query in self._marks:
            value = ctypes.c_uint64()
            self._result(query, _QUERY_RESULT, ctypes.byref(value))
            times.append(value.value)
        self._free += self._marks
        self._marks = []
        return times
