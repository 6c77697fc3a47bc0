"""The protocol of a screen: where the picture is seen.

A screen has an OpenGL 3.3 core context, a framebuffer to draw in and a queue of events. Only the thread that made it
uses it, except for `wake`. A turn of the viewer is: `poll`, draw into `framebuffer`, `present`.
`tests/viewer/screens/test_screens.py` runs one conformance suite over all implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.events import Event

MIN_SIZE = 16
"""A framebuffer is never smaller than this on a side."""
MAX_SIZE = 16384
_MOST_DRAWN = 8
"""Drawings of a picture until another is the same."""


@dataclass(frozen=True)
class Rect:
    """A part of the framebuffer in pixels, from the top left corner."""

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: float, y: float) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height

    def viewport(self, framebuffer_height: int) -> tuple[int, int, int, int]:
        """The same part for OpenGL, which counts rows from the bottom."""
        return (
            self.x,
            framebuffer_height - self.y - self.height,
            self.width,
            self.height,
        )


class Caption(msgspec.Struct, frozen=True, tag_field="t", tag="caption"):
    """Text around a picture; a browser's page gets it as it is."""

    title: str = "splatview"
    trouble: str = ""
    """A fault that the user should know of; "" for none."""
    typing: bool = False
    """A text field has the focus: a phone shows its keyboard."""


class ScreenState(NamedTuple):
    """One moment of a screen."""

    size: tuple[int, int]
    """Width and height in framebuffer pixels; both positive."""
    scale: float
    """Framebuffer pixels per point of the user interface; 2 on most HiDPI displays."""
    visible: bool
    """The picture can be seen; False for a minimised window."""
    ready: bool
    """It takes another picture now. One that is behind wakes the loop when that changes."""
    closed: bool
    """The user asked to close the screen, or `close` was called."""


class Desktop(Protocol):
    """The clipboard and the files of the person in front of a screen, who may be at another machine."""

    @property
    def shows_captions(self) -> bool:
        """A caption's trouble is shown around the picture, so that it need not be written over it."""
        ...

    def copy(self, text: str) -> None:
        """Put a text on the user's clipboard."""
        ...

    def pasted(self) -> str:
        """Return the text on the user's clipboard, as far as it is known here."""
        ...

    def keep(self, picture: np.ndarray, name: str) -> None:
        """Give the user a picture, (H, W, 3 or 4) uint8, top row first, as `name`.png: a file in the current folder, or
        a download. Raises FileError when that fails.
        """
        ...

    def hand_over(self, path: Path) -> None:
        """Give the user a file that was written on this machine. Folders and missing files are left out."""
        ...


class Screen(Protocol):
    ctx: moderngl.Context

    @property
    def desktop(self) -> Desktop:
        """The clipboard and the files of the person in front of it."""
        ...

    @property
    def state(self) -> ScreenState:
        """Size, scale and readiness now."""
        ...

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        """The target of the next picture. Ask again for every picture: a resize replaces it."""
        ...

    def poll(self, timeout: float) -> list[Event]:
        """Return the events since the last call, oldest first.

        Sleeps at most `timeout` seconds for the first one, less when `wake` is called. 0 does not sleep.
        """
        ...

    def wake(self) -> None:
        """End a `poll` that sleeps, or the next one. May be called from any thread."""
        ...

    def present(self, caption: Caption) -> None:
        """Show what was drawn, with this around it."""
        ...

    def close(self) -> None:
        """Release everything. Idempotent."""
        ...


def read_pixels(framebuffer: moderngl.Framebuffer) -> np.ndarray:
    """Return (H, W, 4) uint8, top row first: what a screen's framebuffer holds before `present`. Waits for the GPU."""
    width, height = framebuffer.size
    data = framebuffer.read(viewport=(0, 0, width, height), components=4, alignment=1)
    picture = np.frombuffer(data, np.uint8).reshape(height, width, 4)[::-1].copy()
    if framebuffer.glo == 0:
        _ = (
            framebuffer.ctx.error
        )  # moderngl names a buffer that a window does not have; the right one is read
        picture[..., 3] = 255  # a window is opaque whatever its buffer holds
    return picture


def settled_pixels(
    framebuffer: moderngl.Framebuffer, draw: Callable[[], object]
) -> np.ndarray:
    """Return `read_pixels` once `draw` draws the same again, or _MOST_DRAWN times: imgui lays a window out by the size
    of what was in it at the last drawing.
    """
    draw()
    drawn = read_pixels(framebuffer)
    for _ in range(_MOST_DRAWN - 1):
        draw()
        before = drawn
        drawn = read_pixels(framebuffer)
        if np.array_equal(before, drawn):
            break
    return drawn


def parse_size(text: str) -> tuple[int, int]:
    """Return (width, height) from a text like 1280x720. Raises ViewerError for anything else."""
    from splatview_viewer.core.errors import ViewerError

    width, x, height = text.lower().partition("x")
    if not (
        x
        and width.isascii()
        and width.isdigit()
        and height.isascii()
        and height.isdigit()
    ):
        raise ViewerError(f"size: {text!r} is not WIDTHxHEIGHT, such as 1280x720")
    size = int(width), int(height)
    if not all(MIN_SIZE <= n <= MAX_SIZE for n in size):
        raise ViewerError(
            f"size: {text} is out of range; both sides must be {MIN_SIZE} to {MAX_SIZE} pixels"
        )
    return size
