"""The protocol of a screen: where the picture is seen.

A screen owns an OpenGL 3.3 core context, a framebuffer to draw in and a queue of events. Only the thread that
made it uses it, except for `wake`. A turn of the viewer is: `poll`, draw into `framebuffer`, `present`.
`tests/app/test_screens.py` runs one conformance suite over all implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import moderngl
    import numpy as np

    from splatview_viewer.core.events import Event

MIN_SIZE = 16
"""A framebuffer is never smaller than this on a side."""
MAX_SIZE = 16384


@dataclass(frozen=True)
class Caption:
    """What the surroundings of a picture say."""

    title: str = "splatview"
    trouble: str = ""
    """What is wrong, for the user to know; "" where all is well."""
    typing: bool = False
    """Whether a text field has the focus: a phone shows its keyboard."""


class Screen(Protocol):
    name: ClassVar[str]
    says_trouble: ClassVar[bool]
    """Whether a caption's trouble is said around the picture, so that it need not be written over it."""
    ctx: moderngl.Context

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in framebuffer pixels; both positive."""
        ...

    @property
    def scale(self) -> float:
        """Framebuffer pixels per point of the user interface; 2 on most HiDPI displays."""
        ...

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        """Where the next picture is drawn. Ask again for every picture: a resize replaces it."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the user asked to close the screen, or `close` was called."""
        ...

    @property
    def visible(self) -> bool:
        """Whether anyone can see the picture; False for a minimised window."""
        ...

    @property
    def ready(self) -> bool:
        """Whether it takes another picture now. One that is behind says no, and wakes the loop when that changes."""
        ...

    def poll(self, timeout: float) -> list[Event]:
        """The events since the last call, oldest first.

        Sleeps at most `timeout` seconds for the first one, less when `wake` is called. 0 does not sleep.
        """
        ...

    def wake(self) -> None:
        """End a `poll` that sleeps, or the next one. May be called from any thread."""
        ...

    def present(self) -> None:
        """Show what was drawn."""
        ...

    def pixels(self) -> np.ndarray:
        """(H, W, 4) uint8, top row first: what is drawn in `framebuffer`. Call it before `present`."""
        ...

    def caption(self, caption: Caption) -> None:
        """Say this around the picture from now on. Cheap when it is what was said before."""
        ...

    def copy(self, text: str) -> None:
        """Put a text on the user's clipboard."""
        ...

    def clipboard(self) -> str:
        """The text on the user's clipboard, as far as it is known here."""
        ...

    def keep(self, picture: np.ndarray, name: str) -> None:
        """Hand the user a picture, (H, W, 3 or 4) uint8, top row first, to keep as `name`.png: a file in the current
        folder, or a download. Raises FileError when it cannot be written."""
        ...

    def hand_over(self, path: Path) -> None:
        """Give the user a file that was written on this machine, where they may be at another one. Folders, and what is
        not there, are left out."""
        ...

    def close(self) -> None:
        """Give back everything. Idempotent."""
        ...


def parse_size(text: str) -> tuple[int, int]:
    """(width, height) from a text like 1280x720. Raises ViewerError for anything else."""
    from splatview_viewer.core.errors import ViewerError

    width, x, height = text.lower().partition("x")
    if not (x and width.isascii() and width.isdigit() and height.isascii() and height.isdigit()):
        raise ViewerError(f"size: {text!r} is not WIDTHxHEIGHT, such as 1280x720")
    size = int(width), int(height)
    if not all(MIN_SIZE <= n <= MAX_SIZE for n in size):
        raise ViewerError(f"size: {text} is out of range; both sides must be {MIN_SIZE} to {MAX_SIZE} pixels")
    return size
