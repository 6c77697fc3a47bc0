"""The work of each turn of the loop on the list: entries and views kept up to date.

`Pump.poll` brings the entries up to date with the runs and files, lets viewports choose
what to show, executes queued commands and hands new values to the views.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import moderngl

from splatview_ipc.control.memory_snapshots import newest_oom_snapshot
from splatview_ipc.gl.glapi import gl_device_uuid
from splatview_viewer.core.errors import GpuLostError
from splatview_viewer.core.settings import Entry
from splatview_viewer.kinds import about, make_view
from splatview_viewer.ui.recovery import recovering
from splatview_viewer.workspace.links import PLOT_PERIOD_S
from splatview_viewer.workspace.names import preferred_entry
from splatview_viewer.workspace.shards import key_of, runs_of, title_of
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_viewer.core.view import ShownView
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.workspace.catalogue import Catalogue, Command, ViewportLike

_GPU_NEEDED_S = 2.0
"""Seconds after its last publish for which a run still counts as using its GPU."""
_FIRST_MISS_S = 0.000125
"""Seconds to the second attempt to read what was announced and has not come; each
further attempt doubles them."""
_LAST_MISS_S = 1 / 15
"""The most seconds between two attempts."""
_MAX_MISSES = 12
"""Attempts after which an announced value does not keep the loop awake any more."""
_OOM_BEFORE_END_S = 60.0
"""Seconds before a run's end in which running out of memory counts as the reason."""
_SLOW_FEED_S = 0.02
"""Seconds of loading a value from which on the next one is delayed."""


class Pump:
    """Keeps a catalogue up to date, and hands new values to its views."""

    def __init__(
        self, catalogue: Catalogue, ctx: moderngl.Context, work: GpuWork
    ) -> None:
        self._catalogue = catalogue
        self._ctx = ctx
        self._work = work
        self._gpu_uuid = gl_device_uuid(ctx)
        self._gpu_needed_until = 0.0
        self._ended_runs: set[str] = set()
        """Ids of the runs whose last memory snapshot was looked for."""

    def poll(self, now: float) -> bool:
        """Bring entries and views up to date; return whether there is news to draw."""
        catalogue = self._catalogue
        catalogue.shards.tick(now)
        if catalogue.subscriber.poll():
            self._match_streams(now)
        if catalogue.subscriber.fault:
            catalogue.notice(catalogue.subscriber.fault)
        self._refresh_entries(now)
        if catalogue.chooses:
            for viewport in list(catalogue.viewports):
                self._choose_entry(viewport)
        has_commands = self._execute_commands()
        catalogue.counts.update(catalogue, now)
        for slot in catalogue.links.update_watched():
            self._let_go(slot)
        catalogue.links.hand_over()
        self._open_oom_snapshots()
        for slot in list(catalogue.slots.values()):
            self._work_on(slot)
        has_values = False
        for slot in catalogue.watched():
            has_values |= self._take_in(slot, now)
        has_linked_values = catalogue.links.read(now)
        return has_commands or has_values or has_linked_values

    # -- entries -----------------------------------------------------------------------

    def _refresh_entries(self, now: float) -> None:
        """Update each entry from its source, and mark the list if it looks different."""
        catalogue = self._catalogue
        has_changed = False
        for slot in list(catalogue.slots.values()):
            if slot.source.rests:
                continue
            entry = slot.entry
            previous_text = _list_text(entry)
            previous_rate = entry.rate_hz
            previous_progress = entry.progress
            with catalogue.guard(slot):
                slot.source.refresh(entry, now)
            has_changed |= _list_text(entry) != previous_text
            catalogue.rate_changes += entry.rate_hz != previous_rate
            if entry.progress != previous_progress:
                catalogue.mark()
        if has_changed:
            catalogue.list_changed()

    def _choose_entry(self, viewport: ViewportLike) -> None:
        """Have a viewport whose user has chosen nothing show the preferred entry.

        An entry that was chosen so gives way only to a better one of its run, which was
        published later.
        """
        if viewport.key is not None and not viewport.by_itself:
            return
        catalogue = self._catalogue
        candidates = [slot.entry for slot in catalogue.slots.values()]
        slot = catalogue.slot_of(viewport)
        if slot is not None:
            candidates = [
                entry for entry in candidates if _is_better(entry, slot.entry)
            ]
        entry = preferred_entry(candidates)
        if entry is not None:
            catalogue.show(viewport, entry.key)

    def _execute_commands(self) -> bool:
        """Execute the queued commands; return whether there were any."""
        commands = self._catalogue.commands
        has_commands = bool(commands)
        while commands:
            self._execute(commands.popleft())
        return has_commands

    def _execute(self, command: Command) -> None:
        """Execute a command; a failure is shown, and the others go on."""
        try:
            with recovering():
                command.function(*command.values)
        except (moderngl.Error, GpuLostError):
            raise
        except Exception as e:
            self._catalogue.fail(command.title, e)

    def _match_streams(self, now: float) -> None:
        """Give each new stream an entry, and remove entries whose streams are gone.

        A new stream continues the entry of an ended stream of its name and kind, if
        there is one. Streams over others have no entries, and ended streams get none.
        """
        catalogue = self._catalogue
        followed = {
            id(slot.source.stream): slot
            for slot in catalogue.slots.values()
            if slot.source.stream is not None
        }
        streams = catalogue.shards.update(catalogue.subscriber.streams, now)
        present = {id(stream) for stream in streams}
        for _, name, world_size in catalogue.shards.clashes:
            catalogue.notice(
                f"{name}: two trainings of {world_size} shards look like one. Set "
                "SPLATVIEW_GROUP to a word of its own for each of them"
            )
        for stream in streams:
            is_new = id(stream) not in followed
            if is_new and stream.run.alive and not stream.info.over:
                self._add_stream(stream, present)
        for slot in followed.values():
            is_followed = id(slot.source.stream) in present
            if not is_followed and slot not in catalogue.watched():
                catalogue.forget(slot.entry.key)

    def _add_stream(self, stream: Any, present: set[int]) -> None:
        """Continue an entry with a new stream, or make one for it.

        present: the `id` of each stream that there is.
        """
        catalogue = self._catalogue
        group = f"{stream.run.name} \u00b7 {stream.run.pid}"
        slot = self._slot_to_continue(stream, group, present)
        if slot is not None:
            slot.source.follow(stream)
            slot.entry.group = group
            slot.entry.fault = ""
            catalogue.list_changed()
            return
        entry = Entry(key_of(stream), group, title_of(stream), stream.kind)
        catalogue.add(Slot(entry, StreamSource(stream, catalogue.recorder)))

    def _slot_to_continue(
        self, stream: Any, group: str, present: set[int]
    ) -> Slot | None:
        """Return the entry of an ended stream of this name and kind.

        A visible one is preferred, then one of a run of the same name.
        """

        def has_ended(other: Any) -> bool:
            return not other.run.alive or id(other) not in present

        candidates = []
        for slot in self._catalogue.slots.values():
            previous_stream = slot.source.stream
            if previous_stream is None or not has_ended(previous_stream):
                continue
            if (
                slot.entry.name == title_of(stream)
                and previous_stream.kind == stream.kind
            ):
                candidates.append(slot)
        watched = self._catalogue.watched()

        def preference(slot: Slot) -> tuple[bool, bool]:
            return slot in watched, slot.entry.group == group

        return max(candidates, key=preference, default=None)

    def _open_oom_snapshots(self) -> None:
        """Open the last memory snapshot of each run that ended out of memory."""
        for slot in list(self._catalogue.slots.values()):
            stream = slot.source.stream
            if stream is None or not about(slot.entry.kind).snapshots:
                continue
            if slot.view is not None:
                slot.content.ask = stream.request_snapshot
            if stream.run.alive or stream.run.id in self._ended_runs:
                continue
            self._ended_runs.add(stream.run.id)
            earliest = stream.run.ended_at - _OOM_BEFORE_END_S
            path = newest_oom_snapshot(stream.run.id, earliest)
            if path is not None:
                self._show_snapshot(path, slot.entry.key)

    def _show_snapshot(self, path: Path, entry_key: str) -> None:
        """Open a snapshot in the viewports that show its run's entry."""
        catalogue = self._catalogue
        viewports = [v for v in catalogue.viewports if v.key == entry_key]
        if str(path) not in catalogue.slots:
            catalogue.open_file(path, viewports[0] if viewports else None)
        for viewport in viewports:
            viewport.select(str(path))

    # -- values ------------------------------------------------------------------------

    def _let_go(self, slot: Slot) -> None:
        """Release an entry that is not visible any more."""
        view = slot.view
        if view is not None:
            has_last_value = not slot.entry.alive and slot.source.has_new_value()
            if has_last_value and not view.wants.busy:
                # The last value of an ended run can be read now, or never.
                self._feed(slot, slot.next_feed)
            with self._catalogue.guard(slot):
                (slot.view or view).view.release("idle")
        slot.source.release()

    def _work_on(self, slot: Slot) -> None:
        """Have views go on with what they do unseen, also while a fault is shown."""
        for view in list(slot.views.values()):
            with self._catalogue.guard(slot):
                if view.work():
                    self._catalogue.mark(slot)

    def _take_in(self, slot: Slot, now: float) -> bool:
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
            if not slot.source.has_new_value():
                slot.missed = 0
                return False
            if self._is_ready(slot, now):
                self._feed(slot, now)
            # What was announced and does not come is looked for at the loop's rest.
            return slot.missed < _MAX_MISSES and self._has_ready_screen(slot)
        return False

    def has_new_value(self, now: float) -> bool:
        """Return whether `poll` would take a visible value. Costs a hundredth of it."""
        try:
            for slot in self._catalogue.watched():
                if slot.source.has_new_value() and self._is_ready(slot, now):
                    return True
            return self._catalogue.links.has_new_frame(now)
        except Exception:
            # `poll` meets it again, and tells whose fault it is.
            return True

    def _is_ready(self, slot: Slot, now: float) -> bool:
        """Return whether an entry may take another value, which would soon be drawn."""
        if now < slot.next_feed:
            return False
        view = slot.view
        if view is not None:
            if view.wants.busy:
                return False
            if about(view.kind).paced and now < self._next_version_at(slot):
                return False
        links = self._catalogue.links
        return any(
            viewport.user.accepts_value(now)
            for viewport in self._catalogue.viewports
            if links.is_visible_in(viewport, slot)
        )

    def _next_version_at(self, slot: Slot) -> float:
        """Return when the governor lets an entry take another version."""
        is_moving = any(view.wants.moving for view in slot.views.values())
        return self._work.governor.next_version(slot.entry.rate_hz, is_moving)

    def _has_ready_screen(self, slot: Slot) -> bool:
        """Return whether a screen that shows an entry takes pictures.

        A screen that does not wakes the loop itself when it does again.
        """
        for viewport in self._catalogue.viewports:
            if self._catalogue.links.is_visible_in(viewport, slot):
                state = viewport.user.screen.state
                if state.visible and state.ready:
                    return True
        return False

    def _feed(self, slot: Slot, now: float) -> None:
        """Load an entry's newest value into its views, and time the next one."""
        started_at = time.perf_counter()
        is_taken = False
        with self._catalogue.guard(slot):
            is_taken = slot.source.feed(self._view_for(slot))
            if is_taken:
                slot.entry.fault = ""
                self._work.governor.loads_version()
                self._catalogue.mark(slot)
        seconds = time.perf_counter() - started_at
        # Loading a large scene leaves time for the mouse. A frame that was torn or came
        # late is soon tried again.
        slot.next_feed = now + (2 * seconds if seconds > _SLOW_FEED_S else 0.0)
        slot.missed = 0 if is_taken else slot.missed + 1
        if slot.missed > 1:
            pause = min(_FIRST_MISS_S * 2.0 ** min(slot.missed, 30), _LAST_MISS_S)
            slot.next_feed = max(slot.next_feed, now + pause)
        is_plot_only = self._catalogue.links.watched.get(slot) is False
        if is_plot_only:
            slot.next_feed = now + PLOT_PERIOD_S

    def _view_for(self, slot: Slot) -> ShownView:
        """Return a view of an entry, made anew where the entry has become another kind."""
        view = slot.view
        if view is None or slot.view_kind != slot.entry.kind:
            slot.close_views()
            view = make_view(slot.entry.kind, self._ctx, self._work)
            slot.views[None] = view
            slot.view_kind = slot.entry.kind
        return view

    # -- the GPU -----------------------------------------------------------------------

    def gpu_is_needed(self, now: float) -> bool:
        """Return whether a visible run publishes from a GPU that the viewer uses.

        The viewer uses the GPU of OpenGL, and the one that holds what CUDA draws.
        """
        for slot in self._catalogue.watched():
            if slot.source.stream is None:
                continue
            draws_with_cuda = False
            with self._catalogue.guard(slot):
                draws_with_cuda = slot.view is not None and slot.view.wants.cuda
            for run in runs_of(slot.source.stream):
                if run.alive and self._shares_gpu(run, draws_with_cuda):
                    self._gpu_needed_until = now + _GPU_NEEDED_S
        return now < self._gpu_needed_until

    def _shares_gpu(self, run: RemoteRun, draws_with_cuda: bool) -> bool:
        """Return whether a run publishes a stream from a GPU that the viewer uses."""
        for stream in run.streams.values():
            if stream.rate_hz > 0 and stream.gpu:
                if draws_with_cuda or stream.gpu == self._gpu_uuid:
                    return True
        return False


def _list_text(entry: Entry) -> tuple[object, ...]:
    """Return what the list shows of an entry, beside its rate and progress."""
    return (
        entry.alive,
        entry.kind,
        entry.fault_of_source,
        entry.paused,
        entry.paused and entry.waits,
        entry.progress is None,
    )


def _is_better(entry: Entry, shown_entry: Entry) -> bool:
    """Return whether an entry is a live stream of the same run and of a lower rank."""
    if not entry.alive or entry.is_file or entry.group != shown_entry.group:
        return False
    return about(entry.kind).rank < about(shown_entry.kind).rank
