"""GLFW, loaded from its wheel.

By default, pyGLFW searches a dozen folders and starts a Python process for each library
that it finds. Naming the library avoids that.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

__all__ = ["glfw"]


def _bundled() -> Path | None:
    """Return the library in the installed wheel for this session's display server.

    None where the wheel holds none.
    """
    spec = find_spec("glfw")
    if spec is None or spec.origin is None:
        return None
    variant = os.environ.get("PYGLFW_LIBRARY_VARIANT", "").lower()
    if variant not in ("wayland", "x11"):
        is_wayland = os.environ.get("XDG_SESSION_TYPE") == "wayland"
        variant = "x11"
        if is_wayland:
            variant = "wayland"
    library = Path(spec.origin).parent / variant / "libglfw.so"
    if not library.is_file():
        return None
    return library


if not os.environ.get("PYGLFW_LIBRARY"):
    library = _bundled()
    if library is not None:
        os.environ["PYGLFW_LIBRARY"] = str(library)

# glfw reads the variable.
import glfw  # noqa: E402
