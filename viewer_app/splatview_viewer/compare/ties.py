"""Viewports that are tied: they show the same part of their entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from splatview_viewer.compare.pair import PairView
from splatview_viewer.core.view import ShownView
from splatview_viewer.kinds import about

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User


class Ties:
    """The users whose viewports are tied."""

    def __init__(self) -> None:
        self._last_positions: WeakKeyDictionary[User, dict[ShownView, Any]] = (
            WeakKeyDictionary()
        )
        """The place of each view when all were last alike, by the user."""

    def __contains__(self, user: User) -> bool:
        return user in self._last_positions

    def set_tied(self, user: User, tied: bool) -> None:
        """Have the cameras of a user's viewports move together, or no longer."""
        positions = self._last_positions.pop(user, {})
        if tied:
            self._last_positions[user] = positions
        user.mark()

    def align(self, user: User) -> None:
        """Move the tied viewports of a user to the place of the one that was moved.

        New ones follow the others; if all are new, the active one leads.
        """
        positions = self._last_positions.get(user)
        if positions is None:
            return
        views = _comparable_views(user)
        for kind in {view.kind for view in views}:
            alike = [view for view in views if view.kind == kind]
            _pull_alike(alike, positions)
        self._last_positions[user] = {view: view.view.state.place for view in views}


def _comparable_views(user: User) -> list[ShownView]:
    """Return the views of a user's viewports that have a place, the active one first.

    Of two scenes in one picture it is the one that the other follows.
    """
    active = user.layout.active
    viewports = sorted(user.layout.seen, key=lambda viewport: viewport is not active)
    views = []
    for viewport in viewports:
        view = viewport.view
        if isinstance(view, ShownView) and isinstance(view.view, PairView):
            view = view.view.lead
        if view is not None and about(view.kind).compared and not view.empty:
            views.append(view)
    return views


def _pull_alike(alike: list[ShownView], positions: dict[ShownView, Any]) -> None:
    """Have views of one kind follow the one that was moved since `places`."""
    followed = [view for view in alike if view in positions]
    moved = [view for view in followed if positions[view] != view.view.state.place]
    leader = (moved or followed or alike)[0]
    for view in alike:
        if view is not leader and (moved or view not in positions):
            view.follow(leader)
