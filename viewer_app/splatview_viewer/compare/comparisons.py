"""Comparisons: entries of the list that show others of it, and viewports that are tied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from splatview_viewer.compare.controls import sections_of
from splatview_viewer.compare.merged import MergedSource, name_of
from splatview_viewer.compare.pair import PairSource, PairState, PairView, follow
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.settings import Entry
from splatview_viewer.core.view import ShownView
from splatview_viewer.kinds import about
from splatview_viewer.workspace.catalogue import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.core.view import Section
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.catalogue import Catalogue

GROUP = "Compare"


class Comparisons:
    """Makes comparisons, and ties viewports."""

    def __init__(self, catalogue: Catalogue, ctx: moderngl.Context, work: GpuWork, wake: Callable[[], None]) -> None:
        self.chosen: WeakKeyDictionary[Viewport, str] = WeakKeyDictionary()
        """The entry to compare with, as the panel shows it: its key."""
        self._catalogue = catalogue
        self._ctx = ctx
        self._work = work
        self._wake = wake
        self.ties: WeakKeyDictionary[User, dict[ShownView, object]] = WeakKeyDictionary()
        """Users whose viewports are tied: the place of each view when all were last alike."""
        self._made = 0

    def candidates(self, slot: Slot) -> list[Entry]:
        """Return the entries that one can be compared with."""
        return [] if not about(slot.entry.kind).compared else [
            other.entry for other in self._catalogue.slots.values()
            if other is not slot and other.entry.kind == slot.entry.kind]

    def compare(self, how: str, viewport: Viewport, key: str) -> None:
        """Show the entry `key` with what a viewport shows: as a "pair", "together" or "beside"."""
        if how == "beside":
            self.tie(viewport.user, True)
            viewport.user.layout.add(key)
            return
        shown, other = self._catalogue.shown(viewport), self._catalogue.slots.get(key)
        if shown is None or other is None or shown is other:
            return
        if other.entry not in self.candidates(shown) or (how == "together" and not about(shown.entry.kind).scene):
            viewport.host.say("Only scenes can be put together" if how == "together" else
                              f"{shown.entry.name} and {other.entry.name} are not of one kind: nothing to compare")
        elif how == "together":
            self._merge(viewport, shown, other)
        else:
            self._pair(viewport, shown, other)

    def _merge(self, viewport: Viewport, shown: Slot, other: Slot) -> None:
        """Show an entry in the same space as what a viewport shows."""
        source, keys = shown.source, [other.entry.key]
        if isinstance(other.source, MergedSource):
            keys = [part.key for part in other.source.parts]
        try:
            if isinstance(source, MergedSource):
                source.add(keys)
            else:
                source = MergedSource(self._catalogue, self._wake)
                source.add([shown.entry.key, *keys])
                self._add(name_of([shown.entry, other.entry], " + "), shown.entry.kind, source, viewport)
        except ViewerError as e:
            viewport.host.say(str(e))
        viewport.user.mark()

    def _pair(self, viewport: Viewport, shown: Slot, other: Slot) -> None:
        """Show an entry and what a viewport shows as two halves of one picture."""
        keys, slots = (shown.entry.key, other.entry.key), self._catalogue.slots
        made = next((key for key, slot in slots.items() if isinstance(slot.source, PairSource)
                     and {*slot.source.uses} == {*keys}), None)
        if made is not None:
            viewport.select(made)
            return
        source = PairSource(self._catalogue, keys, self._ctx, self._work)
        slot = self._add(name_of([shown.entry, other.entry], " vs "), "pair", source, viewport)
        view: Any = ShownView(PairView(source, PairState()))
        view.update(None)
        slot.views[None], slot.view_kind = view, "pair"

    def _add(self, name: str, kind: str, source: MergedSource | PairSource, viewport: Viewport) -> Slot:
        self._made += 1
        slot = Slot(Entry(f"comparison {self._made}", GROUP, name, kind, is_file=True), source)
        self._catalogue.add(slot)
        viewport.user.unfollow()
        viewport.select(slot.entry.key)
        return slot

    # -- tied viewports ----------------------------------------------------------------------------------------------

    def tie(self, user: User, tied: bool) -> None:
        """Have the cameras of a user's viewports move together from now on, or no longer."""
        known = self.ties.pop(user, {})
        if tied:
            self.ties[user] = known
        user.mark()

    def pull(self, user: User) -> None:
        """Move the tied viewports of a user to the place of the one that was moved. New ones follow the others; if all
        are new, the active one leads."""
        if (known := self.ties.get(user)) is None:
            return
        active = user.layout.active
        seen: list[Any] = [p.view for p in sorted(user.layout.seen, key=lambda p: p is not active)]
        of_pairs = (v.view.lead if isinstance(v, ShownView) and isinstance(v.view, PairView) else v for v in seen)
        views: list[Any] = [view for view in of_pairs
                            if view is not None and about(view.kind).compared and not view.empty]
        for kind in {view.kind for view in views}:
            alike = [view for view in views if view.kind == kind]
            moved = [view for view in alike if view in known and known[view] != view.view.state.place]
            leader: Any = next(iter(moved or [view for view in alike if view in known] or alike), None)
            for view in alike:
                if view is not leader and (moved or view not in known):
                    follow(view, leader, leader.rect)
        self.ties[user] = {view: view.view.state.place for view in views}

    # -- the panel ---------------------------------------------------------------------------------------------------

    def sections(self, slot: Slot, view: ShownView) -> list[Section]:
        """Return the part of the panel for comparing what a viewport shows."""
        viewport: Any = next((p for p, v in slot.views.items() if v is view and p in self._catalogue.viewports), None)
        return [] if viewport is None or not about(slot.entry.kind).compared else sections_of(self, slot, viewport)
