"""What the panel says of comparisons, drawn with imgui."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from imgui_bundle import ImVec2, imgui

from splatview_viewer.compare.together import Together
from splatview_viewer.core.view import Section
from splatview_viewer.kinds import SCENES
from splatview_viewer.scene.turning import STAYS
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from splatview_viewer.compare.comparisons import Comparisons
    from splatview_viewer.compare.pair_view import PairView
    from splatview_viewer.compare.together import Part
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.scene.turning import Triple
    from splatview_viewer.shell.pane import Pane
    from splatview_viewer.workspace.catalogue import Slot

_SCALES = (0.01, 100.0)
_LOGARITHMIC = imgui.SliderFlags_.logarithmic | imgui.SliderFlags_.always_clamp
_FOLD = (imgui.TreeNodeFlags_.span_avail_width | imgui.TreeNodeFlags_.frame_padding
         | imgui.TreeNodeFlags_.no_tree_push_on_open)  # what is behind it has the whole width


def sections_of(comparisons: Comparisons, slot: Slot, pane: Pane) -> list[Section]:
    """The part "Compare" of what a pane shows; none where there is nothing to compare it with."""
    source = slot.source
    if isinstance(source, Together):
        return [Section("Scenes", lambda: _together(comparisons, slot, source, pane), True,
                        "Which scenes are seen in this picture, and where")]
    if not comparisons.candidates(slot) and len(pane.seat.panes) < 2:
        return []
    return [Section("Compare", lambda: _compare(comparisons, slot, pane), False,
                    "Another stream or file in the same picture, or beside it")]


def pair_controls(view: PairView) -> bool:
    """How two things are seen in one picture; True when that changed."""
    s, before = view.settings, replace(view.settings)
    s.how = ui.choice("Compare", s.how, {"split": "Split by a line", "difference": "Difference", "blend": "Blend"})
    if s.how == "difference":
        s.gain = ui.slider("Stronger", s.gain, (1.0, 64.0), "%.0f \u00d7", reset=4.0)
    if s.how == "blend":
        s.at = ui.slider("Second", s.at, (0.0, 1.0), "%.2f", reset=0.5)
    s.alike = ui.check("Same view", s.alike)
    imgui.set_item_tooltip("Both are shown in the same way. Off: only from the same place; what the panel\n"
                           "says is then of the side that was clicked last.")
    return s != before


def _compare(comparisons: Comparisons, slot: Slot, pane: Pane) -> bool:
    found = comparisons.candidates(slot)
    if found:
        key = _choose("With", found, comparisons, pane)
        pressed = ui.buttons("Show", ["Split", "Beside"], [
            "Both in one picture, with a line between them that can be dragged; or their difference",
            "In a pane beside this one; what is moved in one moves in both",
        ])
        if slot.entry.kind in SCENES and ui.buttons("", ["Together"], [
                "Both scenes in one space, each where you like"]) == 0:
            pressed = 2
        if pressed is not None:
            how = ("pair", "beside", "together")[pressed]
            pane.seat.catalogue.do(comparisons.compare, how, pane, key)
    return _tie(comparisons, pane)


def _tie(comparisons: Comparisons, pane: Pane) -> bool:
    if len(pane.seat.panes) < 2:
        return False
    tied = comparisons.tied(pane.seat)
    wanted = ui.check("Tied panes", tied)
    imgui.set_item_tooltip("What is moved in one pane moves in all that show the same kind")
    if wanted != tied:
        pane.seat.catalogue.do(comparisons.tie, pane.seat, wanted)
    return wanted != tied


def _choose(label: str, entries: Sequence[Entry], comparisons: Comparisons, pane: Pane) -> str:
    """The key of one of `entries`, each told from the others; kept for the pane."""
    names, key = [e.name for e in entries], comparisons.chosen.get(pane, "")
    options = {e.key: f"{e.name} \u00b7 {e.group}" if names.count(e.name) > 1 else e.name for e in entries}
    comparisons.chosen[pane] = chosen = ui.choice(label, key if key in options else entries[0].key, options)
    return chosen


# -- several scenes in one picture -------------------------------------------------------------------------------------


def _together(comparisons: Comparisons, slot: Slot, source: Together, pane: Pane) -> bool:
    catalogue = pane.seat.catalogue
    changed = False
    for i, part in enumerate(list(source.parts)):
        entry = catalogue.slots[part.key].entry if part.key in catalogue.slots else None
        imgui.push_id(i)
        changed |= _part(part, "" if entry is None else entry.name, entry, partial(catalogue.do, source.remove, part))
        imgui.pop_id()
    left = [e for e in comparisons.candidates(slot) if all(part.key != e.key for part in source.parts)]
    if left:
        key = _choose("Add", left, comparisons, pane)
        pressed = ui.buttons("", ["Add it"], ["Show this scene in the same picture as well"])
        if pressed is not None:
            pane.seat.catalogue.do(comparisons.together, pane, key)
    return _tie(comparisons, pane) or changed


def _part(part: Part, name: str, entry: Entry | None, remove: Callable[[], None]) -> bool:
    """One scene: whether it is seen, and behind a fold where."""
    before = part.visible, part.placement
    part.visible = imgui.checkbox("##visible", part.visible)[1]
    imgui.set_item_tooltip("Whether this scene is seen")
    imgui.same_line()
    imgui.push_style_var(imgui.StyleVar_.frame_padding, ImVec2(0, imgui.get_style().frame_padding.y))
    opened = imgui.tree_node_ex(f"{name}###place", _FOLD)
    imgui.pop_style_var()
    imgui.set_item_tooltip(f"{name}, {entry.group}: where it is put" if entry is not None else "Where it is put")
    if opened:
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
    return (part.visible, part.placement) != before


def _triple(label: str, value: Triple, speed: float, fmt: str, tip: str) -> Triple:
    """Three numbers to drag, or to type with Ctrl + click."""
    ui.row(label)
    edited, new = imgui.drag_float3(f"##{label}", list(value), speed, 0.0, 0.0, fmt)
    imgui.set_item_tooltip(f"{tip}. Drag, or Ctrl + click to type a number.")
    if not edited:
        return value
    x, y, z = (float(v) for v in list(new)[:3])
    return x, y, z
