"""The OpenGL version of a display or of EGL that is too old, for the error's words."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import glcontext

if TYPE_CHECKING:
    from collections.abc import Callable

NEEDED = "OpenGL 3.3"
_OLDER = (320, 310, 300, 210, 200, 110, 100)
"""Versions that are asked for, one after the other."""
_VERSION = 0x1F02
_RENDERER = 0x1F01
"""GL_VERSION and GL_RENDERER."""
_NEXT_STEP = (
    "update the graphics driver, or draw in software: LIBGL_ALWAYS_SOFTWARE=1, with "
    "Mesa 17 or later (apt-get install libgl1-mesa-dri)"
)


def too_old(whereabouts: str, offered: str, next_step: str = "") -> str:
    """Return the error's words.

    Args:
        offered: as `egl_version` returns it.
        next_step: comes before the others.
    """
    return (
        f"{NEEDED} or newer is needed, {whereabouts} offers {offered}: "
        f"{next_step}{_NEXT_STEP}"
    )


def egl_version(**settings: Any) -> str:
    """Return the version and the renderer that EGL offers.

    "" where it makes no context at all. `settings`: of glcontext's EGL backend.
    """
    create = glcontext.get_backend_by_name("egl")
    for version in _OLDER:
        try:
            context = create(mode="standalone", glversion=version, **settings)
        except Exception:
            # glcontext raises bare Exception.
            continue
        try:
            with context:
                return version_words(context.load)
        finally:
            context.release()
    return ""


def version_words(load: Callable[[str], int | None]) -> str:
    """Return the version and renderer of the current context.

    Args:
        load: finds the address of an OpenGL function.
    """
    address = load("glGetString")
    if not address:
        return ""
    get_string = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_uint)(address)
    version, renderer = (
        (get_string(name) or b"").decode("utf-8", "replace")
        for name in (_VERSION, _RENDERER)
    )
    if not version:
        return ""
    version_number, *_ = version.split(" ")
    return f"{version_number} ({renderer})"
