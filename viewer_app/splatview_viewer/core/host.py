"""The requests of a view to the program that shows it: a word to the user, a file to open, the clipboard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from splatview_viewer.core.memo import Memo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _nothing(_: object) -> None:
    """The default: no effect."""


@dataclass
class Host:
    """The user and the loop around a view. Defaults are no-ops."""

    say: Callable[[str], None] = _nothing
    """Tell the user something in one line, for a few seconds: that a file was written, and where."""
    open: Callable[[Path], None] = _nothing
    """Show a file in the place of what is shown."""
    pasted: Callable[[], str] = str
    """The text on the user's clipboard. (What imgui copies gets there by itself.)"""
    wake: Callable[[], None] = lambda: None
    """Have the loop turn soon. From any thread."""
    memo: Memo = field(default_factory=Memo)
    """Settings that are remembered for the next time."""
    scale: float = 1.0
    """Pixels per point."""
    exact: Literal["", "picture", "scene"] = ""
    """Something to keep is drawn: the picture, or the scene alone. Nothing may stand in for it. "": for the screen."""
    hand_over: Callable[[Path], None] = _nothing
    """Give the user a file that was written: a browser downloads it. Elsewhere it has no effect: say where it is."""
    again: Callable[[], None] = lambda: None
    """Send the newest value of what is shown once more."""
    name: str = ""
    """The name of what is shown: part of the names of what is remembered of it, and of files."""
