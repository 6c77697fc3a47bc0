"""Comparisons: two entries beside each other or in one picture, or several together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from splatview_viewer.compare.arrangement import (
    Pairing,
    Panes,
    pair_view,
    pairing_in,
    pairings_beside,
    panes_of,
    set_pair_mode,
)
from splatview_viewer.compare.merged import MergedSource, name_of
from splatview_viewer.compare.pair import PairSource, PairState, PairView
from splatview_viewer.compare.pair_meter import PairMeter
from splatview_viewer.compare.pair_words import distinct_names
from splatview_viewer.compare.pane_notes import PaneNotes
from splatview_viewer.compare.panel import CompareSections
from splatview_viewer.compare.runs import RunsInPlots
from splatview_viewer.compare.ties import Ties, lead_of, playbacks_of
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.settings import Entry
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.kinds import about, are_comparable, can_be_merged
from splatview_viewer.workspace.feature import Feature
from splatview_viewer.workspace.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl

    from splatview_viewer.compare.arrangement import Arrangement
    from splatview_viewer.core.view import Section
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.feature import PaneNote

_MAX_UNSEEN = 8
"""Pairings without a pane that are kept, for undo."""


@dataclass
class UserComparison:
    """Holds what one user compares, and how."""

    pairing: Pairing | None = None
    """A and B, as they were chosen last."""
    gain: float = 4.0
    """Factor of differences."""
    opacity: float = 0.5
    """Of B over A."""


class Comparisons(Feature):
    """Shows entries beside others, and ties viewports."""

    def __init__(
        self,
        catalogue: Catalogue,
        ctx: moderngl.Context,
        gpu_work: GpuWork,
        wake: Callable[[], None],
    ) -> None:
        self.catalogue = catalogue
        self.ties = Ties()
        self._ctx = ctx
        self._gpu_work = gpu_work
        self._wake = wake
        self._of_users: WeakKeyDictionary[User, UserComparison] = WeakKeyDictionary()
        self._count = 0
        """Number of entries that show others, as they were made."""
        self._meters: WeakKeyDictionary[User, PairMeter] = WeakKeyDictionary()
        self._sections = CompareSections(self)
        self._runs = RunsInPlots(self)
        self._notes = PaneNotes(self)

    def of_user(self, user: User) -> UserComparison:
        """Return what a user compares."""
        return self._of_users.setdefault(user, UserComparison())

    # -- what is compared --------------------------------------------------------------

    def candidates(self, kind: str) -> list[Entry]:
        """Return the entries that can be compared with one of a kind."""
        entries = [slot.entry for slot in self.catalogue.slots.values()]
        return [entry for entry in entries if are_comparable(kind, entry.kind)]

    def pairing(self, viewport: Viewport) -> Pairing | None:
        """Return A and B for a viewport; None where there is nothing to compare.

        They are those that it shows, or what it shows and the one that was last compared
        with that, is seen in another pane, or could be. For a plot they are those that are seen beside it.
        """
        shown_pairing = pairing_in(viewport)
        if shown_pairing is not None:
            return shown_pairing
        slot = self.catalogue.slot_of(viewport)
        if slot is None:
            return None
        key = slot.entry.key
        chosen_pairing = self.of_user(viewport.user).pairing
        seen_pairings = filter(self._is_valid, pairings_beside(viewport, key))
        seen_pairing = next(seen_pairings, None)
        if (
            chosen_pairing is not None
            and key in chosen_pairing
            and self._is_valid(chosen_pairing)
        ):
            panes = panes_of(viewport.user, chosen_pairing)
            if panes.arrangement is not None or seen_pairing is None:
                return chosen_pairing
        if seen_pairing is not None:
            return seen_pairing
        if chosen_pairing is not None and not about(slot.entry.kind).compared:
            is_seen = panes_of(viewport.user, chosen_pairing).arrangement is not None
            if is_seen and self._is_valid(chosen_pairing):
                return chosen_pairing
        candidates = [
            e for e in self.candidates(slot.entry.kind) if e is not slot.entry
        ]
        if not candidates:
            return None

        def strangeness(entry: Entry) -> tuple[bool, bool]:
            """Return what sorts the same stream of another run before all others."""
            return entry.name != slot.entry.name, entry.kind != slot.entry.kind

        return Pairing(key, min(candidates, key=strangeness).key)

    def seen_pairing(self, user: User) -> Pairing | None:
        """Return A and B of the active pane, else those chosen last; None: none is seen."""
        for pairing in (self.pairing(user.layout.active), self.of_user(user).pairing):
            if pairing is None or not self._is_valid(pairing):
                continue
            panes = panes_of(user, pairing)
            if panes.arrangement is not None or panes.difference is not None:
                return pairing
        return None

    def _is_valid(self, pairing: Pairing) -> bool:
        slots = self.catalogue.slots
        kinds = [slots[key].entry.kind for key in pairing if key in slots]
        return len(kinds) == 2 and are_comparable(*kinds)

    def psnr(self, user: User, pairing: Pairing) -> float | None:
        """Return the PSNR of A and B in dB as it was last measured, everywhere alike."""
        for view in panes_of(user, pairing).pair_views:
            if view.psnr is not None:
                return view.psnr
        meter = self._meters.get(user)
        if meter is None or meter.pairing != pairing:
            return None
        return meter.psnr

    # -- showing it --------------------------------------------------------------------

    def compare(self, mode: str, viewport: Viewport, key: str) -> None:
        """Show an entry together with the one that a viewport shows.

        Args:
            mode: "pair", "together" or "beside".
            key: the key of the other entry.
        """
        shown_pairing = pairing_in(viewport)
        if shown_pairing is None:
            slot = self.catalogue.slot_of(viewport)
        else:
            slot = self.catalogue.slots.get(shown_pairing.first)
        other_slot = self.catalogue.slots.get(key)
        if mode == "beside":
            viewport.user.layout.active = viewport
            viewport.user.show_beside(key)
            return
        if slot is None or other_slot is None or slot is other_slot:
            return
        is_comparable = other_slot.entry in self.candidates(slot.entry.kind)
        if mode == "together":
            if can_be_merged(slot.entry.kind, other_slot.entry.kind):
                self._put_together(viewport, slot, other_slot)
            else:
                viewport.host.notify("Only scenes can be put together")
            return
        if not is_comparable:
            viewport.host.notify(
                f"{slot.entry.name} and {other_slot.entry.name} cannot be compared: "
                "choose two scenes, or two pictures"
            )
            return
        pairing = Pairing(slot.entry.key, key)
        self.of_user(viewport.user).pairing = pairing
        if mode == "difference":
            self.show_difference(viewport, pairing, True)
        else:
            self._show_pair(viewport, pairing)
            set_pair_mode(viewport, "blend" if mode == "blend" else "split")

    def choose(self, viewport: Viewport, pairing: Pairing) -> None:
        """Compare other entries, or the same the other way round, in the same panes."""
        user = viewport.user
        previous = self.pairing(viewport)
        panes = Panes(viewport, None, None, None)
        if previous is not None:
            panes = panes_of(user, previous)
        self.of_user(user).pairing = pairing
        ways = [
            (pane, pair_view(pane)) for pane in (panes.joint, panes.difference) if pane
        ]
        if panes.first is not None:
            panes.first.select(pairing.first)
        elif not ways and panes.second is None:
            viewport.select(pairing.first)
        if panes.second is not None:
            panes.second.select(pairing.second)
        for pane, view in ways:
            if view is None:
                mode = "split"
            else:
                mode = view.mode
            self._show_pair(pane, pairing)
            set_pair_mode(pane, mode)
            self._apply(pane)

    def show(
        self, viewport: Viewport, pairing: Pairing, arrangement: Arrangement
    ) -> None:
        """Show A and B beside each other, split by a line, or one over the other."""
        user = viewport.user
        self.of_user(user).pairing = pairing
        panes = panes_of(user, pairing)
        if arrangement == "beside":
            self._show_beside(viewport, pairing, panes)
            return
        pane = panes.joint or panes.first or panes.second or viewport
        self._show_pair(pane, pairing)
        set_pair_mode(pane, arrangement)
        self._apply(pane)
        for single in (panes.first, panes.second):
            if single is not None and single is not pane:
                user.layout.remove(single)
        user.layout.activate(pane)

    def _show_beside(self, viewport: Viewport, pairing: Pairing, panes: Panes) -> None:
        """Show A and B in a pane each."""
        user = viewport.user
        if panes.arrangement == "beside":
            return
        if panes.first is not None or panes.second is not None:
            pane = panes.first or panes.second
        else:
            pane = panes.joint or viewport
        assert pane is not None
        missing = pairing.second
        if pane is panes.second:
            missing = pairing.first
        elif pane is not panes.first:
            self.ties.inherit_as(pane, pairing.first, lead_of(pane))
            pane.select(pairing.first)
        if panes.joint is not None and panes.joint is not pane:
            user.layout.remove(panes.joint)
        user.layout.activate(pane)
        user.show_beside(missing)
        user.layout.activate(pane)

    def show_difference(self, viewport: Viewport, pairing: Pairing, on: bool) -> None:
        """Show the difference of A and B in a pane of its own, or no longer."""
        user = viewport.user
        layout = user.layout
        panes = panes_of(user, pairing)
        if not on:
            if panes.difference is not None:
                layout.remove(panes.difference)
            return
        if panes.difference is not None:
            return
        self.of_user(user).pairing = pairing
        active = layout.active
        leader = panes.first or panes.joint or panes.second or viewport
        layout.activate(panes.second or leader)
        pane = layout.add(leader.key)
        self.ties.inherit(pane, leader)
        self._show_pair(pane, pairing)
        set_pair_mode(pane, "difference")
        self._apply(pane)
        self.ties.tie(user, [leader, pane])
        layout.activate(active)

    def set_gain(self, user: User, pairing: Pairing, gain: float) -> None:
        """Choose the factor of the differences of A and B."""
        self.of_user(user).gain = gain
        for view in panes_of(user, pairing).pair_views:
            view.change(gain=gain)
        user.mark()

    def set_opacity(self, user: User, pairing: Pairing, opacity: float) -> None:
        """Choose the opacity of B over A."""
        self.of_user(user).opacity = opacity
        for view in panes_of(user, pairing).pair_views:
            if view.mode == "blend":
                view.change(position=opacity)
        user.mark()

    def _apply(self, viewport: Viewport) -> None:
        """Give a view of two entries the user's settings."""
        view = pair_view(viewport)
        settings = self.of_user(viewport.user)
        if view is not None:
            view.change(gain=settings.gain)
            position = 0.5
            if view.mode == "blend":
                position = settings.opacity
            view.change(position=position)

    def _put_together(self, viewport: Viewport, slot: Slot, other_slot: Slot) -> None:
        """Show the scenes of two entries in one space; a merged scene takes the other."""
        keys = [other_slot.entry.key]
        if isinstance(other_slot.source, MergedSource):
            keys = [compared.key for compared in other_slot.source.scenes]
        try:
            if isinstance(slot.source, MergedSource):
                slot.source.add(keys)
            else:
                source = MergedSource(self.catalogue, self._wake)
                source.add([slot.entry.key, *keys])
                name = name_of([slot.entry, other_slot.entry])
                new_slot = self._add(name, slot.entry.kind, source)
                self._select(viewport, new_slot.entry.key)
        except ViewerError as e:
            viewport.host.notify(str(e))
        viewport.user.mark()

    def _show_pair(self, viewport: Viewport, pairing: Pairing) -> None:
        """Show two entries in one picture, with the entry that does so already, if any."""
        for key, slot in self.catalogue.slots.items():
            source = slot.source
            if isinstance(source, PairSource) and Pairing(*source.uses) == pairing:
                self._select(viewport, key)
                return
        source = PairSource(self.catalogue, pairing, self._ctx, self._gpu_work)
        entries = [self.catalogue.slots[key].entry for key in pairing]
        name = " vs ".join(distinct_names(entries))
        self._forget_unseen()
        slot = self._add(name, PairView.kind, source, is_listed=False)
        view = ShownView(PairView(source, PairState()))
        view.update(None)
        slot.views[None] = view
        slot.view_kind = PairView.kind
        self._select(viewport, slot.entry.key)

    def _forget_unseen(self) -> None:
        """Forget the oldest pairings that no pane of any user shows."""
        unseen = []
        for key, slot in self.catalogue.slots.items():
            is_pairing = isinstance(slot.source, PairSource)
            viewports = [viewport for viewport in slot.views if viewport is not None]
            if is_pairing and all(viewport.key != key for viewport in viewports):
                unseen.append(key)
        for key in unseen[:-_MAX_UNSEEN]:
            self.catalogue.forget(key)

    def _select(self, viewport: Viewport, key: str) -> None:
        """Show an entry in a viewport, from where it looks now."""
        heritage = self.ties.of_user(viewport.user).heritage.get(viewport)
        if heritage is None:
            leader = lead_of(viewport)
        else:
            leader = heritage.leader
        viewport.select(key)
        self.ties.inherit_as(viewport, key, leader)

    def _add(
        self,
        name: str,
        kind: str,
        source: MergedSource | PairSource,
        *,
        is_listed: bool = True,
    ) -> Slot:
        """Add an entry that shows others."""
        self._count += 1
        key = f"comparison {self._count}"
        entry = Entry(key, "Together", name, kind, is_file=True, is_listed=is_listed)
        slot = Slot(entry, source)
        self.catalogue.add(slot)
        return slot

    # -- panes -------------------------------------------------------------------------

    def join(self, viewport: Viewport, leader: Viewport) -> None:
        if viewport is leader or viewport.entry is None or leader.entry is None:
            return
        user = viewport.user
        self.ties.inherit(viewport, leader)
        self.ties.tie(user, [viewport, leader])
        pairing = Pairing(leader.entry.key, viewport.entry.key)
        # A file that is still being read is of no kind yet.
        is_comparable = not viewport.entry.kind or are_comparable(
            leader.entry.kind, viewport.entry.kind
        )
        if leader.key == viewport.key or not is_comparable:
            return
        comparison = self.of_user(user)
        if comparison.pairing is None or set(comparison.pairing) != set(pairing):
            comparison.pairing = pairing

    def note(self, viewport: Viewport) -> PaneNote:
        return self._notes.of_pane(viewport)

    def switch_tie(self, viewport: Viewport) -> None:
        user = viewport.user
        tied = self.ties.tied(user)
        if viewport in tied and len(tied) > 1:
            self.ties.untie(user, viewport)
            return
        leaders = [v for v in tied if v is not viewport] or [
            v for v in user.layout if v is not viewport and lead_of(v) is not None
        ]
        active = user.layout.active
        if viewport is not active and lead_of(active) is not None:
            leaders.insert(0, active)
        if leaders:
            self.ties.inherit(viewport, leaders[0])
            self.ties.tie(user, [viewport, leaders[0]])

    def link(self, viewport: Viewport) -> int | None:
        return self.ties.link(viewport)

    def go_to_step(self, viewport: Viewport, step: float) -> bool:
        user = viewport.user
        viewports = [viewport, *self.ties.tied(user)]
        if not any(playbacks_of(v) for v in viewports):
            viewports = list(user.layout)
        playbacks = list(chain.from_iterable(map(playbacks_of, viewports)))
        record = viewport.record_view()
        if record is not None and record.view.playback is not None:
            # Of the run whose plot was clicked, though another one is seen.
            playbacks.append(record.view.playback)
        for playback in dict.fromkeys(playbacks):
            playback.seek_step(step)
        user.mark()
        return bool(playbacks)

    def pull(self, user: User) -> None:
        self.ties.pull(user)
        self._runs.pull(user)
        self._measure(user)

    def tick(self, user: User, now: float) -> bool:
        meter = self._meters.get(user)
        return meter is not None and meter.tick(now)

    def _measure(self, user: User) -> None:
        """Compare A and B beside each other, while the panel shows their PSNR."""
        meter = self._meters.get(user)
        pairing = None
        leader = None
        if user.has_panel and user.interface.state.tab == "compare":
            pairing = self.seen_pairing(user)
        if pairing is not None:
            panes = panes_of(user, pairing)
            if (
                panes.arrangement == "beside"
                and panes.difference is None
                and panes.first
            ):
                leader = lead_of(panes.first)
        if meter is not None and (leader is None or meter.pairing != pairing):
            del self._meters[user]
            meter.close()
            meter = None
        if leader is None or pairing is None:
            return
        if meter is None:
            meter = PairMeter(
                self.catalogue, pairing, self._ctx, self._gpu_work, user.host
            )
            self._meters[user] = meter
        meter.look_from(leader)

    def uses(self, viewport: Viewport) -> Sequence[str]:
        return self._runs.uses(viewport)

    # -- the panel ---------------------------------------------------------------------

    def sections(self, viewport: Viewport) -> Sequence[Section]:
        return [*self._sections.of_viewport(viewport), *self._runs.sections(viewport)]
