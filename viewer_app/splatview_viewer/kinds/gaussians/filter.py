"""Limits of opacity, size and SH energy, chosen in histograms; saving what is in them. The panel's part "Filter"."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from imgui_bundle import ImVec2, imgui

from splatview_viewer.core.errors import FileError, RendererError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.core.view import Section
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.kinds.gaussians.scene_reader import SceneReader
from splatview_viewer.scene import EVERYTHING, HIDDEN, Selection, flags
from splatview_viewer.scene.scene import QUANTITIES, Quantity, Statistics, count_later
from splatview_viewer.scene_view.tool import Tool
from splatview_viewer.ui import plots, theme
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView
_HEIGHT = 44
"""Points: the height of a histogram."""
_BARS = 64
_GRAB = 6
"""Points from the end of a range within which a press moves that end."""
_WORDS = {
    "opacity": ("Opacity", "%.3f", "How opaque a Gaussian is at its middle"),
    "scale": (
        "Size",
        "%.3g",
        "The largest of a Gaussian's three standard deviations, world units",
    ),
    "sh_energy": (
        "SH energy",
        "%.3g",
        "How much a Gaussian's colour depends on the view:\n"
        "the sum of squares of its coefficients above degree 0",
    ),
}


class Filter(Tool["GaussianView"]):
    """Counts while its part of the panel is seen, and limits the view's selection."""

    name: ClassVar[str] = "filter"

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.statistics: Statistics | None = None
        """The newest that are known."""
        self.chosen_by: Selection | None = None
        """The selection by which they were counted."""
        self._jobs = Jobs("export", lambda: view.host.wake())
        self._job: Job[tuple[Path, int]] | None = None
        """Writes a file."""
        self.drag: tuple[str, float] | None = None
        """While a range is drawn: of which quantity, and the end that stays, counted in bins."""
        self._reader = SceneReader(view, "statistics")
        self.shown = False
        """The part of the panel is seen."""

    def limits(self, quantity: Quantity) -> tuple[float, float]:
        return getattr(self.view.state.selection, quantity.name)

    def limit(self, quantity: Quantity, low: float, high: float) -> None:
        """Draw only those whose value lies between, both included."""
        selection = self.view.state.selection
        self.view.change(
            selection=replace(
                selection, **{quantity.name: (min(low, high), max(low, high))}
            )
        )
        self.view.mark_moving()  # it is dragged as a rule

    def reset(self, quantity: Quantity | None = None) -> None:
        """Draw all again, whatever this quantity; None: whatever hides some of them, a crop included."""
        selection = self.view.state.selection
        if quantity is None:
            selection = replace(EVERYTHING, marked=selection.marked)
        else:
            selection = replace(
                selection, **{quantity.name: getattr(EVERYTHING, quantity.name)}
            )
        self.view.change(selection=selection)

    @property
    def filters(self) -> bool:
        """True if the selection hides anything, a crop included."""
        return replace(self.view.state.selection, marked=()) != EVERYTHING

    def tick(self, now: float) -> bool:
        # the picture says how far a file is
        job = self._job
        host = self.view.host
        again = self._job is not None
        if job is not None and job.done:
            self._job = None
            try:
                path, count = job.result()
            except (FileError, MemoryError) as e:
                host.say(f"Not saved: {str(e) or 'not enough memory'}")
            else:
                host.say(f"Saved {count:,} Gaussians to {path}")
                host.hand_over(path)
        come = self._reader.take()
        if come is not None:
            (self.chosen_by, self.statistics), again = come, again or self.shown
        if self.shown and self.view.data.facts is not None:
            selection = replace(self.view.state.selection, marked=())
            self._reader.read(
                now, selection, lambda scene: count_later(scene, selection)
            )
        return again

    # -- saving ------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> float | None:
        """0 to 1 while a file is written."""
        return None if self._job is None else self._job.progress

    def save(self, *, chosen: bool) -> None:
        """Save what the selection does not hide, or all that can be drawn, as a .ply in the folder where the viewer
        runs. A scene on a GPU is copied to the host at once, which takes a tenth of a second per million.
        """
        view = self.view
        facts = self.view.data.facts
        if facts is None or self._job is not None:
            return
        name = (
            re.sub(r"[^\w.-]+", "-", Path(view.host.name).name.split(".")[0]).strip(
                "-."
            )
            or "scene"
        )
        step = next(
            (
                n[5:].replace(",", "")
                for n in facts.notes
                if re.fullmatch(r"step [\d,]+", n)
            ),
            "",
        )
        try:
            scene = view.data.renderer.scene()
            path = output_path(f"{name[:80]}{f'-step{step}' if step else ''}", ".ply")
        except (RendererError, FileError) as e:
            view.host.say(str(e))
            return
        selection = view.state.selection
        antialiased = facts.antialiased
        scene = scene.to_host()

        def work(job: Job[tuple[Path, int]]) -> tuple[Path, int]:
            from splatview_viewer.formats.ply import write_ply

            keep = (flags(scene, selection) & HIDDEN) == 0 if chosen else None
            return write_ply(
                scene, path, antialiased=antialiased, keep=keep, progress=job.report
            )

        self._job = self._jobs.submit(work)

    # -- what is seen ------------------------------------------------------------------------------------------

    def over(self, rect: Rect, scale: float) -> bool:
        self.shown = False
        return False

    def sections(self) -> Sequence[Section]:
        return [
            Section(
                "Filter",
                lambda: panel(self),
                tip="Draw only some of the Gaussians, and save them",
            )
        ]

    def details(self) -> Sequence[str]:
        if not self.filters:
            return []
        selection = replace(self.view.state.selection, marked=())
        statistics = self.statistics
        if statistics is not None and self.chosen_by == selection:
            return [f"{statistics.chosen:,} of them shown"]
        if replace(selection, box=None, sphere=None) != EVERYTHING:
            return ["filtered"]
        return []

    def close(self) -> None:
        self._reader.forget()
        self._job = None  # a file that is being written is finished


def panel(tool: Filter) -> None:
    """Draw the panel's part."""
    tool.shown = True
    facts = tool.view.data.facts
    statistics = tool.statistics
    for quantity in QUANTITIES:
        if quantity.name == "sh_energy" and (
            facts is None or not min(facts.sh_degree, facts.stored_sh_degree)
        ):
            continue
        _quantity(tool, quantity, statistics)
    if statistics is not None:
        ui.row("Shown")
        imgui.text_unformatted(f"{statistics.chosen:,} of {statistics.total:,}")
    if (
        tool.filters
        and ui.buttons(
            "",
            ["Show all"],
            ["Nothing is hidden any more, be it by its numbers or by where it lies"],
        )
        == 0
    ):
        tool.reset()
    if tool.progress is not None:
        ui.row("Saving")
        imgui.progress_bar(tool.progress, ImVec2(-1, 0))
        return
    pressed = ui.buttons(
        "Save as .ply",
        ["Shown", "All"],
        [
            "Write the Gaussians that are shown to a file\nin the folder where the viewer runs",
            "Write all Gaussians of this scene to a file\nin the folder where the viewer runs",
        ],
    )
    if pressed is not None:
        tool.save(chosen=pressed == 0)


def _quantity(tool: Filter, quantity: Quantity, statistics: Statistics | None) -> None:
    """One histogram with the numbers of its range."""
    label, fmt, tip = _WORDS[quantity.name]
    first, last = (
        (0, quantity.bins) if statistics is None else statistics.used(quantity)
    )
    imgui.align_text_to_frame_padding()
    ui.dim(label)
    imgui.set_item_tooltip(tip)
    _numbers(tool, quantity, (first, last), fmt)
    scale = theme.scale()
    corner = imgui.get_cursor_screen_pos()
    width = imgui.get_content_region_avail().x
    height = _HEIGHT * scale
    if width < 8 * scale:
        return
    imgui.invisible_button(f"##histogram {quantity.name}", ImVec2(width, height))
    _brush(tool, quantity, (corner.x, width, first, last), scale)
    hovered = (
        imgui.is_item_hovered(imgui.HoveredFlags_.for_tooltip.value)
        and not imgui.is_item_active()
    )
    end = imgui.get_cursor_screen_pos()
    imgui.set_cursor_screen_pos(corner)
    with plots.bare(
        f"histogram {quantity.name}", (width, height), (first, last), (0.0, 1.0)
    ) as plot:
        if plot is not None:
            if (
                statistics is not None
            ):  # all in grey; square roots, so that few are seen beside many
                edges = (
                    np.linspace(first, last, min(_BARS, last - first) + 1)
                    .round()
                    .astype(int)
                )
                every, chosen = (
                    np.sqrt(np.add.reduceat(part[:last], edges[:-1]))
                    for part in statistics.counts[quantity.name]
                )
                top = 1.08 * (float(every.max(initial=0.0)) or 1.0)
                plot.bars("##all", edges, every / top, theme.GONE)
                plot.bars("##chosen", edges, chosen / top, theme.ACCENT)
            low, high = (
                min(max(quantity.position(v), first), last)
                for v in tool.limits(quantity)
            )
            for at, edge in ((low, first), (high, last)):
                if at != edge:
                    plot.fade(at, edge)
                    plot.upright(at, theme.TEXT, 1.5)
    imgui.set_cursor_screen_pos(end)
    if statistics is not None and hovered:
        at = first + (ui.pointer().x - corner.x) / width * (last - first)
        half = (last - first) / _BARS / 2
        bins = slice(max(int(at - half), 0), max(int(at + half), int(at - half) + 1))
        imgui.set_tooltip(
            f"{statistics.counts[quantity.name][0][bins].sum():,} from {quantity.edge(at - half):.3g} to "
            f"{quantity.edge(at + half):.3g}\nDrag to choose a range. Right click: all\n"
            "Heights are square roots"
        )
    imgui.dummy(ImVec2(0, 2 * scale))


def _numbers(tool: Filter, quantity: Quantity, used: tuple[int, int], fmt: str) -> None:
    """The least and the most in two fields to drag or to type into."""
    low, high = tool.limits(quantity)
    first, last = (
        (quantity.edge(used[0]), quantity.edge(used[1])) if quantity.log else (0.0, 1.0)
    )
    flags = (
        imgui.SliderFlags_.always_clamp.value
        | quantity.log * imgui.SliderFlags_.logarithmic.value
    )
    imgui.same_line(ui.LABEL_WIDTH * imgui.get_font_size())
    imgui.set_next_item_width(-1)
    edited, least, most = imgui.drag_float_range2(
        f"##{quantity.name}",
        low,
        min(high, last),
        (last - first) / 300,
        0.0,
        last,
        fmt,
        fmt,
        flags,
    )
    imgui.set_item_tooltip(
        "The least and the most that is shown. Drag, or Ctrl + click to type"
    )
    if edited:
        tool.limit(
            quantity,
            0.0 if least <= first else least,
            _most(quantity) if most >= last else most,
        )


def _most(quantity: Quantity) -> float:
    """The limit that leaves out none."""
    return math.inf if quantity.log else 1.0


def _brush(
    tool: Filter, quantity: Quantity, place: tuple[float, float, int, int], scale: float
) -> None:
    """Take what the pointer does over the histogram that was made last: left edge, width, first and last bin."""
    x, width, first, last = place
    if imgui.is_item_clicked(imgui.MouseButton_.right):
        tool.reset(quantity)
        return
    pointer = min(max(ui.pointer().x - x, 0.0), width)
    at = first + pointer / width * (last - first)
    low, high = (quantity.position(v) for v in tool.limits(quantity))
    if imgui.is_item_activated():
        near = _GRAB * scale / width * (last - first)
        tool.drag = (
            quantity.name,
            high if abs(at - low) < near else low if abs(at - high) < near else at,
        )
        return
    if tool.drag is None or tool.drag[0] != quantity.name:
        return
    if not imgui.is_item_active():
        tool.drag = None
        return
    start = tool.drag[1]
    if abs(at - start) * width / (last - first) < 3 * scale:  # so far it is a click
        return
    least = min(at, start)
    most = max(at, start)
    limits = (
        0.0 if least <= first else quantity.edge(least),
        _most(quantity) if most >= last else quantity.edge(most),
    )
    if limits != tool.limits(quantity):
        tool.limit(quantity, *limits)
