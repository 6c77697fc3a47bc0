"""The million objects of pytest and of imports, which no garbage collection visits again."""

from __future__ import annotations

import gc

unfreeze = gc.unfreeze
"""The real one."""


def freeze_for_good() -> None:
    """Freeze all objects, also against the viewer's loop, which unfreezes at its end: each collection afterwards would
    take half a second."""
    gc.freeze()
    gc.unfreeze = lambda: None
