"""Whether kernels were compiled on this machine before. Importing this module does not import numba."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def kept(beside: str, module: str) -> bool:
    """Whether numba kept kernels of a module.

    Args:
        beside: a file in the module's folder.
        module: its name, without its package's.
    """
    python = f"py{sys.version_info[0]}{sys.version_info[1]}"
    pattern = f"{module}.*.{python}.nbi"  # as numba names what it keeps
    folder = Path(beside).parent
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "numba")
    own = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(own)] if own else [folder / "__pycache__", user]
    return any(True for place in places for _ in (*place.glob(pattern), *place.glob(f"{folder.name}_*/{pattern}")))
