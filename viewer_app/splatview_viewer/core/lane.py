"""A lane of the time area: something that runs over time and can be moved through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.screen import Rect


@dataclass(frozen=True, slots=True)
class LaneButton:
    """The button at the right end of a lane: "Live", "Key"."""

    text: str
    press: Callable[[], object]
    """Does what it says."""
    icon: str = ""
    """One of `ui.icons`."""
    on: bool | None = None
    """True or False for a state, such as that what comes is shown; None for none."""
    reason: str | None = None
    """Why it cannot be pressed now; None: it can."""
    tip: str = ""


class Lane(Protocol):
    """One lane, such as the recorded training or a camera's path."""

    name: str
    """"Training", "Path"."""
    icon: str
    """One of `ui.icons`, or the letter of a run that is compared: "A"."""
    has_transport: bool
    """False for what can be moved through on its track alone: nothing there is played."""

    @property
    def empty_text(self) -> str:
        """The words of its track while it has nothing; "" while it has something."""
        ...

    @property
    def caption(self) -> str:
        """The place where it is, in a few words: "step 12,400"."""
        ...

    @property
    def button(self) -> LaneButton | None:
        """The button at its right end."""
        ...

    @property
    def reason(self) -> str | None:
        """The reason why it can neither be played nor stepped through now; None: it can."""
        ...

    @property
    def playing(self) -> bool:
        """True while it plays."""
        ...

    def play(self, on: bool) -> None:
        """Play it, or stop."""
        ...

    def step(self, count: int) -> None:
        """Go to the next stop (1) or the one before (-1)."""
        ...

    def draw_track(self, rect: Rect, scale: float) -> bool:
        """Draw its track with imgui, and take the pointer there.

        Returns True to draw the picture again.
        """
        ...


class EmptyLane:
    """A lane of what has none, such as an image; everything of it is off."""

    caption = ""
    has_transport = True
    playing = False

    def __init__(self, name: str, icon: str, text: str, button: str = "") -> None:
        """Describe it.

        Args:
            name: of the lane.
            icon: one of `ui.icons`.
            text: on its track, also the reason why nothing can be pressed.
            button: on the button at its right end; "" for none.
        """
        self.name = name
        self.icon = icon
        self.empty_text = text
        self.reason: str | None = text
        self.button: LaneButton | None = None
        if button:
            self.button = LaneButton(button, self._ignore, "plus", reason=text)

    def _ignore(self) -> None:
        """Do nothing: the button is off."""

    def play(self, on: bool) -> None:
        """Do nothing."""

    def step(self, count: int) -> None:
        """Do nothing."""

    def draw_track(self, rect: Rect, scale: float) -> bool:
        """Draw nothing on the track."""
        return False
