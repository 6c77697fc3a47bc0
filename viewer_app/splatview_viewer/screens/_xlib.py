"""What happens when the X server goes away: Xlib ends the process then, whatever the program wants."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

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
            with suppress(Exception):  # Xlib waits for nobody
                action(LOST)
        print(f"splatview: {LOST}", file=sys.stderr, flush=True)
        os._exit(2)  # Xlib would exit as well, by way of OpenGL's driver, which asks the display again

    _handler = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lost)  # type: ignore[arg-type]
    xlib.XSetIOErrorHandler.argtypes, xlib.XSetIOErrorHandler.restype = [ctypes.c_void_p], ctypes.c_void_p
    xlib.XSetIOErrorHandler(ctypes.cast(_handler, ctypes.c_void_p))
