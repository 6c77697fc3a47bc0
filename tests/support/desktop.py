"""What a user sees of windows, and does to them: on the X display of the tests."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_long, c_uint, c_ulong, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import ImageGrab

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENT_MESSAGE = 33


class _ClientMessage(Structure):
    _fields_ = (("type", c_int), ("serial", c_ulong), ("send_event", c_int), ("display", c_void_p),
                ("window", c_ulong), ("message_type", c_ulong), ("format", c_int), ("data", c_long * 5),
                ("room", c_long * 12))


@ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
def _passed_over(display: Any, event: Any) -> int:
    """Of Xlib's errors: a window that closes while it is being looked at would else end the process."""
    return 0


class Desktop:
    """The windows of a display, by their titles."""

    def __init__(self, display: str) -> None:
        self._name = display
        self._x: Any = ctypes.CDLL("libX11.so.6")
        for name in ("XOpenDisplay", "XDefaultRootWindow", "XInternAtom"):
            getattr(self._x, name).restype = c_ulong
        self._x.XSetErrorHandler(_passed_over)

    def shows(self, title: str) -> bool:
        """Whether there is a window with this title."""
        with self._window(title) as (_, window):
            return window is not None

    def picture(self, title: str) -> np.ndarray | None:
        """(H, W, 3) uint8: what is seen of a window on the screen; None while there is none."""
        with self._window(title) as (display, window):
            if window is None:
                return None
            root, child, x, y = c_ulong(), c_ulong(), c_int(), c_int()
            width, height, border, depth = (c_uint() for _ in range(4))
            self._x.XGetGeometry(display, window, byref(root), byref(x), byref(y), byref(width), byref(height),
                                 byref(border), byref(depth))
            self._x.XTranslateCoordinates(display, window, root, 0, 0, byref(x), byref(y), byref(child))
        box = x.value, y.value, x.value + width.value, y.value + height.value
        return np.asarray(ImageGrab.grab(box, xdisplay=self._name).convert("RGB"))

    def close(self, title: str) -> None:
        """As the button in its frame does."""
        with self._window(title) as (display, window):
            assert window is not None, f"no window {title!r}"
            kind, delete = (self._x.XInternAtom(display, name, 0) for name in (b"WM_PROTOCOLS", b"WM_DELETE_WINDOW"))
            event = _ClientMessage(_CLIENT_MESSAGE, 0, 1, display.value, window.value, kind, 32, (c_long * 5)(delete))
            self._x.XSendEvent(display, window, 0, c_long(0), byref(event))

    def resize(self, title: str, width: int, height: int) -> None:
        with self._window(title) as (display, window):
            self._x.XResizeWindow(display, window, width, height)

    @contextmanager
    def _window(self, title: str) -> Iterator[tuple[c_ulong, c_ulong | None]]:
        """A connection to the display, and on it the window with a title."""
        display = c_ulong(self._x.XOpenDisplay(os.fsencode(self._name)))
        assert display.value, f"display {self._name} does not answer"
        todo, found = [self._x.XDefaultRootWindow(display)], None
        while todo and found is None:
            window, name = c_ulong(todo.pop()), c_char_p()
            if self._x.XFetchName(display, window, byref(name)) and name.value == title.encode():
                found = window
            root, parent, children, count = c_ulong(), c_ulong(), POINTER(c_ulong)(), c_uint()
            if self._x.XQueryTree(display, window, byref(root), byref(parent), byref(children), byref(count)):
                todo += children[: count.value]
        yield display, found
        self._x.XSync(display, 0)
        self._x.XCloseDisplay(display)
