"""Temporary files are their owner's alone; what they become is for whom the user's new files are."""

from __future__ import annotations

import os


def share(path: str) -> None:
    """Give a file that was made as a temporary one the permissions of any new file. Raises OSError."""
    os.chmod(path, 0o666 & ~_umask())


def _umask() -> int:
    """What new files are not to be: where Linux tells it, without a moment in which it is another for all threads."""
    try:
        with open("/proc/self/status", encoding="ascii") as f:
            return next(int(line.split()[1], 8) for line in f if line.startswith("Umask:"))
    except (OSError, ValueError, IndexError, StopIteration):
        umask = os.umask(0)
        os.umask(umask)
        return umask
