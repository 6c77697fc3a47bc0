"""The desktop's libraries: `glfw`, loaded from its wheel, and the end of the process when the X server ends.

By default, pyGLFW searches a dozen folders and starts a Python process for each library it finds. Naming the library
avoids that.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _bundled() -> Path | None:
    """Return the library in the installed wheel for this session's display server, if the wheel holds one."""
    spec = find_spec("glfw")
    if spec is None or spec.origin is None:
        return None
    wanted = os.environ.get("PYGLFW_LIBRARY_VARIANT", "").lower()
    wayland = wanted == "wayland" if wanted in ("wayland", "x11") else os.environ.get("XDG_SESSION_TYPE") == "wayland"
    library = Path(spec.origin).parent / ("wayland" if wayland else "x11") / "libglfw.so"
    return library if library.is_file() else None


if not os.environ.get("PYGLFW_LIBRARY") and (library := _bundled()) is not None:
    os.environ["PYGLFW_LIBRARY"] = str(library)

import glfw  # noqa: E402  (reads the variable)

__all__ = ["LOST", "forget", "glfw", "on_display_lost", "say_when_display_is_lost"]

_handler: Any = None
_last_words: list[Callable[[str], None]] = []
LOST = "the display has gone away: its X server has ended, or the connection to it"


def on_display_lost(action: Callable[[str], None]) -> None:
    """Have this called with the reason before the process ends for want of its display. It must be quick and may use
    neither OpenGL nor the display."""
    _last_words.append(action)


def forget(action: Callable[[str], None]) -> None:
    """Not any more."""
    with suppress(ValueError):
        _last_words.remove(action)


def say_when_display_is_lost() -> None:
    """From now on the process ends with a line that says why, and exit status 2. Without effect where there is no X."""
    global _handler
    if _handler is not None:
        return
    try:
        xlib = ctypes.CDLL("libX11.so.6")
    except OSError:
        return

    def lost(_: int) -> int:
        for action in list(_last_words):
            with suppress(Exception):  # Xlib ends the process anyway
                action(LOST)
        print(f"splatview: {LOST}", file=sys.stderr, flush=True)
        os._exit(2)  # Xlib would exit as well, by way of OpenGL's driver, which asks the display again

    _handler = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lost)  # type: ignore[arg-type]
    xlib.XSetIOErrorHandler.argtypes, xlib.XSetIOErrorHandler.restype = [ctypes.c_void_p], ctypes.c_void_p
    xlib.XSetIOErrorHandler(ctypes.cast(_handler, ctypes.c_void_p))
