"""The sections of the tab Compare: A and B, and scenes that are put together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from imgui_bundle import ImVec2, imgui

from splatview_viewer.compare.arrangement import Pairing, panes_of
from splatview_viewer.compare.merged import MergedSource
from splatview_viewer.compare.pair_words import distinct_names
from splatview_viewer.core.quantities import psnr_text
from splatview_viewer.core.view import Section
from splatview_viewer.kinds import can_be_merged
from splatview_viewer.scene.turning import IDENTITY
from splatview_viewer.ui import choices, controls, sides, theme
from splatview_viewer.ui import widgets as ui
from splatview_viewer.ui.drags import drag_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.compare.arrangement import Arrangement, Panes
    from splatview_viewer.compare.comparisons import Comparisons
    from splatview_viewer.compare.merged import ComparedScene
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.scene.turning import Triple
    from splatview_viewer.shell.viewport import Viewport

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
_GAINS = (1.0, 32.0)
"""The smallest and the largest gain of a difference."""
_WAYS: dict[Arrangement, str] = {"beside": "Beside", "split": "Split", "blend": "Over"}


class CompareSections:
    """Draws the sections about a comparison, and does what is chosen there."""

    def __init__(self, comparisons: Comparisons) -> None:
        self._comparisons = comparisons

    def of_viewport(self, viewport: Viewport) -> list[Section]:
        """Return the sections for what a viewport shows."""
        sections = []
        pairing = self._comparisons.pairing(viewport)
        if pairing is not None:
            panes = panes_of(viewport.user, pairing)
            state = "not yet shown"
            if panes.arrangement is not None:
                state = _WAYS[panes.arrangement]
            sections.append(
                Section(
                    "What is compared",
                    partial(self._draw_pairing, viewport, pairing, panes),
                    opened=True,
                    tip="Two scenes or two pictures, A and B",
                    tab="compare",
                    state=state,
                )
            )
        if viewport.slot is None:
            source = None
        else:
            source = viewport.slot.source
        if isinstance(source, MergedSource):
            sections.append(
                Section(
                    "Together",
                    partial(self._draw_scenes, viewport, source),
                    opened=True,
                    tip="Which scenes are seen in this picture, and where",
                    tab="compare",
                    state=f"{len(source.scenes)} scenes",
                )
            )
        elif pairing is not None and self._can_merge(pairing):
            sections.append(
                Section(
                    "Together",
                    partial(self._draw_merge, viewport, pairing),
                    tip="Both scenes in one space, each where it is put",
                    tab="compare",
                    state="none",
                )
            )
        return sections

    def _can_merge(self, pairing: Pairing) -> bool:
        slots = self._comparisons.catalogue.slots
        return can_be_merged(*(slots[key].entry.kind for key in pairing))

    # -- what is compared --------------------------------------------------------------

    def _draw_pairing(self, viewport: Viewport, pairing: Pairing, panes: Panes) -> None:
        """Draw A and B, how they are shown, in what they are tied, their difference."""
        comparisons = self._comparisons
        do = comparisons.catalogue.do
        self._draw_sides(viewport, pairing)
        options: dict[Any, str] = {**_WAYS}
        arrangement = ui.segments(
            "Show",
            "A and B in a pane each, beside a line in one picture, or B over A",
            panes.arrangement,
            options,
        )
        if arrangement is not None and arrangement != panes.arrangement:
            do(comparisons.show, viewport, pairing, arrangement)
        if panes.arrangement == "blend":
            self._draw_opacity(viewport, pairing)
        elif panes.arrangement == "split":
            _draw_line_position(panes)
        self._draw_ties(viewport)
        has_difference = panes.difference is not None
        wants_difference = ui.check(
            "Difference",
            "How far A and B are apart, beside them: black is equal",
            has_difference,
            "in a pane of its own",
        )
        if wants_difference != has_difference:
            do(comparisons.show_difference, viewport, pairing, wants_difference)
        settings = comparisons.of_user(viewport.user)
        gain = ui.slider(
            "Amplify",
            "Factor on the difference",
            settings.gain,
            _GAINS,
            "%.1f \u00d7",
            reset=4.0,
            log=True,
        )
        if gain != settings.gain:
            comparisons.set_gain(viewport.user, pairing, gain)
        self._draw_psnr(viewport, pairing, panes)

    def _draw_sides(self, viewport: Viewport, pairing: Pairing) -> None:
        """Draw A and B, each a list to choose from, and the button that swaps them."""
        do = self._comparisons.catalogue.do
        slots = self._comparisons.catalogue.slots
        kind = slots[pairing.first].entry.kind
        entries = self._comparisons.candidates(kind)
        options = dict(zip(map(_key_of, entries), _long_names(entries), strict=True))
        first = sides.draw_side("A", 0, pairing.first, options)
        imgui.same_line(0, 2 * theme.scale())
        if controls.icon_button("swap", "swap", hint="Swap A and B"):
            do(self._comparisons.choose, viewport, pairing.swapped)
        second = sides.draw_side("B", 1, pairing.second, options)
        if first == pairing.second or second == pairing.first:
            do(self._comparisons.choose, viewport, pairing.swapped)
        elif (first, second) != pairing:
            do(self._comparisons.choose, viewport, Pairing(first, second))

    def _draw_opacity(self, viewport: Viewport, pairing: Pairing) -> None:
        settings = self._comparisons.of_user(viewport.user)
        opacity = ui.slider(
            "Opacity", "Of B over A", settings.opacity, (0.0, 1.0), "%.2f", reset=0.5
        )
        if opacity != settings.opacity:
            self._comparisons.set_opacity(viewport.user, pairing, opacity)

    def _draw_ties(self, viewport: Viewport) -> None:
        """Draw in what the tied panes follow each other."""
        ties = self._comparisons.ties
        user_ties = ties.of_user(viewport.user)
        gap = 4 * theme.scale()
        ui.row("Tied")
        camera = choices.toggle(
            "Camera", user_ties.camera, "A camera or place that is moved moves in all"
        )
        imgui.same_line(0, gap)
        step = choices.toggle(
            "Step", user_ties.step, "A step of the training is gone to in all"
        )
        imgui.same_line(0, gap)
        is_look_tied = choices.toggle(
            "Look", user_ties.look, "All show it in the same way"
        )
        if (camera, step, is_look_tied) != (
            user_ties.camera,
            user_ties.step,
            user_ties.look,
        ):
            ties.choose(viewport.user, camera=camera, step=step, look=is_look_tied)

    def _draw_psnr(self, viewport: Viewport, pairing: Pairing, panes: Panes) -> None:
        """Write how alike A and B are."""
        psnr = self._comparisons.psnr(viewport.user, pairing)
        ui.row("A against B")
        imgui.align_text_to_frame_padding()
        if psnr is not None:
            ui.colored(psnr_text(psnr), theme.TEXT)
        elif panes.arrangement is None:
            ui.colored("measured once both are seen", theme.FAINT)
        else:
            ui.colored("is being measured", theme.FAINT)
        controls.tip("Peak signal-to-noise ratio of A and B as they are seen from here")

    # -- together ----------------------------------------------------------------------

    def _draw_merge(self, viewport: Viewport, pairing: Pairing) -> None:
        """Draw the button that puts two scenes into one space."""
        tip = "A and B in one space, each where it is put"
        if ui.buttons("", ["Put both in one picture"], [tip], ["together"]) == 0:
            pane = viewport
            if viewport.key not in pairing:
                panes = panes_of(viewport.user, pairing)
                pane = panes.joint or panes.first or viewport
            key = pairing.second
            if pane.key == key:
                key = pairing.first
            compare = self._comparisons.compare
            viewport.user.do(compare, "together", pane, key)

    def _draw_scenes(self, viewport: Viewport, source: MergedSource) -> None:
        """Draw a box for each scene that shows it, and a fold with its placement."""
        slots = self._comparisons.catalogue.slots
        scenes = [compared for compared in source.scenes if compared.key in slots]
        names = distinct_names([slots[compared.key].entry for compared in scenes])
        for index, (compared, name) in enumerate(zip(scenes, names, strict=True)):
            entry = slots[compared.key].entry
            imgui.push_id(index)
            compared.visible = choices.check_box("visible", compared.visible)
            controls.tip("Whether this scene is seen")
            imgui.same_line()
            padding = ImVec2(0, imgui.get_style().frame_padding.y)
            imgui.push_style_var(imgui.StyleVar_.frame_padding, padding)
            is_open = imgui.tree_node_ex(f"{name}###place", _FOLD)
            imgui.pop_style_var()
            controls.tip(f"{entry.name}, {entry.group}: where it is put")
            if is_open and self._draw_placement(compared):
                viewport.user.do(source.remove, compared)
                viewport.host.offer_undo(f"{entry.name} is out of this picture")
            imgui.pop_id()

    def _draw_placement(self, compared: ComparedScene) -> bool:
        """Draw where a scene is put, and buttons; return True to remove the scene."""
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
        ui.gap(0.2 * imgui.get_font_size())
        return pressed == 1


def _draw_line_position(panes: Panes) -> None:
    """Draw the slider of the line between A and B."""
    for view in panes.pair_views:
        if view.mode != "split":
            continue
        position = ui.slider(
            "Line",
            "Where B begins, which the line in the picture moves as well",
            view.state.position,
            (0.0, 1.0),
            "%.2f",
            reset=0.5,
        )
        if position != view.state.position:
            view.change(position=position)


def _key_of(entry: Entry) -> str:
    return entry.key


def _long_names(entries: Sequence[Entry]) -> list[str]:
    """Return the names of entries with their runs': "robot-mcmc / gaussians"."""
    groups: dict[str, set[str]] = {}
    for entry in entries:
        groups.setdefault(entry.run_name, set()).add(entry.group)
    names = []
    for entry in entries:
        if entry.is_file:
            names.append(entry.name)
        elif len(groups[entry.run_name]) == 1:
            names.append(f"{entry.run_name} / {entry.name}")
        else:
            names.append(f"{entry.group} / {entry.name}")
    return names


def _triple(label: str, value: Triple, speed: float, fmt: str, tip: str) -> Triple:
    """Draw three numbers to drag, or to type with Ctrl + click, and return them."""
    ui.row(label)
    _, (x, y, z) = drag_all(label, value, speed, fmt)
    controls.tip(f"{tip}. Drag, or Ctrl + click to type a number.")
    return x, y, z
