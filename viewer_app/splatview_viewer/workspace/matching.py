"""Keep the list of entries in step with the streams that runs publish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.control.memory_snapshots import newest_oom_snapshot
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_viewer.core.settings import Entry
from splatview_viewer.kinds import about
from splatview_viewer.workspace.shards import key_of, title_of
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.workspace.catalogue import Catalogue

_OOM_BEFORE_END_S = 60.0
"""A run that ran out of memory so shortly before its end is taken to have ended by it."""


class StreamMatcher:
    """Adds, continues and removes a catalogue's entries as streams come and go."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._searched_runs: set[str] = set()
        """Ids of the ended runs whose last memory snapshot was looked for."""

    def match(self, now: float) -> None:
        """Give each new stream an entry, and remove entries whose streams are gone.

        A new stream continues the entry of an ended stream of the same name and kind, if
        there is one. Streams that are drawn over others or belong to a whole run, and
        streams of ended runs, get no entry. An entry that a viewport shows stays.

        Args:
            now: time of the loop's turn, in seconds.
        """
        catalogue = self._catalogue
        slot_of_stream = self._slots_by_stream()
        streams = catalogue.shards.update(catalogue.subscriber.streams, now)
        self._report_clashes()
        self._report_refusals()
        present = {id(stream) for stream in streams}
        for stream in streams:
            is_new = id(stream) not in slot_of_stream
            is_entry = not stream.info.over and not about(stream.kind).of_run
            if is_new and is_entry and stream.run.alive:
                self._add_stream(stream, present)
        for slot in slot_of_stream.values():
            # `_add_stream` may have given the slot another stream.
            is_gone = id(slot.source.stream) not in present
            if is_gone and slot not in catalogue.watched():
                catalogue.forget(slot.entry.key)

    def _slots_by_stream(self) -> dict[int, Slot]:
        """Return the slots that follow a stream, by the `id` of the stream."""
        slots = {}
        for slot in self._catalogue.slots.values():
            if slot.source.stream is not None:
                slots[id(slot.source.stream)] = slot
        return slots

    def _report_clashes(self) -> None:
        """Tell users of trainings whose shards cannot be told apart."""
        for _, name, world_size in self._catalogue.shards.clashes:
            self._catalogue.notice(
                f"{name}: two trainings of {world_size} shards look like one. Set "
                "SPLATVIEW_GROUP to a word of its own for each of them"
            )

    def _report_refusals(self) -> None:
        """Tell users of runs that were found and cannot be attached to."""
        for run in self._catalogue.subscriber.runs:
            if run.refused and run.alive and not run.streams:
                self._catalogue.notice(f"{run.name}: {run.refused}")

    def _add_stream(self, stream: Any, present: set[int]) -> None:
        """Continue an entry with a new stream, or make an entry for it.

        Args:
            stream: a `RemoteStream` or `ShardedStream`.
            present: the `id` of each stream that is published now.
        """
        catalogue = self._catalogue
        group = f"{stream.run.name} \u00b7 {stream.run.pid}"
        slot = self._slot_to_continue(stream, group, present)
        if slot is None:
            entry = Entry(
                key_of(stream),
                group,
                title_of(stream),
                stream.kind,
                run_name=stream.run.name,
            )
            catalogue.add(Slot(entry, StreamSource(stream, catalogue.recorder)))
            return
        slot.source.follow(stream)
        slot.entry.group = group
        slot.entry.run_name = stream.run.name
        slot.entry.fault = ""
        catalogue.list_changed()

    def _slot_to_continue(
        self, stream: Any, group: str, present: set[int]
    ) -> Slot | None:
        """Return the slot of an ended stream of the same name and kind; None for none.

        A visible one is preferred, then one of the same group.
        """
        candidates = []
        for slot in self._catalogue.slots.values():
            previous = slot.source.stream
            if previous is None:
                continue
            has_ended = not previous.run.alive or id(previous) not in present
            has_same_name = slot.entry.name == title_of(stream)
            if has_ended and has_same_name and previous.kind == stream.kind:
                candidates.append(slot)
        watched = self._catalogue.watched()

        def preference(slot: Slot) -> tuple[bool, bool]:
            return slot in watched, slot.entry.group == group

        return max(candidates, key=preference, default=None)

    def pass_on_selections(self) -> None:
        """Have views send their selection to scripts that read it."""
        for slot in self._catalogue.slots.values():
            if not about(slot.entry.kind).selected or slot.view is None:
                continue
            stream = slot.source.stream
            send = None
            if isinstance(stream, RemoteStream) and stream.info.wants_selection:
                send = stream.send_selection
            slot.content.send_selection = send

    def open_oom_snapshots(self) -> None:
        """Open the last memory snapshot of each run that ended out of memory.

        Views of the memory of a run learn here how to request a snapshot from it.
        """
        for slot in list(self._catalogue.slots.values()):
            stream = slot.source.stream
            if stream is None or not about(slot.entry.kind).snapshots:
                continue
            if slot.view is not None:
                slot.content.request_snapshot = stream.request_snapshot
            if not stream.run.alive and stream.run.id not in self._searched_runs:
                self._searched_runs.add(stream.run.id)
                self._open_last_snapshot(slot, stream.run)

    def _open_last_snapshot(self, slot: Slot, run: Any) -> None:
        """Open the snapshot that a run wrote if it ended out of memory."""
        earliest = run.ended_at - _OOM_BEFORE_END_S
        path = newest_oom_snapshot(run.id, earliest)
        if path is not None:
            self._show_snapshot(path, slot.entry.key)

    def _show_snapshot(self, path: Path, entry_key: str) -> None:
        """Open a snapshot in the viewports that show its run's entry."""
        catalogue = self._catalogue
        viewports = [v for v in catalogue.viewports if v.key == entry_key]
        if str(path) not in catalogue.slots:
            catalogue.open_file(path, next(iter(viewports), None))
        for viewport in viewports:
            viewport.select(str(path))
