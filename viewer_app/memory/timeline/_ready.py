"""Whether the compiled kernels are there, and who does their work for short traces until then: another program that has
loaded them sooner (`_child`), or plain numpy (`_plain`)."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from functools import partial
from typing import Any

from splatview.viewer_app.memory._kept import kept
from splatview.viewer_app.memory.loading import machine
from splatview.viewer_app.memory.timeline._child import PAINTERS, ChildError, Painter

SHORT = 100_000
"""Events, at most, of traces that are laid out and painted without compiled kernels rather than late."""
PATIENCE, COLD = 2.5, 0.3
"""Seconds for which kernels are waited for that were compiled before, and where they seem to be compiled just now: once
on each machine, which takes ten times as long as loading them."""
MODULES = ("_index_kernels", "_bands_kernel", "_addresses_kernels", "_canvas_kernels")
_begun: float | None = None
_done = threading.Event()
_lock = threading.Lock()
_painter: Painter | None = None


def _patience() -> float:
    return PATIENCE if kept(__file__, MODULES[1]) else COLD


def expect_kernels() -> None:
    """Says that `warm_up` is about to be called by another thread: until it is done, short traces are worked on in
    plain numpy, if it takes long; longer ones wait."""
    global _begun
    with _lock:
        if _begun is None:
            _begun = time.monotonic()


def start_painter() -> None:
    """Has another program load the kernels, and paint short traces until `warm_up` is done, which then waits for the
    first picture: for a window that is about to be opened with a short trace.

    Does nothing where the kernels have to be compiled, or where there is one processor."""
    global _painter
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if processors < 2 or _done.is_set() or not all(kept(__file__, name) for name in MODULES):
        return
    expect_kernels()
    with _lock, contextlib.suppress(OSError):  # without another program it takes longer
        if _painter is None:
            _painter = Painter(PATIENCE)


def painter_is_used() -> bool:
    """Whether another program paints; whoever started it calls `warm_up` too."""
    return _painter is not None


def warm_up() -> None:
    """Makes the kernels ready, on a worker thread while something else is waited for.

    What has not been made ready when it is needed is made ready then, so this need not be called."""
    global _painter
    expect_kernels()
    if (painter := _painter) is not None:
        painter.wait_for_picture()
    try:
        for name in MODULES:
            importlib.import_module(f"{__package__}.{name}")
    finally:
        _done.set()
        if painter is not None:
            _painter = None
            painter.close()
    if kept(__file__, MODULES[1]) and not kept(machine.__file__, machine.KERNEL):  # for the next long file that is read
        importlib.import_module(f"{machine.__package__}.{machine.KERNEL}")


def function(module: str, name: str, events: int) -> Any:
    """A kernel of one of MODULES, for a trace of so many events, or what stands in for it."""
    if _begun is None or events > SHORT or _done.is_set():
        return _kernel(module, name)
    if (painter := _painter) is None:
        return _soon(module, name)
    return partial(_by_painter, painter, module, name) if name in PAINTERS else _kernel("_plain", name)


def _kernel(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)


def _soon(module: str, name: str) -> Any:
    """The kernel, if it is ready before long."""
    begun = _begun or time.monotonic()
    ready = _done.is_set() or _done.wait(max(begun + _patience() - time.monotonic(), 0.0))
    return _kernel(module if ready else "_plain", name)


def _by_painter(painter: Painter, module: str, name: str, *args: Any) -> None:
    try:
        painter.paint(name, args)
    except ChildError:
        _soon(module, name)(*args)
