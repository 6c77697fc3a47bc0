"""Pictures that functions of this script draw for viewers while it waits."""

from __future__ import annotations

import sys
import threading
from typing import Any

DRAW_PERIOD_S = 0.01
"""Seconds between two looks at the viewers' requests."""


def draw_while_waiting() -> None:
    """Have the script's own functions draw a picture that a viewer waits for."""
    renderer = _renderer_module()
    if renderer is not None:
        renderer.draw_while_paused()


def draws_here() -> bool:
    """Return whether functions of this script draw in this thread."""
    renderer = _renderer_module()
    return renderer is not None and renderer.drawing_thread == threading.get_ident()


def _renderer_module() -> Any:
    """Return the module that calls the functions; None where a script has none.

    Such a script need not load it.
    """
    return sys.modules.get("splatview.api.renderer")
