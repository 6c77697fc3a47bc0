"""Threads, descriptors and child programs that a test leaves behind, each with the line that made it.

`install` wraps the functions of Python that make them. What C libraries open for themselves (drivers, ZeroMQ's threads,
caches of shaders) is not recorded: it lasts as long as the process.
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

from support.wait import turns

_ROOT = str(Path(__file__).resolve().parents[2])
_POOLS = ("encode_", "paint_")
"""Names of the threads of pools that all users in a process share, and that last as long as it."""
_started: weakref.WeakKeyDictionary[threading.Thread | subprocess.Popen[Any], str] = (
    weakref.WeakKeyDictionary()
)
"""Threads and programs, and the line that started each."""
_descriptors: dict[int, tuple[tuple[int, int], str]] = {}
"""Device and inode of each descriptor made by Python, and the line that made it."""


def install() -> None:
    """Record the line that makes each thread, program and descriptor from now on. Call it once a process."""
    for owner, name in ((threading.Thread, "start"), (subprocess.Popen, "__init__")):
        _wrap(
            owner, name, lambda line, _, made, *more: _started.__setitem__(made, line)
        )
    _wrap(
        socket.socket,
        "__init__",
        lambda line, _, made, *more: _record(line, made.fileno()),
    )
    for name in (
        "open",
        "pipe",
        "pipe2",
        "dup",
        "memfd_create",
        "eventfd",
        "pidfd_open",
    ):
        _wrap(
            os,
            name,
            lambda line, made, *_: _record(
                line, *(made if isinstance(made, tuple) else (made,))
            ),
        )
    plain = os.close

    def close(fd: int) -> None:
        _descriptors.pop(fd, None)  # eventfds and pidfds have one inode in common
        plain(fd)

    os.close = functools.wraps(plain)(close)


class OpenResources:
    """The threads, descriptors and programs of this process at one moment."""

    def __init__(self) -> None:
        self._started, self._open = set(_started), _open()

    def left(self) -> list[str]:
        """Return what has come since then and is still there, in words, with the line that made it."""
        found = [
            f"{made!r}, started at {line}"
            for made, line in list(_started.items())
            if made not in self._started and _lives(made)
        ]
        for fd, identity in _open().items():
            known, line = _descriptors.get(fd, ((0, 0), ""))
            if identity == known and self._open.get(fd) != identity:
                found.append(f"descriptor {fd}, opened at {line}")
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


def _lives(made: threading.Thread | subprocess.Popen[Any]) -> bool:
    if isinstance(made, threading.Thread):
        return made.is_alive() and not made.name.startswith(_POOLS)
    return made.poll() is None


def _wrap(owner: Any, name: str, record: Callable[..., None]) -> None:
    """Have calls of a function recorded: `record(line, result, *args)`."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def wrapped(*args: Any, **options: Any) -> Any:
        line = _line()
        result = plain(*args, **options)
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
            # Fixtures of a module or session end what they make later than the test that came first.
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
    found = {}
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # closed meanwhile, or the listing's own
            status = os.fstat(fd)
            found[fd] = status.st_dev, status.st_ino
    return found


def living_pixels() -> int:
    """Return the texels of all of moderngl's textures in this process that were not released."""
    import moderngl

    textures = [o for o in gc.get_objects() if type(o) is moderngl.Texture]
    living = [t for t in textures if not isinstance(t.mglo, moderngl.InvalidObject)]
    return sum(texture.width * texture.height for texture in living)
