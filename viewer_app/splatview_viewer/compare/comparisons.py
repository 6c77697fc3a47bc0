"""Comparisons: entries that show others of the list, in one space or beside a line."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from imgui_bundle import ImVec2, imgui

from splatview_viewer.compare.merged import MergedSource, name_of
from splatview_viewer.compare.pair import (
    PairSource,
    PairState,
    PairView,
    distinct_names,
)
from splatview_viewer.compare.ties import Ties
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.settings import Entry
from splatview_viewer.core.view import Section, ShownView
from splatview_viewer.kinds import about
from splatview_viewer.scene.turning import IDENTITY
from splatview_viewer.ui import controls
from splatview_viewer.ui import widgets as ui
from splatview_viewer.workspace.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl

    from splatview_viewer.compare.merged import ComparedScene
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.scene.turning import Triple
    from splatview_viewer.shell.user import User
    from splatview_viewer.shell.viewport import Viewport
    from splatview_viewer.workspace.catalogue import Catalogue

_SCALES = (0.01, 100.0)
_MAX_PLACEMENT = 1e9
"""A typed number beyond this, or one that is none, moves nothing."""
_LOGARITHMIC = imgui.SliderFlags_.logarithmic | imgui.SliderFlags_.always_clamp
# The content of a fold has the whole width.
_FOLD = (
    imgui.TreeNodeFlags_.span_avail_width
    | imgui.TreeNodeFlags_.frame_padding
    | imgui.TreeNodeFlags_.no_tree_push_on_open
)


class Comparisons:
    """Makes comparisons, and ties viewports."""

    def __init__(
        self,
        catalogue: Catalogue,
        ctx: moderngl.Context,
        gpu_work: GpuWork,
        wake: Callable[[], None],
    ) -> None:
        self._catalogue = catalogue
        self._ctx = ctx
        self._gpu_work = gpu_work
        self._wake = wake
        self._chosen_keys: WeakKeyDictionary[Viewport, str] = WeakKeyDictionary()
        """The key of the entry to compare with, as the panel shows it."""
        self._ties = Ties()
        self._count = 0
        """Number of comparisons that were made."""

    def _candidates(self, slot: Slot) -> list[Entry]:
        """Return the entries that one can be compared with."""
        if not about(slot.entry.kind).compared:
            return []
        candidates = []
        for candidate in self._catalogue.slots.values():
            if candidate is not slot and candidate.entry.kind == slot.entry.kind:
                candidates.append(candidate.entry)
        return candidates

    def compare(self, mode: str, viewport: Viewport, key: str) -> None:
        """Show an entry together with the one that a viewport shows.

        Args:
            mode: "pair", "together" or "beside".
            key: the key of the other entry.
        """
        if mode == "beside":
            self.tie(viewport.user, True)
            viewport.user.layout.add(key)
            return
        slot = self._catalogue.slot_of(viewport)
        other_slot = self._catalogue.slots.get(key)
        if slot is None or other_slot is None or slot is other_slot:
            return
        is_comparable = other_slot.entry in self._candidates(slot)
        if mode == "together":
            if is_comparable and about(slot.entry.kind).merged:
                self._put_together(viewport, slot, other_slot)
            else:
                viewport.host.notify("Only scenes can be put together")
        elif is_comparable:
            self._show_pair(viewport, slot, other_slot)
        else:
            viewport.host.notify(
                f"{slot.entry.name} and {other_slot.entry.name} are not of one kind: "
                "nothing to compare"
            )

    def _put_together(self, viewport: Viewport, slot: Slot, other_slot: Slot) -> None:
        """Show the scenes of two entries in one space; a merged scene takes the other."""
        keys = [other_slot.entry.key]
        if isinstance(other_slot.source, MergedSource):
            keys = [compared.key for compared in other_slot.source.scenes]
        try:
            if isinstance(slot.source, MergedSource):
                slot.source.add(keys)
            else:
                source = MergedSource(self._catalogue, self._wake)
                source.add([slot.entry.key, *keys])
                name = name_of([slot.entry, other_slot.entry], " + ")
                self._add(name, slot.entry.kind, source, viewport)
        except ViewerError as e:
            viewport.host.notify(str(e))
        viewport.user.mark()

    def _show_pair(self, viewport: Viewport, slot: Slot, other_slot: Slot) -> None:
        """Show two entries in one picture, with the entry that does so already, if any."""
        keys = slot.entry.key, other_slot.entry.key
        for pair_key, pair_slot in self._catalogue.slots.items():
            source = pair_slot.source
            if isinstance(source, PairSource) and set(source.uses) == set(keys):
                viewport.select(pair_key)
                return
        source = PairSource(self._catalogue, keys, self._ctx, self._gpu_work)
        name = name_of([slot.entry, other_slot.entry], " vs ")
        pair_slot = self._add(name, PairView.kind, source, viewport)
        view = ShownView(PairView(source, PairState()))
        view.update(None)
        pair_slot.views[None] = view
        pair_slot.view_kind = PairView.kind

    def _add(
        self,
        name: str,
        kind: str,
        source: MergedSource | PairSource,
        viewport: Viewport,
    ) -> Slot:
        """Add an entry that shows others to the list, and have a viewport show it."""
        self._count += 1
        key = f"comparison {self._count}"
        slot = Slot(Entry(key, "Compare", name, kind, is_file=True), source)
        self._catalogue.add(slot)
        viewport.select(key)
        return slot

    def tie(self, user: User, tied: bool) -> None:
        """Have the cameras of a user's viewports move together, or no longer."""
        self._ties.set_tied(user, tied)

    def pull(self, user: User) -> None:
        """Move the tied viewports of a user to the place of the one that was moved."""
        self._ties.align(user)

    # -- the panel ---------------------------------------------------------------------

    def sections(self, viewport: Viewport) -> list[Section]:
        """Return the parts of the panel for comparing what a viewport shows."""
        slot = self._catalogue.slot_of(viewport)
        if slot is None or not about(slot.entry.kind).compared:
            return []
        sections = []
        if isinstance(slot.source, MergedSource):
            sections.append(
                Section(
                    "Scenes",
                    partial(self._draw_scenes, slot.source),
                    opened=True,
                    tip="Which scenes are seen in this picture, and where",
                )
            )
        if self._candidates(slot) or len(viewport.user.layout) > 1:
            sections.append(
                Section(
                    "Compare",
                    partial(self._draw_compare, slot, viewport),
                    tip="Another stream or file in the same picture, or beside it",
                )
            )
        return sections

    def _draw_compare(self, slot: Slot, viewport: Viewport) -> None:
        """Draw the choice of another entry, and whether viewports are tied."""
        candidates = self._candidates(slot)
        if candidates:
            self._draw_candidates(slot, viewport, candidates)
        user = viewport.user
        if len(user.layout) > 1:
            was_tied = user in self._ties
            tied = ui.check(
                "Tied panes",
                "What is moved in one pane moves in all that show the same kind",
                was_tied,
            )
            if tied != was_tied:
                self._catalogue.do(self.tie, user, tied)

    def _draw_candidates(
        self, slot: Slot, viewport: Viewport, candidates: Sequence[Entry]
    ) -> None:
        """Draw the choice of another entry, and the ways to compare with it."""
        keys = [entry.key for entry in candidates]
        options = dict(zip(keys, distinct_names(candidates), strict=True))
        chosen_key = self._chosen_keys.get(viewport, "")
        if chosen_key not in options:
            chosen_key = keys[0]
        key = ui.choice(
            "With",
            "The scene that this one is compared with",
            chosen_key,
            options,
        )
        self._chosen_keys[viewport] = key
        pressed = ui.buttons(
            "Show",
            ["Split", "Beside"],
            [
                "Both in one picture, with a line between them that can be dragged; or "
                "their difference",
                "In a pane beside this one; what is moved in one moves in both",
            ],
        )
        if pressed is not None:
            mode = ("pair", "beside")[pressed]
            self._catalogue.do(self.compare, mode, viewport, key)
        if about(slot.entry.kind).merged:
            tip = "Both scenes in one space, each where you like"
            if ui.buttons("", ["Together"], [tip]) == 0:
                self._catalogue.do(self.compare, "together", viewport, key)

    def _draw_scenes(self, source: MergedSource) -> None:
        """Draw a box for each scene that shows it, and a fold with its placement."""
        slots = self._catalogue.slots
        scenes = [compared for compared in source.scenes if compared.key in slots]
        for index, compared in enumerate(scenes):
            entry = slots[compared.key].entry
            imgui.push_id(index)
            compared.visible = imgui.checkbox("##visible", compared.visible)[1]
            controls.tip("Whether this scene is seen")
            imgui.same_line()
            padding = ImVec2(0, imgui.get_style().frame_padding.y)
            imgui.push_style_var(imgui.StyleVar_.frame_padding, padding)
            is_open = imgui.tree_node_ex(f"{entry.name}###place", _FOLD)
            imgui.pop_style_var()
            controls.tip(f"{entry.name}, {entry.group}: where it is put")
            if is_open:
                self._draw_placement(source, compared)
            imgui.pop_id()

    def _draw_placement(self, source: MergedSource, compared: ComparedScene) -> None:
        """Draw where a scene is put, and the buttons that put it back or remove it."""
        placement = compared.placement
        move = _triple(
            "Move",
            placement.move,
            compared.radius / 300,
            "%.4g",
            "World units along x, y and z",
        )
        angles = _triple(
            "Turn",
            placement.turn,
            0.5,
            "%.1f",
            "Degrees around x, then y, then z, about its own middle",
        )
        ui.row("Scale")
        scale = imgui.slider_float(
            "##Scale", placement.scale, *_SCALES, "%.3g \u00d7", _LOGARITHMIC
        )[1]
        # Numbers may be typed.
        is_finite = all(abs(value) < _MAX_PLACEMENT for value in (*move, *angles))
        if is_finite and _SCALES[0] <= scale <= _SCALES[1]:
            compared.placement = replace(placement, move=move, turn=angles, scale=scale)
        pressed = ui.buttons(
            "",
            ["Reset", "Remove"],
            [
                "Back to where it came from",
                "Out of this picture; its entry stays in the list",
            ],
        )
        if pressed == 0:
            compared.placement = IDENTITY
        elif pressed == 1:
            self._catalogue.do(source.remove, compared)
        imgui.dummy(ImVec2(0, 0.2 * imgui.get_font_size()))


def _triple(label: str, value: Triple, speed: float, fmt: str, tip: str) -> Triple:
    """Draw three numbers to drag, or to type with Ctrl + click, and return them."""
    ui.row(label)
    is_edited, edited = imgui.drag_float3(
        f"##{label}", list(value), speed, 0.0, 0.0, fmt
    )
    controls.tip(f"{tip}. Drag, or Ctrl + click to type a number.")
    if not is_edited:
        return value
    x, y, z = edited
    return float(x), float(y), float(z)
