"""Threads, descriptors and child programs that a test leaves open, with their origin.

`install` wraps the functions of Python that make them. What C libraries open for
themselves (drivers, ZeroMQ's threads, caches of shaders) is not recorded: it lasts as
long as the process.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.wait import polls

_ROOT = str(Path(__file__).resolve().parents[2])
_POOLS = ("encode_", "paint_")
"""Names of the threads of pools that all users in a process share, and that last as
long as it."""
_started: weakref.WeakKeyDictionary[threading.Thread | subprocess.Popen[Any], str] = (
    weakref.WeakKeyDictionary()
)
"""Threads and programs, and the line that started each."""
_descriptors: dict[int, tuple[tuple[int, int], str]] = {}
"""Device and inode of each descriptor made by Python, and the line that made it."""


def install() -> None:
    """Record the origin of each thread, program and descriptor from now on.

    Call it once a process.
    """
    _wrap(threading.Thread, "start", _record_started)
    _wrap(subprocess.Popen, "__init__", _record_started)
    _wrap(socket.socket, "__init__", _record_socket)
    _wrap(os, "pipe", _record_pair)
    _wrap(os, "pipe2", _record_pair)
    for name in ("open", "dup", "memfd_create", "eventfd", "pidfd_open"):
        _wrap(os, name, _record_one)
    close_descriptor = os.close

    def close(fd: int) -> None:
        # Eventfds and pidfds have one inode in common: forget the descriptor itself.
        _descriptors.pop(fd, None)
        close_descriptor(fd)

    os.close = functools.wraps(close_descriptor)(close)


def forget(program: subprocess.Popen[Any]) -> None:
    """Let a program last longer than the test that has started it."""
    _started.pop(program, None)


def _record_started(line: str, _: None, started: Any, *args: Any) -> None:
    _started[started] = line


def _record_socket(line: str, _: None, opened: socket.socket, *args: Any) -> None:
    _record(line, opened.fileno())


def _record_pair(line: str, fds: tuple[int, int], *args: Any) -> None:
    _record(line, *fds)


def _record_one(line: str, fd: int, *args: Any) -> None:
    _record(line, fd)


class OpenResources:
    """The threads, descriptors and programs of this process at one moment."""

    def __init__(self) -> None:
        self._started = set(_started)
        self._open = _open()

    def left(self) -> list[str]:
        """Describe what has come since then and is still there, with its origin."""
        descriptions = []
        for started, line in list(_started.items()):
            if started not in self._started and _lives(started):
                descriptions.append(f"{started!r}, started at {line}")
        for fd, identity in _open().items():
            recorded, line = _descriptors.get(fd, ((0, 0), ""))
            if identity == recorded and self._open.get(fd) != identity:
                descriptions.append(f"descriptor {fd}, opened at {line}")
        return descriptions

    def check(self) -> None:
        """Wait until nothing is left; AssertionError naming what is."""
        if not self.left():
            return
        gc.collect()
        try:
            for _ in polls():
                if not self.left():
                    return
        except AssertionError:
            raise AssertionError("left behind:\n" + "\n".join(self.left())) from None


def _lives(started: threading.Thread | subprocess.Popen[Any]) -> bool:
    if isinstance(started, threading.Thread):
        return started.is_alive() and not started.name.startswith(_POOLS)
    return started.poll() is None


def _wrap(owner: Any, name: str, record: Callable[..., None]) -> None:
    """Record the calls of a function: `record(line, result, *args)`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **options: Any) -> Any:
        line = _line()
        result = original(*args, **options)
        if line:
            record(line, result, *args)
        return result

    setattr(owner, name, wrapped)


def _line() -> str:
    """Return file and line of the innermost caller in this project."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if name.startswith(_ROOT) and "/.venv/" not in name and name != __file__:
            # Fixtures of a module or session end what they make later than the test
            # that came first.
            if name.endswith("/conftest.py"):
                return ""
            return f"{name.removeprefix(_ROOT + '/')}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _record(line: str, *fds: int) -> None:
    for fd in fds:
        status = os.fstat(fd)
        _descriptors[fd] = (status.st_dev, status.st_ino), line


def _open() -> dict[int, tuple[int, int]]:
    """Return device and inode of each open descriptor."""
    identities = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        # It may be closed meanwhile, or be the listing's own.
        with contextlib.suppress(OSError):
            status = os.fstat(fd)
            identities[fd] = status.st_dev, status.st_ino
    return identities


def living_pixels() -> int:
    """Return the texels of all of moderngl's textures in this process that were not
    released.
    """
    import moderngl

    textures = [o for o in gc.get_objects() if type(o) is moderngl.Texture]
    living = [t for t in textures if not isinstance(t.mglo, moderngl.InvalidObject)]
    return sum(texture.width * texture.height for texture in living)
