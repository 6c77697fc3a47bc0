"""The base of additions that show several entries together, such as comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.view import Section


@dataclass(frozen=True)
class PaneNote:
    """Holds what an addition tells of a pane, in the strip above it."""

    badge: str = ""
    """"A" or "B" for one of two that are compared; "": it is none of them."""
    tied: bool | None = None
    """True if it is tied to others; None: there is nothing that it could be tied to."""
    tip: str = ""
    """Explains the chain."""
    label: str = ""
    """A fact of the pane that the addition knows."""
    subtitle: str = ""
    """Of what the pane is, in place of the view's own words; "": those are right."""


class Feature:
    """An addition that shows several entries together. The default calls do nothing."""

    def pull(self, user: Any) -> None:
        """Prepare the viewports of a user, which have their places, to be drawn."""

    def tick(self, user: Any, now: float) -> bool:
        """Do what is due for a user, once a turn; return whether other words are told."""
        return False

    def sections(self, viewport: Any) -> Sequence[Section]:
        """Return its parts of the panel for a viewport."""
        return ()

    def compare(self, mode: str, viewport: Any, key: str) -> None:
        """Show an entry together with the one that a viewport shows.

        mode: "beside", "pair" (split by a line), "blend", "difference" or "together".
        key: of the other entry.
        """

    def join(self, viewport: Any, leader: Any) -> None:
        """Take in a viewport that was opened beside another one."""

    def note(self, viewport: Any) -> PaneNote:
        """Return what it tells of a viewport."""
        return PaneNote()

    def switch_tie(self, viewport: Any) -> None:
        """Untie a viewport, or tie it again."""

    def go_to_step(self, viewport: Any, step: float) -> bool:
        """Show the snapshot of a step in a viewport and in those tied to it.

        Returns False where nothing is recorded.
        """
        return False

    def link(self, viewport: Any) -> int | None:
        """Return what is the same for all panes whose cameras move with a viewport's.

        None: it moves alone.
        """
        return None

    def uses(self, viewport: Any) -> Sequence[str]:
        """Return the keys of entries that it plots in a viewport, or in its panel."""
        return ()
