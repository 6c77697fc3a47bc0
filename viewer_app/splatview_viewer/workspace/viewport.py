"""The catalogue's view of what is above it: viewports that show entries, and features that use several of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.host import Host
    from splatview_viewer.core.screen import Screen
    from splatview_viewer.core.view import Section


class User(Protocol):
    """Draws the pictures of one screen."""

    screen: Screen

    def mark(self, pictures: int = 1) -> None:
        """Draw again, so many pictures."""

    def takes(self, now: float) -> bool:
        """Return whether a new version would soon be seen."""
        ...

    def may_draw(self, now: float) -> float:
        """Return the clock time of the next picture at the earliest."""
        ...

    def unfollow(self) -> None:
        """Stop following another user."""


class Viewport(Protocol):
    """A part of a user's picture that shows one entry."""

    key: str | None
    """The entry's key."""
    by_itself: bool
    """True while the user has not chosen the entry."""

    @property
    def user(self) -> User: ...

    @property
    def host(self) -> Host: ...

    @property
    def has_panel(self) -> bool:
        """True while the panel describes it."""
        ...

    def select(self, key: str | None) -> None:
        """Show this entry because the user chose it."""


class Feature(Protocol):
    """An addition to the catalogue that shows several entries in one picture: comparisons."""

    def pull(self, user: Any) -> None:
        """Prepare the viewports of a user, before they are drawn."""

    def sections(self, viewport: Any) -> Sequence[Section]:
        """Return its parts of the panel for a viewport."""
        ...

    def compare(self, how: str, viewport: Any, key: str) -> None:
        """Show the entry `key` with what a viewport shows: in a "pair", "together" or "beside"."""
