"""Tied viewports: what a user moves in one of them moves in all.

Viewports of scenes then share the camera, those of pictures the position and zoom. Both
are the field `place` of a view's state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from splatview_viewer.compare.pair import PairView
from splatview_viewer.core.view import ShownView
from splatview_viewer.kinds import about

if TYPE_CHECKING:
    from splatview_viewer.shell.user import User


class Ties:
    """Keeps the views of tied viewports at the same place, for each user."""

    def __init__(self) -> None:
        self._last_positions: WeakKeyDictionary[User, dict[ShownView, Any]] = (
            WeakKeyDictionary()
        )
        """The place of each view after the last `align`, for users whose viewports are tied."""

    def __contains__(self, user: User) -> bool:
        return user in self._last_positions

    def set_tied(self, user: User, tied: bool) -> None:
        """Tie the viewports of a user together, or untie them."""
        positions = self._last_positions.pop(user, {})
        if tied:
            self._last_positions[user] = positions
        user.mark()

    def align(self, user: User) -> None:
        """Move the tied viewports of a user to where one of them was moved.

        Views of different kinds do not follow each other.
        """
        positions = self._last_positions.get(user)
        if positions is None:
            return
        views = _comparable_views(user)
        for kind in {view.kind for view in views}:
            _align_views([view for view in views if view.kind == kind], positions)
        self._last_positions[user] = {view: view.view.state.place for view in views}


def _comparable_views(user: User) -> list[ShownView]:
    """Return the views of a user's viewports that have a place, the active one first.

    A viewport with two scenes in one picture counts as the view that leads the other.
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


def _align_views(views: list[ShownView], positions: dict[ShownView, Any]) -> None:
    """Have views of one kind follow the one that was moved.

    If none was moved, views without a position are new and follow the others.

    Args:
        views: the active one first.
        positions: the place of each view after the last alignment.
    """
    known = [view for view in views if view in positions]
    moved = [view for view in known if view.view.state.place != positions[view]]
    if moved:
        leader = moved[0]
        followers = views
    else:
        leader = known[0] if known else views[0]
        followers = [view for view in views if view not in positions]
    for view in followers:
        if view is not leader:
            view.follow(leader)
