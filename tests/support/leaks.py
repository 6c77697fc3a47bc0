"""Threads, descriptors and child programs that a test leaves behind, each with the line that made it.

`install` wraps the functions of Python that make them. What C libraries open for themselves (drivers, ZeroMQ's threads,
caches of shaders) is not recorded: it lasts as long as the process.
"""

from __future__ import annotations

import functools
import gc
import os
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.wait import turns

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = str(Path(__file__).resolve().parents[2])
_POOLS = ("encode_", "paint_")
"""Names of the threads of pools that all users in a process share, and that last as long as it."""
_threads: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()
_programs: weakref.WeakKeyDictionary[subprocess.Popen[Any], str] = weakref.WeakKeyDictionary()
_descriptors: dict[int, tuple[tuple[int, int], str]] = {}
"""Device and inode of each descriptor made by Python, and the line that made it."""


def install() -> None:
    """Record the line that makes each thread, program and descriptor from now on. Call it once a process."""
    _after(threading.Thread, "start", lambda thread, line: _threads.__setitem__(thread, line))
    _after(subprocess.Popen, "__init__", lambda program, line: _programs.__setitem__(program, line))
    for name in ("open", "pipe", "pipe2", "dup", "memfd_create", "eventfd", "pidfd_open"):
        _wrap_os(name)
    _wrap_close()
    _after(socket.socket, "__init__", lambda made, line: _record(made.fileno(), line))


class Here:
    """The threads, descriptors and programs of this process at one moment."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._programs = {program for program in list(_programs) if program.poll() is None}
        self._descriptors = {fd: identity for fd in _open() if (identity := _identity(fd))}

    def left(self) -> list[str]:
        """Return what has come since then and is still there, in words, with the line that made it."""
        found = [f"thread {thread.name!r}, started at {_threads[thread]}" for thread in threading.enumerate()
                 if thread not in self._threads and thread in _threads and not thread.name.startswith(_POOLS)]
        found += [f"program {program.args!r}, started at {line}" for program, line in list(_programs.items())
                  if program not in self._programs and program.poll() is None]
        for fd in _open():
            identity, (known, line) = _identity(fd), _descriptors.get(fd, ((0, 0), ""))
            if identity and identity == known and self._descriptors.get(fd) != identity:
                found.append(f"descriptor {fd} ({_target(fd)}), opened at {line}")
        return found

    def check(self) -> None:
        """Wait until nothing is left; AssertionError naming what is."""
        if not self.left():
            return
        gc.collect()
        try:
            for _ in turns():
                if not self.left():
                    return
        except AssertionError:
            raise AssertionError("left behind:\n" + "\n".join(self.left())) from None


def _line() -> str:
    """Return file and line of the innermost caller in this project."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if name.startswith(_ROOT) and "/.venv/" not in name and name != __file__:
            # Fixtures of a module or session end what they make later than the test that came first.
            return "" if name.endswith("/conftest.py") else f"{name.removeprefix(_ROOT + '/')}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _after(owner: type, name: str, record: Callable[[Any, str], None]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        line = _line()
        result = plain(self, *args, **options)
        if line:
            record(self, line)
        return result

    setattr(owner, name, wrapped)


def _wrap_os(name: str) -> None:
    plain = getattr(os, name)

    @functools.wraps(plain)
    def wrapped(*args: Any, **options: Any) -> Any:
        made = plain(*args, **options)
        if line := _line():
            for fd in made if isinstance(made, tuple) else (made,):
                _record(fd, line)
        return made

    setattr(os, name, wrapped)


def _wrap_close() -> None:
    plain = os.close

    @functools.wraps(plain)
    def wrapped(fd: int) -> None:
        _descriptors.pop(fd, None)  # eventfds and pidfds have one inode in common
        plain(fd)

    os.close = wrapped


def _record(fd: int, line: str) -> None:
    identity = _identity(fd)
    if identity:
        _descriptors[fd] = identity, line


def _open() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(fd)
    except OSError:  # closed meanwhile, or the listing's own
        return None
    return found.st_dev, found.st_ino


def _target(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return "closed"
