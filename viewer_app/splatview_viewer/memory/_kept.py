"""Kernels that numba keeps compiled on disk. Importing this module does not import numba."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def kept(beside: str, module: str) -> bool:
    """Return whether numba keeps kernels of a module, compiled from the code as it is.

    Args:
        beside: a file in the module's folder.
        module: its name, without its package's.
    """
    folder = Path(beside).parent
    changed = last_change(folder)
    return any(path.stat().st_mtime >= changed for path in kept_files(folder, module))


def kept_files(folder: Path, module: str) -> Iterator[Path]:
    """Return the index files of kernels of a module in this folder; "*": of all modules."""
    # numba's names, of numba.core.caching.
    pattern = f"{module}.*.py{sys.version_info[0]}{sys.version_info[1]}.nbi"
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "numba")
    below = f"{folder.name}_{hashlib.sha1(os.path.abspath(folder).encode()).hexdigest()}"
    own = os.environ.get("NUMBA_CACHE_DIR")
    for place in [Path(own, below)] if own else [folder / "__pycache__", user / below]:
        yield from place.glob(pattern)


def last_change(folder: Path) -> float:
    """Return when a module of this folder changed last: kernels that were compiled before are stale, since they hold
    parts and constants of other modules."""
    return max((path.stat().st_mtime for path in folder.glob("*.py")), default=0.0)
