"""The part "Shards" of the panel: the ranks of a scene, and how far each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.settings import Entry
from splatview_viewer.core.view import Section
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import entry, gap, wrapped
from splatview_viewer.workspace.catalogue import Slot
from splatview_viewer.workspace.shards import ShardedStream, key_of, streams_of, title_of
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_viewer.core.view import ShownView
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.viewport import Viewport


def sections(catalogue: Catalogue, slot: Slot, view: ShownView) -> list[Section]:
    """Return what is said of the parts of the scene that a viewport shows; nothing for others."""
    stream = slot.source.stream
    whole = next((whole for whole in catalogue.shards.streams if stream is whole or stream in streams_of(whole)), None)
    viewport = next((there for there, v in slot.views.items() if v is view and there in catalogue.viewports), None)
    if whole is None or viewport is None or key_of(whole) not in catalogue.slots:
        return []
    return [Section("Shards", lambda: _shards(catalogue, whole, viewport, stream), stream is not whole,
                    "The processes that train this scene, each with a part of it. Click one to see its part alone")]


def _shards(catalogue: Catalogue, whole: ShardedStream, viewport: Viewport, shown: object) -> bool:
    if whole.trouble:
        wrapped(whole.trouble, theme.FAULT)
        gap(2 * theme.scale())
    total = sum(count for _, count, _ in whole.shown)
    dot = theme.ALIVE if whole.run.alive else theme.GONE
    if entry("all", "All", f"{total:,}" if total else "", dot, shown is whole) and shown is not whole:
        catalogue.do(viewport.select, key_of(whole))
    counts = {rank: (count, version) for rank, count, version in whole.shown}
    parts = {part.rank: part for part in whole.parts}
    for rank in range(whole.world):
        part, (count, version) = parts.get(rank), counts.get(rank, (0, 0))
        imgui.push_id(rank)
        if part is None:
            entry("rank", f"Rank {rank}", "not found", theme.GONE, False)
        else:
            right = f"{count:,}   v{version:,}" if part.alive and version else "" if part.alive else "ended"
            dot = theme.FAULT if part.stream.fault else theme.ALIVE if part.alive else theme.GONE
            here = part.stream is shown
            if entry("rank", f"Rank {rank}", right, dot, here) and not here:
                catalogue.do(show, catalogue, part.stream, viewport)
            said = f"Process {part.stream.run.pid} on {part.stream.device}: {count:,} Gaussians, version {version:,}"
            ended = "" if part.alive else "\nIt has ended: these were its last"
            imgui.set_item_tooltip(part.stream.fault or f"{said}{ended}")
        imgui.pop_id()
    return False


def show(catalogue: Catalogue, stream: RemoteStream, viewport: Viewport) -> None:
    """Have a viewport show one rank's part, which is on the list as long as a viewport shows it."""
    key = key_of(stream)
    if key not in catalogue.slots:
        shown = catalogue.shown(viewport)
        group = shown.entry.group if shown is not None else stream.run.name
        catalogue.add(Slot(Entry(key, group, title_of(stream), stream.kind), StreamSource(stream)))
    viewport.select(key)
