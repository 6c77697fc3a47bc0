"""What a user sees of windows, and does to them: on the X display of the tests."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_long, c_ubyte, c_uint, c_ulong, c_void_p
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import ImageGrab

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENT_MESSAGE, _KEY_PRESS, _KEY_RELEASE = 33, 2, 3


class _ClientMessage(Structure):
    _fields_ = (("type", c_int), ("serial", c_ulong), ("send_event", c_int), ("display", c_void_p),
                ("window", c_ulong), ("message_type", c_ulong), ("format", c_int), ("data", c_long * 5))


class _KeyEvent(Structure):
    _fields_ = (("type", c_int), ("serial", c_ulong), ("send_event", c_int), ("display", c_void_p),
                ("window", c_ulong), ("root", c_ulong), ("subwindow", c_ulong), ("time", c_ulong), ("x", c_int),
                ("y", c_int), ("x_root", c_int), ("y_root", c_int), ("state", c_uint), ("keycode", c_uint),
                ("same_screen", c_int))


class _Event(ctypes.Union):
    _fields_ = (("message", _ClientMessage), ("key", _KeyEvent), ("room", c_long * 24))


_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "XOpenDisplay": (c_void_p, c_char_p), "XCloseDisplay": (c_int, c_void_p), "XSync": (c_int, c_void_p, c_int),
    "XDefaultRootWindow": (c_ulong, c_void_p), "XInternAtom": (c_ulong, c_void_p, c_char_p, c_int),
    "XQueryTree": (c_int, c_void_p, c_ulong, *([c_void_p] * 4)),
    "XFetchName": (c_int, c_void_p, c_ulong, c_void_p), "XFree": (c_int, c_void_p),
    "XSendEvent": (c_int, c_void_p, c_ulong, c_int, c_long, c_void_p),
    "XMoveWindow": (c_int, c_void_p, c_ulong, c_int, c_int),
    "XResizeWindow": (c_int, c_void_p, c_ulong, c_uint, c_uint),
    "XGetGeometry": (c_int, c_void_p, c_ulong, *([c_void_p] * 7)),
    "XTranslateCoordinates": (c_int, c_void_p, c_ulong, c_ulong, c_int, c_int, *([c_void_p] * 3)),
    "XStringToKeysym": (c_ulong, c_char_p), "XKeysymToKeycode": (c_ubyte, c_void_p, c_ulong),
}
"""Of Xlib, by name: the result's type, then the arguments'."""


@ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
def _passed_over(display: Any, event: Any) -> int:
    """Of Xlib's errors: a window that closes while it is being looked at would else end the process."""
    return 0


class Desktop:
    """The windows of a display, by their titles."""

    def __init__(self, display: str) -> None:
        self._name = display
        self._x: Any = ctypes.CDLL("libX11.so.6")
        for name, (result, *arguments) in _FUNCTIONS.items():
            function = getattr(self._x, name)
            function.restype, function.argtypes = result, arguments
        self._x.XSetErrorHandler(_passed_over)

    def shows(self, title: str) -> bool:
        """Whether there is a window with this title."""
        with self._open() as display:
            return self._find(display, title) is not None

    def picture(self, title: str) -> np.ndarray | None:
        """(H, W, 3) uint8: what is seen of a window on the screen; None while there is none."""
        with self._open() as display:
            window = self._find(display, title)
            if window is None:
                return None
            root, child, x, y = c_ulong(), c_ulong(), c_int(), c_int()
            width, height, border, depth = (c_uint() for _ in range(4))
            self._x.XGetGeometry(display, window, byref(root), byref(x), byref(y), byref(width), byref(height),
                                 byref(border), byref(depth))
            self._x.XTranslateCoordinates(display, window, root.value, 0, 0, byref(x), byref(y), byref(child))
            box = x.value, y.value, x.value + width.value, y.value + height.value
        return np.asarray(ImageGrab.grab(box, xdisplay=self._name).convert("RGB"))

    def close(self, title: str) -> None:
        """As the button in its frame does."""
        with self._open() as display:
            protocols = self._x.XInternAtom(display, b"WM_PROTOCOLS", 0)
            delete = self._x.XInternAtom(display, b"WM_DELETE_WINDOW", 0)
            window = self._there(display, title)
            event = _ClientMessage(_CLIENT_MESSAGE, 0, 1, display, window, protocols, 32, (c_long * 5)(delete))
            self._x.XSendEvent(display, window, 0, 0, byref(_Event(message=event)))

    def press(self, title: str, key: str) -> None:
        """Press and release a key, by its name in X."""
        with self._open() as display:
            code = self._x.XKeysymToKeycode(display, self._x.XStringToKeysym(key.encode()))
            window, root = self._there(display, title), self._x.XDefaultRootWindow(display)
            for kind in (_KEY_PRESS, _KEY_RELEASE):
                event = _KeyEvent(kind, 0, 1, display, window, root, 0, 0, 1, 1, 1, 1, 0, code, 1)
                self._x.XSendEvent(display, window, 0, 0, byref(_Event(key=event)))

    def place(self, title: str, x: int, y: int, size: tuple[int, int] | None = None) -> None:
        """Move a window, and give it another size."""
        with self._open() as display:
            window = self._there(display, title)
            self._x.XMoveWindow(display, window, x, y)
            if size is not None:
                self._x.XResizeWindow(display, window, *size)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        display = self._x.XOpenDisplay(os.fsencode(self._name))
        assert display, f"display {self._name} does not answer"
        try:
            yield display
            self._x.XSync(display, 0)
        finally:
            self._x.XCloseDisplay(display)

    def _there(self, display: Any, title: str) -> int:
        window = self._find(display, title)
        assert window is not None, f"no window {title!r}"
        return window

    def _find(self, display: Any, title: str) -> int | None:
        todo = [self._x.XDefaultRootWindow(display)]
        while todo:
            window = todo.pop()
            name = c_char_p()
            if self._x.XFetchName(display, window, byref(name)):
                found = name.value
                self._x.XFree(name)
                if found == title.encode():
                    return window
            root, parent, children, count = c_ulong(), c_ulong(), POINTER(c_ulong)(), c_uint()
            if self._x.XQueryTree(display, window, byref(root), byref(parent), byref(children), byref(count)):
                todo += children[: count.value]
                if children:
                    self._x.XFree(children)
        return None
