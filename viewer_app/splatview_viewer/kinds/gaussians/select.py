"""Choosing Gaussians in the picture: a box, a lasso, a brush, and what is done then."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from splatview_viewer.core.events import Key
from splatview_viewer.core.view import KeyHelp, Section
from splatview_viewer.kinds.gaussians import select_panel
from splatview_viewer.kinds.gaussians.chosen_dots import ChosenDots
from splatview_viewer.kinds.gaussians.filter import Filter
from splatview_viewer.kinds.gaussians.seen_finder import SeenFinder
from splatview_viewer.scene.selecting import array_of, mask_of
from splatview_viewer.scene_view.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.selection import Mask
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.render.region import SeenCentres

SelectMode = Literal["new", "add", "remove", "intersect"]
"""What becomes of the Gaussians that were chosen before."""


class Select(Tool["GaussianView"]):
    """Holds the chosen Gaussians, and how they are chosen; draws the section "Select"."""

    name: ClassVar[str] = "select"
    keys: ClassVar[Sequence[KeyHelp]] = (
        KeyHelp("Select", "B, L, N", "With a box, a lasso, a brush"),
        KeyHelp("Select", "Shift, Ctrl + drag", "Add, take away"),
        KeyHelp("Select", "Shift + Ctrl + drag", "Keep only what is within"),
        KeyHelp("Select", "Escape", "Choose none"),
    )

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.through = False
        """Gaussians behind others are chosen as well."""
        self.radius = 24.0
        """Of the brush, points."""
        self.mode: SelectMode = "new"
        """What a region makes of those that were chosen before it."""
        self._preview: Mask | None = None
        self._has_preview = False
        """A brush is being drawn, which `_preview` is the result of so far."""
        self._finder = SeenFinder(view)
        self.dots = ChosenDots(view)

    @property
    def mask(self) -> Mask | None:
        """The chosen Gaussians, by a brush that is being drawn too; None: there are none."""
        if self._has_preview:
            return self._preview
        return self.view.state.chosen

    def choose(self, inside: np.ndarray, mode: SelectMode) -> None:
        """Choose Gaussians.

        Args:
            inside: (N,) bool.
            mode: what becomes of those that were chosen before.
        """
        self.view.change(chosen=combine(self.view.state.chosen, inside, mode))

    def preview(self, inside: np.ndarray, mode: SelectMode) -> None:
        """Show what `choose` would choose, until `end_preview`."""
        self._preview = combine(self.view.state.chosen, inside, mode)
        self._has_preview = True

    def end_preview(self) -> None:
        """Show what is chosen again. Idempotent."""
        self._preview = None
        self._has_preview = False

    def prepare(self, rect: Rect) -> None:
        """Begin to search what is seen in the picture in `rect`, for `seen`."""
        self._finder.prepare(rect, through=self.through)

    def seen(self, rect: Rect) -> SeenCentres | None:
        """Return which Gaussians are seen in the picture in `rect`, as `SeenFinder.find`."""
        return self._finder.find(rect, through=self.through)

    def choose_none(self) -> None:
        self.view.change(chosen=None)

    def invert(self) -> None:
        """Choose those that are not chosen."""
        summary = self.view.data.summary
        if summary is None:
            return
        inverse = np.ones(summary.count, bool)
        if self.mask is not None and self.mask.total == summary.count:
            inverse = ~array_of(self.mask)
        self.choose(inverse, "new")

    def hide(self) -> None:
        """Hide the chosen Gaussians."""
        if self.mask is not None:
            self._hide(array_of(self.mask))

    def show_only(self) -> None:
        """Hide all but the chosen Gaussians."""
        if self.mask is not None:
            self._hide(~array_of(self.mask))

    def _hide(self, newly_hidden: np.ndarray) -> None:
        selection = self.view.state.selection
        hidden = selection.hidden
        if hidden is not None and hidden.total == len(newly_hidden):
            newly_hidden = newly_hidden | array_of(hidden)
        mask = mask_of(newly_hidden)
        self.view.change(chosen=None, selection=replace(selection, hidden=mask))
        self.view.host.offer_undo(f"{mask.count:,} Gaussians are hidden")

    def save(self) -> None:
        """Save the chosen Gaussians as a .ply."""
        self.view.tools.of(Filter).save(only_shown=False, chosen_mask=self.mask)

    @property
    def why_none(self) -> str | None:
        """The reason why nothing can be done with the chosen ones; None: it can."""
        if self.mask is None:
            return "no Gaussian is chosen"
        return None

    # -- the methods of tools ------------------------------------------------------

    def handle(self, event: Event, rect: Rect) -> bool | None:
        is_escape = isinstance(event, Key) and event.name == "escape" and event.pressed
        if is_escape and self.mask is not None:
            self.choose_none()
            return True
        return None

    def tick(self, now: float) -> bool:
        summary = self.view.data.summary
        if summary is None:
            return False
        masks = (self.view.state.chosen, self.view.state.selection.hidden)
        totals = [mask.total for mask in masks if mask is not None]
        if any(total != summary.count for total in totals):
            self._end(
                f"The scene has {summary.count:,} Gaussians now, not {totals[0]:,}: "
                "none is chosen or hidden. Pause the run to keep a choice"
            )
            return True
        needs_redraw = self.dots.tick(now, self.mask)
        if self.dots.has_other_order:
            self._end(
                "The scene has its Gaussians in another order now: none is chosen or "
                "hidden"
            )
        return needs_redraw

    def _end(self, message: str) -> None:
        """Choose and hide none, as the indices are of other Gaussians now."""
        selection = replace(self.view.state.selection, hidden=None)
        self.view.change(chosen=None, selection=selection)
        self.view.host.notify(message)

    @property
    def paints(self) -> bool:
        return self.mask is not None and not self.view.host.exact

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        if self.paints:
            self.dots.draw(framebuffer, rect)

    def draw_over(self, rect: Rect, scale: float) -> bool:
        return select_panel.draw_bar(self, rect, scale)

    def covered(self, rect: Rect) -> Sequence[Rect]:
        bar = select_panel.place_bar(self, rect, self.view.host.scale)
        if bar is None:
            return []
        return [bar]

    def sections(self) -> Sequence[Section]:
        section = Section(
            "Select",
            partial(select_panel.draw_panel, self),
            opened=True,
            tip="Choose Gaussians in the picture, to hide or save them",
            tab="data",
            state=select_panel.state_words(self),
        )
        return [section]

    def close(self) -> None:
        self._finder.forget()
        self.dots.close()


def combine(previous: Mask | None, inside: np.ndarray, mode: SelectMode) -> Mask | None:
    """Return what is chosen after a choice; None for none.

    Args:
        previous: what was chosen before. A mask of another number of Gaussians does not
            count.
        inside: (N,) bool: the Gaussians of the choice.
        mode: what it makes of those.
    """
    if mode != "new":
        known = np.zeros_like(inside)
        if previous is not None and previous.total == len(inside):
            known = array_of(previous)
        if mode == "add":
            inside = known | inside
        elif mode == "remove":
            inside = known & ~inside
        else:
            inside = known & inside
    if not inside.any():
        return None
    return mask_of(inside)
