"""Letting go of an EGL context, which moderngl has no call for."""

from __future__ import annotations

import ctypes


def current_context() -> int:
    """The EGL context that this thread holds, as an opaque number; 0 for none."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return 0
    egl.eglGetCurrentContext.restype = ctypes.c_void_p
    return egl.eglGetCurrentContext() or 0


def let_go(context: int | None = None) -> None:
    """Hold no EGL context in this thread any more; with `context`, only if it is that one.

    A thread that holds one cannot make a GLX context current: Xlib would end the whole process (BadAccess).
    """
    held = current_context()
    if held and context in (None, held):
        ctypes.CDLL("libEGL.so.1").eglReleaseThread()
