"""What is compared with what: entries of the list that show others of it, and panes that are tied."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from splatview_viewer.compare.controls import sections_of
from splatview_viewer.compare.pair_view import PairSource, PairView
from splatview_viewer.compare.tie import Tie
from splatview_viewer.compare.together import Together
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.settings import Entry
from splatview_viewer.kinds import COMPARED, SCENES
from splatview_viewer.workspace.catalogue import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.view import Section
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.shell.pane import Pane
    from splatview_viewer.shell.seat import Seat
    from splatview_viewer.workspace.catalogue import Catalogue

GROUP = "Compare"


class Comparisons:
    """Makes comparisons, continues merging, and ties viewports."""

    def __init__(self, catalogue: Catalogue, ctx: moderngl.Context, work: GpuWork, wake: Callable[[], None]) -> None:
        self.chosen: WeakKeyDictionary[Pane, str] = WeakKeyDictionary()
        """What to compare with, as it stands in the panel: the entry's key."""
        self._catalogue = catalogue
        self._ctx = ctx
        self._work = work
        self._wake = wake
        self._ties: WeakKeyDictionary[Seat, Tie] = WeakKeyDictionary()
        self._made = 0

    # -- what there is to compare --------------------------------------------------------------------------------

    def reads(self, slot: Slot) -> bool:
        """Whether what an entry's views hold is being read, so that it must not be replaced just now."""
        return any(
            isinstance(s.source, Together) and s.source.reads(slot) for s in self._catalogue.slots.values())

    def candidates(self, slot: Slot) -> list[Entry]:
        """What an entry can be compared with."""
        if slot.entry.kind not in COMPARED:
            return []
        return [s.entry for s in self._catalogue.slots.values()
                if s is not slot and s.entry.kind == slot.entry.kind and not isinstance(s.source, PairSource)]

    def update(self) -> bool:
        """Continue merging what is shown. True when there is something new for a picture."""
        self._forget_what_is_gone()
        news = False
        for slot in self._catalogue.watched() if self._made else ():
            if isinstance(slot.source, Together):
                with self._catalogue.guard(slot):
                    news |= slot.source.update()
        return news

    def _forget_what_is_gone(self) -> None:
        slots = self._catalogue.slots
        for slot in list(slots.values()):
            source = slot.source
            if isinstance(source, PairSource) and any(key not in slots for key in source.uses):
                self._catalogue.forget(slot.entry.key)
            elif isinstance(source, Together):
                for part in [p for p in source.parts if p.key not in slots]:
                    source.remove(part)
                if not source.parts:
                    self._catalogue.forget(slot.entry.key)
                else:
                    slot.entry.name = self._name([part.key for part in source.parts], " + ")

    def _name(self, keys: list[str], between: str) -> str:
        names = [self._catalogue.slots[key].entry.name for key in keys if key in self._catalogue.slots]
        return between.join(names) if len(names) < 4 else f"{names[0]} + {len(names) - 1} more"

    # -- what is asked for ---------------------------------------------------------------------------------------

    def compare(self, how: str, viewport: Pane, key: str) -> None:
        """Do "beside", "pair" or "together" with the entry `key` and what a viewport shows."""
        {"beside": self.beside, "pair": self.pair, "together": self.together}[how](viewport, key)

    def together(self, pane: Pane, key: str) -> None:
        """Show this entry in the same picture as what a pane shows. Says why not, where that cannot be."""
        shown, other = self._catalogue.shown(pane), self._catalogue.slots.get(key)
        if shown is None or other is None or shown is other:
            return
        if shown.entry.kind not in SCENES or other.entry.kind not in SCENES:
            pane.host.say("Only scenes can be put together")
            return
        source = shown.source
        keys = [part.key for part in other.source.parts] if isinstance(other.source, Together) else [key]
        try:
            if not isinstance(source, Together):
                self._add(self._name([shown.entry.key, *keys], " + "), shown.entry.kind,
                          source := Together(self._catalogue, [shown.entry.key], self._wake), pane)
            for each in keys:
                source.add(each)
        except ViewerError as e:
            pane.host.say(str(e))
        pane.seat.mark()

    def pair(self, pane: Pane, key: str) -> None:
        """Show this entry and what a pane shows as two halves of one picture."""
        shown, other = self._catalogue.shown(pane), self._catalogue.slots.get(key)
        if shown is None or other is None or shown is other:
            return
        if other.entry not in self.candidates(shown):
            pane.host.say(f"{shown.entry.name} and {other.entry.name} are not of one kind: nothing to compare")
            return
        keys = shown.entry.key, key
        for slot in self._catalogue.slots.values():
            if isinstance(slot.source, PairSource) and set(slot.source.uses) == set(keys):
                pane.select(slot.entry.key)
                return
        slot = self._add(self._name(list(keys), " vs "), "pair", PairSource(keys), pane)
        slot.views[None] = PairView(self._ctx, deepcopy(slot.entry.settings.pair), self._work, self._catalogue, keys)
        slot.view_kind = "pair"

    def beside(self, pane: Pane, key: str) -> None:
        """Show this entry in a pane of its own, tied to what the pane shows."""
        self.tie(pane.seat, True)
        pane.seat.panes.add(key)

    def _add(self, name: str, kind: str, source: Together | PairSource, pane: Pane) -> Slot:
        self._made += 1
        slot = Slot(Entry(f"comparison {self._made}", GROUP, name, kind, is_file=True), source)
        self._catalogue.add(slot)
        pane.seat.unfollow()
        pane.select(slot.entry.key)
        return slot

    # -- tied panes ----------------------------------------------------------------------------------------------

    def tied(self, seat: Seat) -> bool:
        return seat in self._ties

    def tie(self, seat: Seat, tied: bool) -> None:
        """Have the cameras of a seat's panes move together from now on, or no longer."""
        if tied != self.tied(seat):
            if tied:
                self._ties[seat] = Tie()
            else:
                del self._ties[seat]
            seat.mark()

    def pull(self, user: Seat) -> None:
        """Move the tied viewports of a user to where the one is that was moved."""
        if (tie := self._ties.get(user)) is None:
            return
        active = user.panes.active
        views: list[View] = []
        for pane in sorted(user.panes.seen, key=lambda p: p is not active):
            view = pane.view
            views += view.views if isinstance(view, PairView) else [] if view is None or view.empty else [view]
        tie.pull(views)

    # -- the panel -----------------------------------------------------------------------------------------------

    def sections(self, slot: Slot, view: View) -> list[Section]:
        """The part of the panel with which what a pane shows is compared."""
        pane: Any = next((p for p, v in slot.views.items() if v is view and p in self._catalogue.panes), None)
        return [] if pane is None or slot.entry.kind not in COMPARED else sections_of(self, slot, pane)
