"""Exclude the objects of pytest and of imports, about a million, from garbage collections."""

from __future__ import annotations

import gc

unfreeze = gc.unfreeze
"""The function of the interpreter, which `freeze_for_good` replaces."""


def freeze_for_good() -> None:
    """Freeze all objects and disable `gc.unfreeze`: the viewer's loop calls it at its end, after which each full
    collection would take half a second."""
    gc.freeze()
    gc.unfreeze = lambda: None
