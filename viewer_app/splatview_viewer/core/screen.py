"""The protocol of a screen: a picture, the events over it, and the user's desktop.

A screen has an OpenGL 3.3 core context, a framebuffer to draw in and a queue of events;
a remote one has another framebuffer for the interface, which is sent apart.
Only the thread that made it uses it, except for `wake`. A turn of the viewer is:
`poll`, draw into `framebuffer`, `present`. `tests/viewer/screens/test_screens.py` runs
one conformance suite over all implementations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import moderngl
    import torch

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.handed import HandedOn
    from splatview_viewer.core.settings import Color

MIN_SIZE = 16
"""A framebuffer is never smaller than this on a side."""
MAX_SIZE = 16384
_MAX_DRAWINGS = 8
"""Drawings of a picture until two are the same."""


@dataclass(frozen=True)
class Rect:
    """A part of the framebuffer in pixels, from the top left corner."""

    x: int
    y: int
    width: int
    height: int

    def contains(self, x: float, y: float) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height

    def lies_in(self, size: tuple[int, int]) -> bool:
        """Return whether all of it is part of a framebuffer of this size."""
        width, height = size
        is_begun_inside = self.x >= 0 and self.y >= 0
        is_ended_inside = (
            self.x + self.width <= width and self.y + self.height <= height
        )
        return is_begun_inside and is_ended_inside

    def viewport(self, framebuffer_height: int) -> tuple[int, int, int, int]:
        """Return the same part for OpenGL, which counts rows from the bottom."""
        bottom = framebuffer_height - self.y - self.height
        return self.x, bottom, self.width, self.height


def clear_rect(framebuffer: moderngl.Framebuffer, rect: Rect, color: Color) -> None:
    """Fill a part of a framebuffer with a colour, and leave the framebuffer bound.

    color: RGB in [0, 1].
    """
    framebuffer.use()
    framebuffer.clear(*color, 1.0, viewport=rect.viewport(framebuffer.height))


class Pane(NamedTuple):
    """The rectangle of one picture on a screen."""

    number: int
    """The same as long as the pane is open."""
    rect: Rect


KeysOwner = Literal["picture", "control", "popup"]
"""Takes keys that are no text. A control has only those that go from one to the next; a
popup has all, and presses and the wheel as well."""


class Caption(msgspec.Struct, frozen=True, tag_field="t", tag="caption"):
    """Text around a picture; a browser's page gets it as it is."""

    title: str = "splatview"
    trouble: str = ""
    """A fault that the user should know of; "" for none."""
    typing: bool = False
    """A text field has the focus: a phone shows its keyboard."""
    light: bool = False
    """The interface is light."""
    corner: Rect | None = None
    """The part of a scene's picture in whose lower right corner nothing lies, so that a
    page may say there who draws; None: there is no such part."""
    keys: KeysOwner = "picture"


class SceneDrawing(NamedTuple):
    """The drawing of scenes by a screen itself, as it says."""

    is_on: bool
    """It draws those that views hand on."""
    is_possible: bool
    """It would, if its user chose that."""
    reason: str = ""
    """Why it does not draw, in a sentence for users; "" where they chose so."""


class ScreenState(NamedTuple):
    """The state of a screen at one time."""

    size: tuple[int, int]
    """Width and height in framebuffer pixels; both positive."""
    scale: float
    """Framebuffer pixels per point of the user interface; 2 on most HiDPI displays."""
    visible: bool
    """The picture can be seen; False for a minimised window."""
    ready: bool
    """It takes another picture now. One that is behind wakes the loop when that
    changes."""
    closed: bool
    """The user asked to close the screen, or `close` was called."""
    latency_ms: float | None = None
    """From what the user did to the picture that shows it, where that takes a while;
    None: unknown."""
    drawing: SceneDrawing | None = None
    """None: it never draws scenes by itself, as a window, or has not said so yet."""


Favour = Literal["fullscreen", "keyboard", "files", "draw_here", "draw_there"]
"""What a screen can do beside showing pictures: fill the monitor, or stop that; show a
phone's keyboard; have its user choose files, which are opened; draw scenes by itself,
or have pictures of them."""


class Desktop(Protocol):
    """The clipboard and the files of a screen's user, who may be at another machine."""

    @property
    def favours(self) -> frozenset[Favour]:
        """Return what can be asked of it."""
        ...

    def ask(self, favour: Favour) -> None:
        """Have the screen do this; nothing happens where it cannot."""
        ...

    @property
    def is_full(self) -> bool:
        """True while the screen fills the monitor."""
        ...

    def leave_full(self) -> None:
        """Stop filling the monitor, unless the key Escape does that by itself."""
        ...

    def copy(self, text: str) -> None:
        """Put a text on the user's clipboard."""
        ...

    def pasted(self) -> str:
        """Return the text on the user's clipboard, as far as it is known here."""
        ...

    def keep(self, picture: np.ndarray, name: str) -> Path | None:
        """Give the user a picture as `name`.png: a file, or a download.

        Args:
            picture: (H, W, 3 or 4) uint8, top row first.
            name: the name of the file, which is written into the current folder.

        Returns:
            The path of the file; None for a download, of which the browser tells.

        Raises:
            FileError: the file cannot be written.
        """
        ...

    def hand_over(self, path: Path) -> None:
        """Give the user a file of this machine.

        Folders and missing files are left out.
        """
        ...


class InterfaceLayer(Protocol):
    """The layer of a remote screen that the interface is drawn in, over its pictures.

    It is exact and comes first; pictures follow as the line and the processors can.
    """

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        """The target of the interface: premultiplied, and clear where pictures are."""
        ...

    @property
    def takes_pictures(self) -> bool:
        """True if pictures are taken now as well. Where that changes, the loop wakes."""
        ...

    def present(
        self, caption: Caption, panes: Sequence[Pane], *, answers: bool
    ) -> None:
        """Show the interface that was drawn around these panes, with a caption.

        `answers`: it shows what the user did last; otherwise the next pictures do.
        """
        ...

    def present_pictures(
        self, panes: Sequence[Pane], *, answers: bool, is_next_begun: bool = False
    ) -> int:
        """Show the pictures that were drawn into the screen's framebuffer.

        Args:
            panes: that they show.
            answers: they show what the user did.
            is_next_begun: others are begun, which show all that the user did until
                now; these ones only what they were begun with.

        Returns:
            Their number, which grows.
        """
        ...

    @property
    def sent_pictures(self) -> int:
        """The number of the last pictures that were sent.

        What is presented from now on comes after them. Where it changes, the loop
        wakes.
        """
        ...


class PictureIntake(Protocol):
    """The way in for pictures that CUDA drew, past the framebuffer of a screen."""

    @property
    def gpu(self) -> int | None:
        """CUDA's ordinal of the GPU whose pictures are taken; None: of any."""
        ...

    def put(
        self,
        pixels: torch.Tensor,
        rect: Rect,
        cover: Callable[[moderngl.Framebuffer], object] | None = None,
    ) -> None:
        """Have the next `present` show this, in place of what was drawn in `rect`.

        It counts until the framebuffer is asked for: to draw another picture, or to
        read this one, which lies in it by then.

        Args:
            pixels: uint8 (height, width, 3), top row first, for what torch's current
                stream does next; never written again.
            rect: where it lies, inside the framebuffer.
            cover: draws what lies over it, once someone reads the framebuffer; None:
                nothing does.
        """
        ...


class HandedPane(NamedTuple):
    """A pane, and what its view hands on."""

    number: int
    handed: HandedOn


class SceneIntake(Protocol):
    """The way in for scenes that a screen draws by itself."""

    def put(self, panes: Sequence[HandedPane]) -> None:
        """Have the screen draw these panes, as far as they are handed on, and no others.

        It goes on until the next call. Cheap where nothing has changed.
        """
        ...


class Screen(Protocol):
    """A window, a browser's page, or a picture that is drawn for a program."""

    ctx: moderngl.Context

    @property
    def desktop(self) -> Desktop:
        """The clipboard and the files of its user."""
        ...

    @property
    def state(self) -> ScreenState:
        """Size, scale and readiness now."""
        ...

    @property
    def framebuffer(self) -> moderngl.Framebuffer:
        """The target of the next picture.

        Ask for it for every picture: a resize replaces it.
        """
        ...

    @property
    def interface(self) -> InterfaceLayer | None:
        """The layer of the interface; None: it is drawn over the pictures."""
        ...

    @property
    def device_pictures(self) -> PictureIntake | None:
        """The way in for pictures that CUDA drew; None: the framebuffer alone is shown."""
        ...

    @property
    def scenes(self) -> SceneIntake | None:
        """The way in for scenes that it draws by itself; None while it draws none."""
        ...

    @property
    def has_events(self) -> bool:
        """True if the next `poll` is known to return events. Cheap."""
        ...

    def poll(self, timeout: float) -> list[Event]:
        """Return the events since the last call, oldest first.

        Sleeps at most `timeout` seconds for the first one, less when `wake` is called.
        0 does not sleep.
        """
        ...

    def wake(self) -> None:
        """End a `poll` that sleeps, or the next one. May be called from any thread."""
        ...

    def present(self, caption: Caption) -> None:
        """Show the picture that was drawn, with a caption around it."""
        ...

    def close(self) -> None:
        """Release everything. Idempotent."""
        ...


def takes_pictures(screen: Screen) -> bool:
    """Return True if a screen would show pictures now."""
    state = screen.state
    ready = state.ready
    if screen.interface is not None:
        ready = screen.interface.takes_pictures
    return state.visible and ready


def read_pixels(framebuffer: moderngl.Framebuffer) -> np.ndarray:
    """Return a framebuffer's pixels, (H, W, 4) uint8, top row first. Waits for the GPU.

    For a screen's framebuffer, to be called before `present`.
    """
    width, height = framebuffer.size
    data = framebuffer.read(viewport=(0, 0, width, height), components=4, alignment=1)
    picture = np.frombuffer(data, np.uint8).reshape(height, width, 4)[::-1].copy()
    is_window = framebuffer.glo == 0
    if is_window:
        # moderngl names a buffer that a window does not have, which leaves an error;
        # the right one is read.
        _ = framebuffer.ctx.error
        # A window is opaque whatever its buffer holds.
        picture[..., 3] = 255
    return picture


def settled_pixels(
    framebuffer: moderngl.Framebuffer, draw: Callable[[], object]
) -> np.ndarray:
    """Draw until a picture is the same as the last, and return `read_pixels` of it.

    imgui lays a window out by the size of what was in it at the last drawing. At most
    _MAX_DRAWINGS are made.
    """
    draw()
    pixels = read_pixels(framebuffer)
    for _ in range(_MAX_DRAWINGS - 1):
        draw()
        previous = pixels
        pixels = read_pixels(framebuffer)
        if np.array_equal(previous, pixels):
            break
    return pixels


def parse_size(text: str) -> tuple[int, int]:
    """Return (width, height) from a text like 1280x720.

    Raises ViewerError otherwise.
    """
    from splatview_viewer.core.errors import ViewerError

    sides = text.lower().split("x", maxsplit=1)
    are_numbers = all(side.isascii() and side.isdigit() for side in sides)
    if len(sides) != 2 or not are_numbers:
        raise ViewerError(f"size: {text!r} is not WIDTHxHEIGHT, such as 1280x720")
    width, height = (int(side) for side in sides)
    if not all(MIN_SIZE <= side <= MAX_SIZE for side in (width, height)):
        raise ViewerError(
            f"size: {text} is out of range; both sides must be {MIN_SIZE} to "
            f"{MAX_SIZE} "
            "pixels"
        )
    return width, height
