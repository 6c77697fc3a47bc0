"""A lane of the time area: something that runs over time and can be moved through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect


class Lane(Protocol):
    """One lane, such as the recorded training or a camera's path.

    All positions are shares of its track: 0 at its left end, 1 at its right end.
    """

    name: str
    """"Training", "Path"."""
    icon: str
    """One of `ui.icons`."""

    @property
    def empty_text(self) -> str:
        """What its track says while it has nothing; "" while it has something."""
        ...

    @property
    def caption(self) -> str:
        """Where it is, in a few words: "step 12,400"."""
        ...

    @property
    def button(self) -> LaneButton | None:
        """The button at its right end."""
        ...

    @property
    def playing(self) -> bool:
        """True while it plays."""
        ...

    def play(self, on: bool) -> None:
        """Play it, or stop."""
        ...

    def step(self, by: int) -> None:
        """Go to the next stop (1) or the one before (-1)."""
        ...

    def draw_track(self, rect: Rect, scale: float) -> bool:
        """Draw its track with imgui, and take the pointer there.

        Returns True to draw the picture again.
        """
        ...


class LaneButton(Protocol):
    """The button at the right end of a lane: "Live", "Key"."""

    text: str
    icon: str
    on: bool
    """True for a state, such as that what comes is shown."""
    reason: str | None
    """Why it cannot be pressed now; None: it can."""

    def press(self) -> None:
        """Do what it says."""
        ...
