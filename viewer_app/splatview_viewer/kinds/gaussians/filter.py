"""Which Gaussians are drawn, by opacity, size and SH energy, chosen in their histograms; and saving them. The panel's
part "Filter"."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.jobs import Jobs
from splatview_viewer.core.view import Section
from splatview_viewer.kinds.gaussians.export import Export
from splatview_viewer.kinds.gaussians.tool import Tool
from splatview_viewer.scene import EVERYTHING, Selection
from splatview_viewer.scene.statistics import Quantity, Statistics, count_later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.filter_panel import Histogram
    from splatview_viewer.kinds.gaussians.view import GaussianView

_PERIOD = 0.5
"""Seconds between two counts of a live scene."""
_SHARE = 0.05
"""Of the loop's time that may go into having the scene."""


class Filter(Tool):
    """Counts while its part of the panel is seen, and limits the view's selection."""

    name: ClassVar[str] = "filter"

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self.statistics: Statistics | None = None
        """The newest that are known."""
        self.chosen_by: Selection | None = None
        """The selection by which they were counted."""
        self.export = Export(view)
        self.drag: tuple[str, float] | None = None
        """While a range is drawn: of which quantity, and the end that stays, counted in bins."""
        self.drawn: dict[str, Histogram] = {}
        """What the panel keeps of the last count, by the name of the quantity."""
        self._jobs = Jobs("statistics", lambda: view.desk.wake())
        self._counted: tuple[int, Selection] | None = None
        """What was counted last, or is being counted: which scene (`GaussianContent.loads`), and by which selection."""
        self._next = -math.inf
        """When a new version is counted at the earliest."""
        self._shown = False

    def limits(self, quantity: Quantity) -> tuple[float, float]:
        return getattr(self.view.settings.selection, quantity.name)

    def limit(self, quantity: Quantity, low: float, high: float) -> None:
        """Draw only those whose value lies between, both included."""
        settings = self.view.settings
        settings.selection = replace(settings.selection, **{quantity.name: (min(low, high), max(low, high))})
        self.view.in_motion()  # it is dragged as a rule

    def reset(self, quantity: Quantity | None = None) -> None:
        """Draw all again, whatever this quantity; None: whatever hides some of them, a crop included."""
        settings = self.view.settings
        if quantity is None:
            settings.selection = replace(EVERYTHING, marked=settings.selection.marked)
        else:
            settings.selection = replace(settings.selection, **{quantity.name: getattr(EVERYTHING, quantity.name)})

    @property
    def filters(self) -> bool:
        """Whether the selection hides anything, a crop included."""
        return replace(self.view.settings.selection, marked=()) != EVERYTHING

    def tick(self, now: float) -> bool:
        again = self.export.tick()
        try:
            come = self._jobs.take("statistics")
        except MemoryError:
            come = None  # there will be another one
        if come is not None:
            (self.chosen_by, self.statistics), again = come, again or self._shown
        if self._shown:
            self._count(now)
        return again

    def _count(self, now: float) -> None:
        """Have the scene counted if it, or what is chosen of it, is another one."""
        content, selection = self.view.content, replace(self.view.settings.selection, marked=())
        if content.facts is None or self._jobs.busy or (content.loads, selection) == self._counted:
            return
        chosen_anew = self._counted is not None and self._counted[1] != selection
        if not chosen_anew and now < self._next:
            return
        self._counted, begin = (content.loads, selection), time.perf_counter()
        try:
            tell = count_later(content.renderer.scene(), selection)
            self._jobs.submit(lambda _: (selection, tell()), "statistics")
        except RendererError:
            pass  # the picture says so
        self._next = now + max(_PERIOD, (time.perf_counter() - begin) / _SHARE)

    def over(self, rect: Rect, scale: float) -> bool:
        self._shown = False
        return False

    def sections(self) -> Sequence[Section]:
        return [Section("Filter", self._panel, tip="Draw only some of the Gaussians, and save them")]

    def _panel(self) -> bool:
        from splatview_viewer.kinds.gaussians import filter_panel

        self._shown = True
        return filter_panel.panel(self)

    def details(self) -> Sequence[str]:
        if not self.filters:
            return []
        selection, statistics = replace(self.view.settings.selection, marked=()), self.statistics
        if statistics is not None and self.chosen_by == selection:
            return [f"{statistics.chosen:,} of them shown"]
        return ["filtered"] if replace(selection, box=None, sphere=None) != EVERYTHING else []

    def close(self) -> None:
        self._jobs.forget("statistics")
        self.export.close()
