"""Views that are tied: what is moved in one, moves in all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from splatview_viewer.core.old_view import Adapted
from splatview_viewer.kinds import COMPARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.old_view import View


def follow(view: View, leader: View, *, settings: bool) -> None:
    """Look from where `leader`, of the same kind, looks, all of whose picture is seen though sizes may differ.
    `settings`: also show what it shows, in the way in which it does."""
    mine: Any = view
    if isinstance(view, Adapted):
        kept = view.view.state
        view.like(leader)
        if not settings:
            view.view.state = replace(kept, place=view.view.state.place)
        return
    kept = None if settings else replace(mine.settings)
    view.like(leader)
    if kept is not None:
        mine.settings.take(kept)


class Tie:
    """Of each kind whoever was moved last leads. Views are tied for as long as they are named to `pull`."""

    def __init__(self, *, settings: bool = False) -> None:
        self.settings = settings
        """Whether also how things are shown is the same."""
        self._known: WeakKeyDictionary[View, tuple[object, ...]] = WeakKeyDictionary()
        """Where each was when they were last the same."""

    def pull(self, views: Sequence[View]) -> bool:
        """Have all be where the one is that was moved since the last time; those that are new are where the others are,
        or, if all are new, where the first is. To be called before they are drawn. True when any was moved."""
        moved = False
        for kind in COMPARED:
            same = [view for view in views if view.kind == kind]
            if same:
                moved |= self._pull(same)
        for view in list(self._known):
            if view not in views:
                del self._known[view]
        return moved

    def _pull(self, views: Sequence[View]) -> bool:
        known = self._known
        before = {view: self._place(view) for view in views}
        changed = [view for view in views if view in known and known[view] != before[view]]
        leader = next(iter(changed or [view for view in views if view in known]), views[0])
        late = [view for view in views if view is not leader and (changed or view not in known)]
        for view in late:
            follow(view, leader, settings=self.settings)
        for view in views:
            known[view] = self._place(view) if late else before[view]
        return bool(late)

    def _place(self, view: Any) -> tuple[object, ...]:
        """Equal as long as nobody moves it."""
        if isinstance(view, Adapted):
            state = view.view.state
            place = replace(state.place, seen_in=None)
            return (replace(state, place=place),) if self.settings else (place,)
        o = view.orbit
        place = (view.framed, o.rotation.tobytes(), o.target.tobytes(), o.distance, o.up.tobytes(), o.fov, o.model,
                 o.near)
        return (*place, *(vars(view.settings).values() if self.settings else ()))
