"""The work of each turn of the loop on the list: entries and views kept up to date.

`Pump.poll` brings the entries up to date with the runs and files, lets viewports choose
what to show, executes queued commands and hands new values to the views. Between two
moves of the pointer only the last of these is done, as a rule.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import moderngl

from splatview_ipc.gl.glapi import gl_device_uuid
from splatview_viewer.core.errors import GpuLostError
from splatview_viewer.core.quantities import publishing_text
from splatview_viewer.kinds import about
from splatview_viewer.ui.recovery import recovering
from splatview_viewer.workspace.feeding import Feeder
from splatview_viewer.workspace.matching import StreamMatcher
from splatview_viewer.workspace.names import preferred_entry
from splatview_viewer.workspace.shards import runs_of

if TYPE_CHECKING:
    from splatview_ipc.subscriber.remote_run import RemoteRun
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.workspace.catalogue import Catalogue, Deferred, ViewportLike
    from splatview_viewer.workspace.slot import Slot

_UPKEEP_PERIOD_S = 0.1
"""The most seconds between two looks at the whole list while the pointer moves."""
_GPU_NEEDED_S = 2.0
"""Seconds after its last publish for which a run still counts as using its GPU."""


class Pump:
    """Keeps a catalogue up to date, and hands new values to its views."""

    def __init__(
        self, catalogue: Catalogue, ctx: moderngl.Context, gpu_work: GpuWork
    ) -> None:
        self._catalogue = catalogue
        self._matcher = StreamMatcher(catalogue)
        self._feeder = Feeder(catalogue, ctx, gpu_work)
        self._gpu_account = gpu_work.governor.account
        self._gpu_uuid = gl_device_uuid(ctx)
        self._gpu_needed_until = 0.0
        self._upkeep_due = 0.0
        """Time from which on moves of the pointer do not postpone the upkeep."""
        self._matched_changes = -1
        """Changes of the subscriber when streams were matched with entries last; -1:
        they have to be matched."""
        self._chosen_of: dict[ViewportLike, tuple[int, str | None]] = {}
        """The list and the entry of each viewport when one was chosen for it last."""

    def poll(
        self, now: float, only_moves: bool = False, only_values: bool = False
    ) -> bool:
        """Bring entries and views up to date; return whether there is news to draw.

        Args:
            now: the clock's seconds.
            only_moves: nothing but the pointer's moves made the loop turn. The list is
                kept up in one of the next turns then, if it may wait and no run has
                news.
            only_values: nothing but a new value made the loop turn, which is drawn
                first. The list is kept up in one of the next turns then, if it may wait
                and no stream came or went.
        """
        catalogue = self._catalogue
        catalogue.shards.tick(now)
        has_changed = catalogue.subscriber.poll()
        if only_values:
            has_changed = catalogue.subscriber.changes != self._matched_changes
        may_wait = only_moves or only_values
        has_commands = False
        if has_changed or not may_wait or not self._may_wait(now):
            self._upkeep_due = now + _UPKEEP_PERIOD_S
            has_commands = self._keep_up(now)
        for slot in list(catalogue.slots.values()):
            if slot.views:
                self._feeder.work_on(slot)
            elif slot.entry.is_file:
                self._feeder.feed_unseen(slot, now)
        has_values = False
        for slot in catalogue.watched():
            has_values |= self._feeder.take_in(slot, now)
        has_linked_values = catalogue.script_controls.read(now)
        has_linked_values |= catalogue.links.read(now)
        return has_commands or has_values or has_linked_values

    def _may_wait(self, now: float) -> bool:
        """Return whether nothing in the list goes on by the clock, or is due."""
        catalogue = self._catalogue
        if catalogue.commands or now >= self._upkeep_due:
            return False
        return not any(slot.source.at_work for slot in catalogue.slots.values())

    def _keep_up(self, now: float) -> bool:
        """Bring the list up to date; return whether commands were executed."""
        catalogue = self._catalogue
        self._gpu_account.shared = self._is_gpu_needed(now)
        changes = catalogue.subscriber.changes
        if changes != self._matched_changes:
            self._matched_changes = changes
            self._matcher.match(now)
        if catalogue.subscriber.fault:
            catalogue.notice(catalogue.subscriber.fault)
        self._refresh_entries(now)
        if catalogue.chooses:
            self._choose_entries()
        has_commands = self._execute_commands()
        catalogue.counts.update(catalogue, now)
        for slot in catalogue.links.update_watched():
            self._feeder.release(slot)
            # The entry of a stream that is gone stays for as long as it is seen.
            self._matched_changes = -1
        catalogue.links.hand_over()
        catalogue.script_controls.update()
        self._matcher.open_oom_snapshots()
        self._matcher.pass_on_selections()
        return has_commands

    def has_new_value(self, now: float) -> bool:
        """Return whether `poll` would take a visible value, in a hundredth of its time."""
        return self._feeder.has_new_value(now)

    # -- entries -----------------------------------------------------------------------

    def _refresh_entries(self, now: float) -> None:
        """Update each entry from its source, and mark the list if it looks different."""
        catalogue = self._catalogue
        runs = catalogue.subscriber.runs
        active_runs = catalogue.activity.take_in(
            runs, time.time(), catalogue.script_controls.versions()
        )
        has_changed = False
        for slot in list(catalogue.slots.values()):
            stream = slot.source.stream
            if not slot.source.rests:
                has_changed |= self._refresh(slot, now)
            elif active_runs and stream is not None and stream.run in active_runs:
                catalogue.activity.write_into(slot)
        if has_changed:
            catalogue.list_changed()

    def _refresh(self, slot: Slot, now: float) -> bool:
        """Update an entry from its source; return whether the list looks different."""
        catalogue = self._catalogue
        entry = slot.entry
        previous_text = _list_text(entry)
        previous_rate = publishing_text(entry.rate_hz)
        previous_progress = entry.progress
        with catalogue.guard(slot):
            slot.source.refresh(entry, now)
            catalogue.activity.write_into(slot)
        catalogue.rate_changes += publishing_text(entry.rate_hz) != previous_rate
        if entry.progress != previous_progress:
            catalogue.mark()
        return _list_text(entry) != previous_text

    def _choose_entries(self) -> None:
        """Have viewports choose anew where the list or what they show has changed."""
        catalogue = self._catalogue
        previous = self._chosen_of
        self._chosen_of = {}
        for viewport in list(catalogue.viewports):
            state = catalogue.list_changes, viewport.key
            if previous.get(viewport) != state:
                self._choose_entry(viewport)
            self._chosen_of[viewport] = state

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

    def _execute(self, command: Deferred) -> None:
        """Execute a command; a failure is shown, and the others go on."""
        try:
            with recovering():
                command.context.run(command.function, *command.values)
        except (moderngl.Error, GpuLostError):
            raise
        except Exception as e:
            self._catalogue.fail(command.title, e)

    # -- the GPU -----------------------------------------------------------------------

    def _is_gpu_needed(self, now: float) -> bool:
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
            is_on_gpu = stream.rate_hz > 0 and bool(stream.gpu)
            if is_on_gpu and (draws_with_cuda or stream.gpu == self._gpu_uuid):
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
