"""`glfw`, loaded from the library in its wheel.

By default, pyGLFW searches a dozen folders and starts a Python process for each library it finds. Naming the library
avoids that.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path


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

__all__ = ["glfw"]
