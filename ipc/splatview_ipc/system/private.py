"""Folders that are nobody's but their owner's."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def make_private(path: Path) -> None:
    """Make a folder, and those above it that are not there yet, for nobody but their owner (0700). `Path.mkdir` makes
    those above as open as the umask has it. One that is there stays as it is. Raises OSError."""
    if not path.parent.is_dir():
        make_private(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
