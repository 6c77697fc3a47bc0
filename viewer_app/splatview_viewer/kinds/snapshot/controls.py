"""The controls of the view in the panel on the left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imgui_bundle import imgui

from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.analysis import ColorBy
    from splatview_viewer.kinds.snapshot.content import Content
    from splatview_viewer.kinds.snapshot.state import Look

_COLORS: dict[ColorBy, str] = {"stack": "Stack", "category": "What it is", "size": "Size", "age": "Lifetime",
                               "stream": "Stream", "pool": "Memory pool"}


def draw_controls(content: Content, look: Look) -> None:
    """Inside a window of imgui's that is open."""
    s, snapshot = look.settings, content.snapshot
    if len(snapshot.traces) > 1:
        names = {k: f"GPU {t.device}" if t.device >= 0 else "host" for k, t in enumerate(snapshot.traces)}
        look.show_device(ui.choice("Device", look.device, names))
    s.color_by = ui.choice("Colour", s.color_by, _COLORS)
    axis = content.axis(look.device, "time")
    if axis is not None and axis.timed:
        s.unit = ui.choice("Axis", s.unit, {"events": "Events", "time": "Clock"})
    elif axis is not None:
        s.unit = "events"
    ui.row("Reserved")
    s.reserved = imgui.checkbox("##reserved", s.reserved)[1]
    imgui.set_item_tooltip("What the allocator has from the driver, behind what is in use")
    if len(snapshot.pools) > 1:
        ui.row("Pools")
        s.lanes = imgui.checkbox("##lanes", s.lanes)[1]
        imgui.set_item_tooltip("Each memory pool in a lane of its own: the default one, those of CUDA graphs")
    ui.row("Legend")
    s.legend = imgui.checkbox("##legend", s.legend)[1]
