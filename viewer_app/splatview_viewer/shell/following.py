"""Following: a seat shows what another one shows, from the same place, until its own user moves something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.workspace.catalogue import SETTLE

if TYPE_CHECKING:
    from splatview_viewer.core.settings import State
    from splatview_viewer.shell.panes import Panes


class Following:
    """What a seat is made of for this."""

    name: str
    state: State
    panes: Panes
    dirty: int

    def __init__(self) -> None:
        self.leader: Following | None = None
        """Whom this seat follows: it shows the same from the same place."""
        self.followers: list[Following] = []

    def mark(self, pictures: int = 1) -> None:
        """At least so many pictures have to be drawn, by those who follow as well."""
        self.dirty = max(self.dirty, pictures)
        for follower in self.followers:
            follower.mark(pictures)

    def follow(self, leader: Following) -> None:
        """Show what another seat shows from now on, until its own user moves something."""
        self.unfollow()
        above: Following | None = leader
        while above is not None:
            if above is self:
                leader.unfollow()
            above = above.leader
        if leader is not self:
            self.leader = leader
            self.state.follows = leader.name
            leader.followers.append(self)
            self.mark(SETTLE)

    def unfollow(self) -> None:
        """Go one's own way from here on."""
        if self.leader is not None:
            self.leader.followers.remove(self)
            self.leader = self.state.follows = None
            self.mark(SETTLE)

    def follow_no_more(self) -> None:
        """Nobody follows anybody here: the screen is gone."""
        self.unfollow()
        for follower in list(self.followers):
            follower.unfollow()

    def keep_up(self) -> None:
        """Be where the leader is."""
        if self.leader is None:
            return
        self.leader.keep_up()
        self.panes.be_like(self.leader.panes)
        for mine, theirs in zip(self.panes, self.leader.panes, strict=True):
            view, other = mine.view, theirs.view
            if view is not None and other is not None and view.kind == other.kind:
                view.like(other)
