"""Which streams become entries of the viewer's list, which entry one continues, and what is shown first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.core.settings import Entry
from splatview_viewer.kinds import OVERLAYS, rank_of
from splatview_viewer.workspace.shards.grouping import key_of, title_of
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.workspace.catalogue import Catalogue, Slot
    from splatview_viewer.workspace.viewport import Viewport


def match_streams(catalogue: Catalogue) -> None:
    """A new stream continues where one of its name and kind ended; otherwise it is a new entry."""
    from splatview_viewer.workspace.catalogue import Slot

    slots = catalogue.slots
    followed: dict[int, Slot] = {
        id(slot.source.stream): slot for slot in slots.values() if isinstance(slot.source, StreamSource)
    }
    there = catalogue.shards.update(catalogue.subscriber.streams)
    catalogue.shards.say(catalogue.notices)
    for stream in there:
        if id(stream) in followed or not stream.run.alive:  # an ended one is shown already, or was continued
            continue
        if stream.kind in OVERLAYS or stream.info.over:
            continue
        slot = _ended_like(catalogue, stream)
        if slot is not None and isinstance(slot.source, StreamSource):
            slot.source.follow(stream)
            slot.entry.group, slot.entry.fault = _group(stream), ""
        else:
            entry = Entry(key_of(stream), _group(stream), title_of(stream), stream.kind)
            slots[entry.key] = Slot(entry, StreamSource(stream, catalogue.recorder))
        catalogue.list_changed()
    present = {id(stream) for stream in there}
    for slot in followed.values():
        gone = isinstance(slot.source, StreamSource) and id(slot.source.stream) not in present
        if gone and slot not in catalogue.watched():
            catalogue.forget(slot.entry.key)


def _ended_like(catalogue: Catalogue, stream: RemoteStream) -> Slot | None:
    """The entry that a new stream continues: the one shown before others, the same run's name before others."""
    fits = [slot for slot in catalogue.slots.values() if isinstance(slot.source, StreamSource)
            and not slot.source.stream.run.alive and slot.entry.name == title_of(stream)
            and slot.source.stream.kind == stream.kind]
    watched = catalogue.watched()
    return max(fits, default=None, key=lambda s: (s in watched, s.entry.group == _group(stream)))


def first_choice(catalogue: Catalogue, pane: Viewport) -> str | None:
    """What a pane shows while nobody has chosen: a live stream, Gaussians before others, memory and curves last, the
    newest before older; then a file. What was found first gives way to better of its run, which often comes a little
    later. None: what it shows already."""
    def rank(slot: Slot) -> int:
        return -rank_of(slot.entry.kind)

    slots = list(catalogue.slots.values())
    if (shown := catalogue.shown(pane)) is not None:
        slots = [s for s in slots if s.entry.alive and not s.entry.is_file
                 and s.entry.group == shown.entry.group and rank(s) > rank(shown)]
    if not slots:
        return None
    best = max(range(len(slots)), key=lambda i: (
        slots[i].entry.alive, not slots[i].entry.is_file, rank(slots[i]), i))
    return slots[best].entry.key


def _group(stream: RemoteStream) -> str:
    return f"{stream.run.name} \u00b7 {stream.run.pid}"
