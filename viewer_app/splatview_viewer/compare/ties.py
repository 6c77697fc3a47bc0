"""Viewports that are tied: their cameras, their steps, their ways to see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

from splatview_viewer.compare.pair import PairView
from splatview_viewer.kinds import about

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.core.view import Playback
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport


class _LastAlike(NamedTuple):
    """A view as it was when all were last alike."""

    place: Any
    look: dict[str, Any]


class _Heritage(NamedTuple):
    """Holds what a viewport is to begin with."""

    key: str
    """Of the entry that it is to show."""
    leader: ShownView


@dataclass(eq=False)
class UserTies:
    """Knows which viewports of one user are tied, and in what."""

    camera: bool = True
    step: bool = True
    look: bool = True
    viewports: WeakSet[Viewport] = field(default_factory=WeakSet)
    last_alike: WeakKeyDictionary[ShownView, _LastAlike] = field(
        default_factory=WeakKeyDictionary
    )
    sizes: tuple[tuple[int, int], ...] = ()
    """Of the tied viewports in the last picture."""
    steps: WeakKeyDictionary[Playback, int | None] = field(
        default_factory=WeakKeyDictionary
    )
    heritage: WeakKeyDictionary[Viewport, _Heritage] = field(
        default_factory=WeakKeyDictionary
    )


class Ties:
    """The ties of all users."""

    def __init__(self) -> None:
        self._of_users: WeakKeyDictionary[User, UserTies] = WeakKeyDictionary()

    def of_user(self, user: User) -> UserTies:
        """Return the ties of a user."""
        return self._of_users.setdefault(user, UserTies())

    def tied(self, user: User) -> list[Viewport]:
        """Return the tied viewports of a user that are open, the active one first."""
        active = user.layout.active
        ties = self.of_user(user)
        tied = [viewport for viewport in user.layout if viewport in ties.viewports]
        return sorted(tied, key=lambda viewport: viewport is not active)

    def link(self, viewport: Viewport) -> int | None:
        """Return the number of the first pane that has the same camera as a viewport's.

        None: it is tied to none, or up or scale of its scene is another one.
        """
        ties = self.of_user(viewport.user)
        view = lead_of(viewport)
        if view is None or not ties.camera or viewport not in ties.viewports:
            return None
        for first_viewport in viewport.user.layout.visible_viewports:
            leader = lead_of(first_viewport)
            if leader is None or first_viewport not in ties.viewports:
                continue
            is_alike = _place_type(view) is _place_type(leader)
            if is_alike and not view.view.has_own_frame(leader.view):
                return first_viewport.number
        return None

    # -- changes -----------------------------------------------------------------------

    def tie(self, user: User, viewports: Iterable[Viewport]) -> None:
        """Tie viewports of a user to those that are tied already."""
        self.of_user(user).viewports.update(viewports)
        user.mark()

    def untie(self, user: User, viewport: Viewport) -> None:
        """Leave a viewport where it is from now on."""
        ties = self.of_user(user)
        ties.viewports.discard(viewport)
        view = lead_of(viewport)
        if view is not None:
            ties.last_alike.pop(view, None)
        user.mark()

    def inherit(self, viewport: Viewport, leader: Viewport) -> None:
        """Have a viewport begin as another one is: camera, step and way to see.

        It takes them over with the first picture of the entry that it shows now.
        """
        self.inherit_as(viewport, viewport.key, lead_of(leader))

    def inherit_as(
        self, viewport: Viewport, key: str | None, leader: ShownView | None
    ) -> None:
        """Have a viewport begin as a view is, with the entry of a key."""
        if leader is not None and key is not None:
            self.of_user(viewport.user).heritage[viewport] = _Heritage(key, leader)

    def choose(self, user: User, *, camera: bool, step: bool, look: bool) -> None:
        """Set in what the viewports of a user are tied.

        In what is new, they follow the active one at once.
        """
        ties = self.of_user(user)
        is_more = (camera > ties.camera) or (look > ties.look)
        if is_more:
            active = lead_of(user.layout.active)
            for view in list(ties.last_alike):
                if view is not active:
                    del ties.last_alike[view]
        if step > ties.step:
            active_playbacks = playbacks_of(user.layout.active)
            for playback in list(ties.steps):
                if playback not in active_playbacks:
                    del ties.steps[playback]
        ties.camera = camera
        ties.step = step
        ties.look = look
        user.mark()

    # -- before each picture -----------------------------------------------------------

    def pull(self, user: User) -> None:
        """Move the tied viewports of a user to the place of the one that was moved."""
        ties = self.of_user(user)
        for viewport in user.layout.visible_viewports:
            view = lead_of(viewport)
            if view is not None:
                view.rect = viewport.rect
        self._bequeath(ties)
        if not ties.viewports:
            ties.sizes = ()
            return
        viewports = [v for v in self.tied(user) if v in user.layout.visible_viewports]
        views = []
        for viewport in viewports:
            view = lead_of(viewport)
            if view is not None:
                views.append(view)
            if viewport.view is not None and isinstance(viewport.view.view, PairView):
                viewport.view.view.change(alike=ties.look)
        sizes = tuple((v.rect.width, v.rect.height) for v in viewports)
        is_resized = sorted(sizes) != sorted(ties.sizes)
        ties.sizes = sizes
        _pull_views(views, ties, is_resized=is_resized)
        for view in views:
            ties.last_alike[view] = _LastAlike(view.view.state.place, view.look)
        if ties.step:
            _pull_steps(viewports, ties)

    def _bequeath(self, ties: UserTies) -> None:
        """Have new viewports begin as they are to."""
        for viewport, heritage in list(ties.heritage.items()):
            if viewport.key != heritage.key:
                del ties.heritage[viewport]
                continue
            view = lead_of(viewport)
            if view is None:
                continue
            del ties.heritage[viewport]
            leader = heritage.leader
            if view is leader or _place_type(view) is not _place_type(leader):
                continue
            view.follow(leader)
            if view.kind == leader.kind:
                view.follow_look(leader)
                _follow_step(view.view.playback, leader.view.playback)


def lead_of(viewport: Viewport) -> ShownView | None:
    """Return the view of a viewport that has a place; None without.

    A viewport with two scenes in one picture counts as the view that leads the other.
    """
    view = viewport.view
    if view is not None and isinstance(view.view, PairView):
        view = view.view.lead
    if view is None or view.empty or not about(view.kind).compared:
        return None
    return view


def playbacks_of(viewport: Viewport) -> list[Playback]:
    """Return what was recorded of the entries that a viewport shows."""
    view = viewport.view
    if view is None:
        return []
    if isinstance(view.view, PairView):
        views = view.view.views
    else:
        views = [view]
    playbacks = [v.view.playback for v in views if not v.empty]
    return [playback for playback in playbacks if playback is not None]


def _settle_size(view: ShownView, ties: UserTies) -> None:
    """Have a view look as its own size asks for, once panes have other sizes.

    It showed all of another pane before, and was smaller than need be. Where the user
    has not moved it, it shows the whole scene again.
    """
    view_place = view.view.state.place
    settled_place = view_place
    if getattr(view_place, "seen_in", None) is not None:
        settled_place = replace(settled_place, seen_in=None)
    is_unmoved = not getattr(view_place, "by_hand", True)
    if is_unmoved and view_place.exact_camera is None:
        settled_place = replace(settled_place, framed=False)
    if settled_place == view_place:
        return
    view.view.state = replace(view.view.state, place=settled_place)
    if view not in ties.last_alike:
        # The others have to follow.
        ties.last_alike[view] = _LastAlike(view_place, view.look)


def _groups(
    views: Sequence[ShownView], key: Callable[[ShownView], object]
) -> Iterator[list[ShownView]]:
    """Yield the views of each key together."""
    for value in dict.fromkeys(map(key, views)):
        yield [view for view in views if key(view) == value]


def _kind_of(view: ShownView) -> str:
    return view.kind


def _place_type(view: ShownView) -> type:
    """Return the type of a view's place: scenes of any kind have cameras alike."""
    return type(view.view.state.place)


def _pull_views(
    views: Sequence[ShownView], ties: UserTies, *, is_resized: bool
) -> None:
    """Have views follow those that were changed, in what they are tied in."""
    if ties.camera:
        for alike in _groups(views, _place_type):
            if is_resized:
                _settle_size(alike[0], ties)
            _pull_places(alike, ties)
    if ties.look:
        for alike in _groups(views, _kind_of):
            _pull_looks(alike, ties)


def _pull_places(alike: Sequence[ShownView], ties: UserTies) -> None:
    """Have views follow the one that was moved since they were alike.

    New ones follow the others; if all are new, the active one leads.
    """
    old_views = [view for view in alike if view in ties.last_alike]
    moved = [v for v in old_views if ties.last_alike[v].place != v.view.state.place]
    leader = (moved or old_views or alike)[0]
    for view in alike:
        is_new = view not in ties.last_alike
        if view is not leader and (is_new or moved):
            view.follow(leader)


def _pull_looks(alike: Sequence[ShownView], ties: UserTies) -> None:
    """Have views of one kind follow the one whose look was changed, as `_pull_places`."""
    old_views = [view for view in alike if view in ties.last_alike]
    changed = [v for v in old_views if ties.last_alike[v].look != v.look]
    leader = (changed or old_views or alike)[0]
    for view in alike:
        is_new = view not in ties.last_alike
        if view is not leader and (is_new or changed):
            view.follow_look(leader)


def _pull_steps(viewports: Sequence[Viewport], ties: UserTies) -> None:
    """Have all recordings show the step to which one of them went."""
    playbacks = list(dict.fromkeys(chain.from_iterable(map(playbacks_of, viewports))))
    old_playbacks = [playback for playback in playbacks if playback in ties.steps]
    moved = [
        playback for playback in old_playbacks if ties.steps[playback] != playback.step
    ]
    leader = (moved or old_playbacks or playbacks or [None])[0]
    for playback in playbacks:
        is_new = playback not in ties.steps
        if playback is not leader and (is_new or moved):
            _follow_step(playback, leader)
    for playback in playbacks:
        ties.steps[playback] = playback.step


def _follow_step(playback: Playback | None, leader: Playback | None) -> None:
    """Have a recording show the step of another one, or what comes live."""
    if playback is None or leader is None or playback is leader:
        return
    if leader.step is not None:
        playback.seek_step(leader.step)
    elif playback.step is not None:
        playback.live()
