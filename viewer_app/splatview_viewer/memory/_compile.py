"""How kernels are compiled: once, for the types that they say, kept on disk."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview_viewer.memory._kept import kept_files, last_change
from splatview_viewer.memory._numba import DefaultOptions, FunctionCache, numba, types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WAIT = 60.0
"""Seconds to wait for another process that compiles the same module, before it is compiled here as well."""
must_keep = False
"""Raise RuntimeError where kernels cannot be kept on disk, instead of compiling them for this process alone."""
i32, i64, f64, void, boolean = types.int32, types.int64, types.float64, types.void, types.boolean


def read(dtype: Any) -> Any:
    """A vector that a kernel only reads; arrays that lie in a mapped file are read-only."""
    return types.Array(dtype, 1, "C", readonly=True)


def write(dtype: Any, ndim: int = 1) -> Any:
    """An array that a kernel writes."""
    return types.Array(dtype, ndim, "C")


def kernel(signature: Any, *, counted: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compiles for one signature, without the GIL, and keeps the result where this user may write.

    Args:
        counted: False for one that makes no arrays: references to those that it is given are not counted, which takes
            half of the time of kernels that hand many of them to their parts.
    """
    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        _forget_stale(Path(function.__code__.co_filename).parent)
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        if not counted and hasattr(DefaultOptions, "_nrt"):  # not a public option
            options["_nrt"] = False
        try:
            with _alone(function):
                return numba.njit(signature, cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error) or must_keep:
                raise
            # No folder can be written to: compile every time.
            return numba.njit(signature, **options)(function)
    return wrap


@contextlib.contextmanager
def _alone(function: Callable[..., Any]) -> Iterator[None]:
    """Hold the lock of a function's module beside its compiled kernels: processes that start at once where nothing is
    kept compile one after another, and each loads what the one before it compiled. Raises RuntimeError where numba
    has no folder for kernels."""
    folder = Path(FunctionCache(function).cache_path)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a lock saves time; without it, the result is the same
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{Path(function.__code__.co_filename).stem}.lock"
            fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, fd)
            _lock(fd)
        yield


def _lock(fd: int) -> None:
    """Lock a file, or give up after WAIT: the process that holds it may be stopped."""
    end = time.monotonic() + WAIT
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                return
            time.sleep(0.02)


@cache
def _forget_stale(folder: Path) -> None:
    """Remove kernels that were kept before a module of this folder changed: numba looks only at the module that a
    kernel is in, and not at those that its parts and constants come from."""
    changed = last_change(folder)
    for index in list(kept_files(folder, "*")):
        for kept in index.parent.glob(f"{glob.escape(index.stem)}.*"):  # the index and what it names
            with contextlib.suppress(OSError):  # another process may be at it too
                if kept.stat().st_mtime < changed:
                    kept.unlink()


def inline(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of kernels; compiled with each that uses it."""
    return numba.njit(nogil=True, error_model="numpy")(function)
