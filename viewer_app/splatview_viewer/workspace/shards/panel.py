"""The part "Shards" of the panel: which ranks there are, and how far each is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.core.settings import Entry
from splatview_viewer.core.view import Section
from splatview_viewer.ui import theme
from splatview_viewer.ui.widgets import entry, gap, wrapped
from splatview_viewer.workspace.catalogue import Slot
from splatview_viewer.workspace.shards.grouping import alone, key_of
from splatview_viewer.workspace.shards.stream import Alone, ShardedStream
from splatview_viewer.workspace.sources import StreamSource

if TYPE_CHECKING:
    from splatview_viewer.core.old_view import View
    from splatview_viewer.workspace.catalogue import Catalogue
    from splatview_viewer.workspace.shards.stream import Part
    from splatview_viewer.workspace.viewport import Viewport


def sections(catalogue: Catalogue, slot: Slot, view: View) -> list[Section]:
    """What is said of the parts of the scene that a pane shows; nothing for others."""
    stream = getattr(slot.source, "stream", None)
    if not isinstance(stream, (ShardedStream, Alone)):
        return []
    pane = next((pane for pane, v in slot.views.items() if v is view and pane in catalogue.panes), None)
    if pane is None:
        return []
    if isinstance(stream, ShardedStream):
        return [Section("Shards", lambda: _shards(catalogue, stream, pane), False,
                        "The processes that train this scene, each with a part of it. Click one to see its part alone")]
    whole = next((s for s in catalogue.shards.streams if stream.part in s.parts), None)
    if whole is None or key_of(whole) not in catalogue.slots:
        return []
    return [Section("Shards", lambda: _shards(catalogue, whole, pane, stream.part), True,
                    "The processes that train one scene, each with a part of it")]


def _shards(catalogue: Catalogue, stream: ShardedStream, pane: Viewport, shown: Part | None = None) -> bool:
    if stream.trouble:
        wrapped(stream.trouble, theme.FAULT)
        gap(2 * theme.scale())
    total = sum(count for _, count, _ in stream.shown)
    dot = theme.ALIVE if stream.run.alive else theme.GONE
    if entry("all", "All", f"{total:,}" if total else "", dot, shown is None) and shown is not None:
        catalogue.do(pane.select, key_of(stream))
    counts = {rank: (count, version) for rank, count, version in stream.shown}
    parts = {part.rank: part for part in stream.parts}
    for rank in range(stream.world):
        part, (count, version) = parts.get(rank), counts.get(rank, (0, 0))
        imgui.push_id(rank)
        if part is None:
            entry("rank", f"Rank {rank}", "not found", theme.GONE, False)
        else:
            right = f"{count:,}   v{version:,}" if part.alive and version else "" if part.alive else "ended"
            dot = theme.FAULT if part.stream.fault else theme.ALIVE if part.alive else theme.GONE
            if entry("rank", f"Rank {rank}", right, dot, part is shown) and part is not shown:
                catalogue.do(show, catalogue, stream, part, pane)
            said = f"Process {part.stream.run.pid} on {part.stream.device}: {count:,} Gaussians, version {version:,}"
            ended = "" if part.alive else "\nIt has ended: these were its last"
            imgui.set_item_tooltip(part.stream.fault or f"{said}{ended}")
        imgui.pop_id()
    return False


def show(catalogue: Catalogue, stream: ShardedStream, part: Part, pane: Viewport) -> None:
    """Have a pane show one rank's part, which is on the list as long as anybody looks at it."""
    made = alone(stream, part)
    key = key_of(made)
    if key not in catalogue.slots:
        whole = catalogue.slots.get(key_of(stream))
        group = whole.entry.group if whole is not None else stream.run.name
        catalogue.add(Slot(Entry(key, group, made.title, stream.kind), StreamSource(made)))
    pane.select(key)
