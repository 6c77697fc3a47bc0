"""The parts of the panel for comparisons, drawn with imgui."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.compare.merged import MergedSource
from splatview_viewer.compare.pair import told_apart
from splatview_viewer.core.view import Section
from splatview_viewer.kinds import about
from splatview_viewer.scene.turning import STAYS
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.compare.comparisons import Comparisons
    from splatview_viewer.compare.merged import Part
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.scene.turning import Triple
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.catalogue import Slot

_SCALES = (0.01, 100.0)
_LOGARITHMIC = imgui.SliderFlags_.logarithmic | imgui.SliderFlags_.always_clamp
_FOLD = (imgui.TreeNodeFlags_.span_avail_width | imgui.TreeNodeFlags_.frame_padding
         | imgui.TreeNodeFlags_.no_tree_push_on_open)  # its content has the whole width


def sections_of(comparisons: Comparisons, slot: Slot, viewport: Viewport) -> list[Section]:
    """Return the parts of the panel for an entry that a viewport shows."""
    out, source = [], slot.source
    if isinstance(source, MergedSource):
        out.append(Section("Scenes", partial(_scenes, source, viewport), True,
                           "Which scenes are seen in this picture, and where"))
    if comparisons.candidates(slot) or len(viewport.user.layout) > 1:
        out.append(Section("Compare", partial(_compare, comparisons, slot, viewport), False,
                           "Another stream or file in the same picture, or beside it"))
    return out


def _compare(comparisons: Comparisons, slot: Slot, viewport: Viewport) -> None:
    user, do, found = viewport.user, viewport.user.catalogue.do, comparisons.candidates(slot)
    if found:
        options = dict(zip([entry.key for entry in found], told_apart(found), strict=True))
        key = comparisons.chosen.get(viewport, "")
        comparisons.chosen[viewport] = key = ui.choice("With", key if key in options else found[0].key, options)
        pressed = ui.buttons("Show", ["Split", "Beside"], [
            "Both in one picture, with a line between them that can be dragged; or their difference",
            "In a pane beside this one; what is moved in one moves in both",
        ])
        if about(slot.entry.kind).scene and ui.buttons("", ["Together"], [
                "Both scenes in one space, each where you like"]) == 0:
            pressed = 2
        if pressed is not None:
            do(comparisons.compare, ("pair", "beside", "together")[pressed], viewport, key)
    if len(user.layout) > 1:
        tied = ui.check("Tied panes", user in comparisons.ties)
        imgui.set_item_tooltip("What is moved in one pane moves in all that show the same kind")
        if tied != (user in comparisons.ties):
            do(comparisons.tie, user, tied)


def _scenes(source: MergedSource, viewport: Viewport) -> None:
    catalogue = viewport.user.catalogue
    for i, part in enumerate(source.parts):
        if (slot := catalogue.slots.get(part.key)) is not None:
            imgui.push_id(i)
            _part(part, slot.entry, partial(catalogue.do, source.remove, part))
            imgui.pop_id()


def _part(part: Part, entry: Entry, remove: Callable[[], None]) -> None:
    """One scene: a box that shows it, and a fold with its placement."""
    part.visible = imgui.checkbox("##visible", part.visible)[1]
    imgui.set_item_tooltip("Whether this scene is seen")
    imgui.same_line()
    imgui.push_style_var(imgui.StyleVar_.frame_padding, ImVec2(0, imgui.get_style().frame_padding.y))
    opened = imgui.tree_node_ex(f"{entry.name}###place", _FOLD)
    imgui.pop_style_var()
    imgui.set_item_tooltip(f"{entry.name}, {entry.group}: where it is put")
    if not opened:
        return
    p = part.placement
    move = _triple("Move", p.move, part.radius / 300, "%.4g", "World units along x, y and z")
    turn = _triple("Turn", p.turn, 0.5, "%.1f", "Degrees around x, then y, then z, about its own middle")
    ui.row("Scale")
    scale = imgui.slider_float("##Scale", p.scale, *_SCALES, "%.3g \u00d7", _LOGARITHMIC)[1]
    if all(abs(v) < 1e9 for v in (*move, *turn)) and _SCALES[0] <= scale <= _SCALES[1]:  # numbers can be typed
        part.placement = replace(p, move=move, turn=turn, scale=scale)
    pressed = ui.buttons("", ["Reset", "Remove"], ["Back to where it came from",
                                                   "Out of this picture; its entry stays in the list"])
    if pressed == 0:
        part.placement = STAYS
    elif pressed == 1:
        remove()
    imgui.dummy(ImVec2(0, 0.2 * imgui.get_font_size()))


def _triple(label: str, value: Triple, speed: float, fmt: str, tip: str) -> Triple:
    """Three numbers to drag, or to type with Ctrl + click."""
    ui.row(label)
    edited, new = imgui.drag_float3(f"##{label}", list(value), speed, 0.0, 0.0, fmt)
    imgui.set_item_tooltip(f"{tip}. Drag, or Ctrl + click to type a number.")
    return (float(new[0]), float(new[1]), float(new[2])) if edited else value
