"""New values handed to the views of visible entries, in each turn of the loop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from splatview_viewer.core.screen import takes_pictures
from splatview_viewer.kinds import about, make_view
from splatview_viewer.workspace.links import PLOT_PERIOD_S

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.slot import Slot

_FIRST_MISS_S = 0.000125
"""Seconds to the second attempt to read what was announced and has not come; each
further attempt doubles them."""
_LAST_MISS_S = 1 / 15
"""The most seconds between two attempts."""
_MAX_MISSES = 12
"""Attempts after which an announced value does not keep the loop awake any more."""
UNSEEN_PACE = 0.1
"""Versions a second of a scene that is shown nowhere but in hidden windows."""
_SLOW_FEED_S = 0.02
"""Seconds of loading a value from which on the next one is delayed."""


class Feeder:
    """Hands the new values of entries to their views, as often as they can be drawn."""

    def __init__(
        self, catalogue: Catalogue, ctx: moderngl.Context, gpu_work: GpuWork
    ) -> None:
        self._catalogue = catalogue
        self._ctx = ctx
        self._gpu_work = gpu_work

    def release(self, slot: Slot) -> None:
        """Release an entry that is not visible any more."""
        self._rest(slot)
        has_ended = slot.view is not None and not slot.entry.alive
        if has_ended and slot.source.has_new_value():
            # The last value of an ended run can be read now, or never: also where the
            # view was busy until now.
            self._feed(slot, slot.next_feed)
            self._rest(slot)
        slot.source.release()

    def _rest(self, slot: Slot) -> None:
        """Have a view release what only one that is seen needs."""
        view = slot.view
        if view is not None:
            with self._catalogue.guard(slot):
                view.view.release("idle")

    def work_on(self, slot: Slot) -> None:
        """Have views go on with what they do unseen, also while a fault is shown."""
        for view in list(slot.views.values()):
            with self._catalogue.guard(slot):
                if view.work():
                    self._catalogue.mark(slot)

    def take_in(self, slot: Slot, now: float) -> bool:
        """Hand an entry's new value to its views.

        Returns whether there is one, or will be soon.
        """
        with self._catalogue.guard(slot):
            view = slot.view
            if view is not None and slot.entry.alive and view.wants.stale:
                slot.source.resend()
            if view is not None and slot.entry.fault and view.wants.busy:
                # Viewports do not call it while they show the fault.
                view.tick(now)
            if view is not None and about(view.kind).paced:
                slot.source.tell_pace(self._version_pace(slot), now)
            if not slot.source.has_new_value():
                slot.missed = 0
                return False
            if self._is_ready(slot, now):
                self._feed(slot, now)
            # What was announced and does not come is looked for at the loop's rest.
            return slot.missed < _MAX_MISSES and self._has_ready_screen(slot)
        return False

    def feed_unseen(self, slot: Slot, now: float) -> None:
        """Give a file without views one if others are compared with such files."""
        if about(slot.entry.kind).fed_unseen and slot.source.has_new_value():
            self._feed(slot, now)

    def has_new_value(self, now: float) -> bool:
        """Return whether `Pump.poll` would take a visible value, in a hundredth of its time."""
        try:
            for slot in self._catalogue.watched():
                if slot.source.has_new_value() and self._is_ready(slot, now):
                    return True
            return self._catalogue.links.has_new_frame(now)
        except Exception:
            # `Pump.poll` meets it again, and tells whose fault it is.
            return True

    def _is_ready(self, slot: Slot, now: float) -> bool:
        """Return whether an entry may take another value, which would soon be drawn."""
        if now < slot.next_feed:
            return False
        view = slot.view
        is_paced = view is not None and about(view.kind).paced
        if is_paced and now < self._next_version_at(slot):
            return False
        if not self._is_accepted(slot, now):
            return False
        if view is not None and view.wants.busy:
            view.view.await_value()
            return False
        return True

    def _is_accepted(self, slot: Slot, now: float) -> bool:
        """Return whether a screen that shows an entry would soon show a new value."""
        viewports = self._catalogue.links.viewports_of(slot)
        return any(viewport.user.accepts_value(now) for viewport in viewports)

    def _version_pace(self, slot: Slot) -> float:
        """Return how many versions a second the governor lets an entry take.

        Hardly any if all windows that show it are hidden.
        """
        screens = [v.user.screen for v in self._catalogue.links.viewports_of(slot)]
        if screens and not any(screen.state.visible for screen in screens):
            return UNSEEN_PACE
        governor = self._gpu_work.governor
        return governor.version_pace(slot.entry.rate_hz, _is_moving(slot))

    def _next_version_at(self, slot: Slot) -> float:
        """Return when the governor lets an entry take another version."""
        governor = self._gpu_work.governor
        return governor.next_version(slot.entry.rate_hz, _is_moving(slot))

    def _has_ready_screen(self, slot: Slot) -> bool:
        """Return whether a screen that shows an entry takes pictures.

        A screen that does not wakes the loop itself when it does again.
        """
        viewports = self._catalogue.links.viewports_of(slot)
        return any(takes_pictures(viewport.user.screen) for viewport in viewports)

    def _feed(self, slot: Slot, now: float) -> None:
        """Load an entry's newest value into its views, and time the next one."""
        started_at = time.perf_counter()
        is_taken = False
        is_first = slot.view is None or slot.view.empty or bool(slot.entry.fault)
        with self._catalogue.guard(slot):
            is_taken = slot.source.feed(self._view_for(slot))
            if is_taken:
                slot.entry.fault = ""
                # What is drawn now tells of it; the entry is refreshed in another turn.
                slot.entry.step = slot.source.step
                self._gpu_work.governor.loads_version()
                if is_first:
                    self._catalogue.mark(slot)
                else:
                    self._catalogue.mark_value(slot)
        seconds = time.perf_counter() - started_at
        # Loading a large scene leaves time for the mouse. A frame that was torn or came
        # late is soon tried again.
        slot.next_feed = now
        if seconds > _SLOW_FEED_S:
            slot.next_feed += 2 * seconds
        slot.missed += 1
        if is_taken:
            slot.missed = 0
        if slot.missed > 1:
            pause = min(_FIRST_MISS_S * 2.0 ** min(slot.missed, 30), _LAST_MISS_S)
            slot.next_feed = max(slot.next_feed, now + pause)
        is_plot_only = self._catalogue.links.watched.get(slot) is False
        if is_plot_only:
            slot.next_feed = now + PLOT_PERIOD_S

    def _view_for(self, slot: Slot) -> ShownView:
        """Return a view of an entry; make a new one where its kind has changed."""
        view = slot.view
        if view is None or slot.view_kind != slot.entry.kind:
            slot.close_views()
            view = make_view(slot.entry.kind, self._ctx, self._gpu_work)
            slot.views[None] = view
            slot.view_kind = slot.entry.kind
        return view


def _is_moving(slot: Slot) -> bool:
    """Return whether the camera moves in one of an entry's views."""
    return any(view.wants.moving for view in slot.views.values())
