"""Keys that are down when a window loses the keyboard: their end is told, so that nothing flies on for ever."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from splatview.viewer_app.events import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def finger(key: str) -> Iterator[None]:
    """A key of a real keyboard that is down, as far as X knows."""
    x, test = ctypes.CDLL("libX11.so.6"), ctypes.CDLL("libXtst.so.6")
    x.XOpenDisplay.restype, x.XStringToKeysym.restype = ctypes.c_void_p, ctypes.c_ulong
    x.XKeysymToKeycode.argtypes = [ctypes.c_void_p, ctypes.c_ulong]
    x.XFlush.argtypes = x.XCloseDisplay.argtypes = [ctypes.c_void_p]
    test.XTestFakeKeyEvent.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_ulong]
    display = x.XOpenDisplay(os.environ["DISPLAY"].encode())
    code = x.XKeysymToKeycode(display, x.XStringToKeysym(key.encode()))
    try:
        test.XTestFakeKeyEvent(display, code, 1, 0)
        x.XFlush(display)
        yield
    finally:
        test.XTestFakeKeyEvent(display, code, 0, 0)
        x.XFlush(display)
        x.XCloseDisplay(display)


@pytest.mark.display
@pytest.mark.skipif(ctypes.util.find_library("Xtst") is None, reason="libXtst presses keys: apt-get install libxtst6")
def test_a_window_that_loses_the_keyboard_lets_its_keys_go(display: str, wait_until: Callable[..., object]) -> None:
    import glfw

    from splatview.viewer_app.screens.window import WindowScreen

    first, second = WindowScreen(200, 100, vsync=False), WindowScreen(200, 100, vsync=False)
    heard: list[object] = []

    def hears(pressed: bool) -> bool:
        second.poll(0)
        heard.extend(first.poll(0.02))
        return any(isinstance(e, Key) and e.name == "w" and e.pressed is pressed for e in heard)

    def focus(screen: WindowScreen) -> None:
        glfw.focus_window(screen._window)
        wait_until(lambda: hears(True) or glfw.get_window_attrib(screen._window, glfw.FOCUSED), what="the keyboard")

    try:
        for _ in range(5):  # windows come up when they are drawn in
            for screen in (first, second):
                glfw.make_context_current(screen._window)
                screen.present()
                screen.poll(0.02)
        focus(first)
        with finger("w"):
            wait_until(lambda: hears(True), what="the key")
            glfw.focus_window(second._window)
            wait_until(lambda: hears(False), what="its end")
    finally:
        glfw.make_context_current(second._window)
        second.close()
        glfw.make_context_current(first._window)
        first.close()
