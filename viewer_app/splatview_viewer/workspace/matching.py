"""Entries for the streams of runs, and for the memory snapshots of runs that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_ipc.control.memory_snapshots import newest_oom_snapshot
from splatview_viewer.core.settings import Entry
from splatview_viewer.kinds import about
from splatview_viewer.workspace.shards import key_of, title_of
from splatview_viewer.workspace.slot import Slot
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.workspace.catalogue import Catalogue

_OOM_BEFORE_END_S = 60.0
"""Seconds before a run's end in which running out of memory counts as the reason."""


class StreamMatcher:
    """Matches the streams that runs publish with the entries of a catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._ended_runs: set[str] = set()
        """Ids of the runs whose last memory snapshot was looked for."""

    def match(self, now: float) -> None:
        """Give each new stream an entry, and remove entries whose streams are gone.

        A new stream continues the entry of an ended stream of its name and kind, if
        there is one. Streams over others have no entries, and ended streams get none.
        """
        catalogue = self._catalogue
        followed = {}
        for slot in catalogue.slots.values():
            if slot.source.stream is not None:
                followed[id(slot.source.stream)] = slot
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
            slot.entry.run_name = stream.run.name
            slot.entry.fault = ""
            catalogue.list_changed()
            return
        entry = Entry(
            key_of(stream),
            group,
            title_of(stream),
            stream.kind,
            run_name=stream.run.name,
        )
        catalogue.add(Slot(entry, StreamSource(stream, catalogue.recorder)))

    def _slot_to_continue(
        self, stream: Any, group: str, present: set[int]
    ) -> Slot | None:
        """Return the entry of an ended stream of this name and kind.

        A visible one is preferred, then one of a run of the same name.
        """

        def has_ended(previous: Any) -> bool:
            return not previous.run.alive or id(previous) not in present

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

    def open_oom_snapshots(self) -> None:
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
            catalogue.open_file(path, next(iter(viewports), None))
        for viewport in viewports:
            viewport.select(str(path))
