"""Limits of opacity, size and SH energy, and saving the Gaussians within them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from splatview_viewer.core.errors import FileError, RendererError
from splatview_viewer.core.jobs import Job, JobQueue, RunningJob
from splatview_viewer.core.view import Section
from splatview_viewer.formats.pictures import output_path
from splatview_viewer.kinds.gaussians.filter_panel import (
    RangeBrush,
    draw_panel,
    draw_save,
    state_words,
)
from splatview_viewer.kinds.gaussians.scene_page import PAGE_SUFFIX, page_writer
from splatview_viewer.kinds.gaussians.scene_reader import SceneReader
from splatview_viewer.scene import EVERYTHING, HIDDEN, Selection, flags
from splatview_viewer.scene.selecting import array_of
from splatview_viewer.scene.statistics import Quantity, Statistics, count_later
from splatview_viewer.scene_view.tool import Tool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.selection import Mask
    from splatview_viewer.formats.writers import SceneWriter
    from splatview_viewer.kinds.gaussians.view import GaussianView

_MAX_NAME = 80


class Filter(Tool["GaussianView"]):
    """Limits the view's selection, and counts while its section of the panel is visible."""

    name: ClassVar[str] = "filter"

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)

        def wake() -> None:
            # The view may get another host.
            view.host.wake()

        self.statistics: Statistics | None = None
        """The newest that are known."""
        self.counted_selection: Selection | None = None
        """The selection by which they were counted."""
        self.brush = RangeBrush(self)
        self.save_suffix = ".ply"
        """The end of the names of saved files, which is their format."""
        self._jobs = JobQueue("export", wake)
        self._job: Job[tuple[Path, int]] | None = None
        """Writes a file, and returns its path and the number of Gaussians in it."""
        self._reader = SceneReader(view, "statistics")
        self.is_open = False
        """True while the section of the panel is visible."""

    # -- limits --------------------------------------------------------------------

    def limits(self, quantity: Quantity) -> tuple[float, float]:
        """Return the lowest and the highest value that are drawn."""
        return getattr(self.view.state.selection, quantity.name)

    def limit(self, quantity: Quantity, low: float, high: float) -> None:
        """Draw only the Gaussians whose value lies between, both included."""
        limits = (min(low, high), max(low, high))
        self._select(**{quantity.name: limits})
        # Limits are dragged as a rule.
        self.view.mark_moving()

    def reset(self, quantity: Quantity | None = None) -> None:
        """Draw all again, whatever the value of this quantity.

        Args:
            quantity: None: end whatever hides some of them, a crop included.
        """
        if quantity is None:
            selection = self.view.state.selection
            reset_selection = replace(EVERYTHING, marked=selection.marked)
            self.view.change(selection=reset_selection)
        else:
            self._select(**{quantity.name: getattr(EVERYTHING, quantity.name)})

    def _select(self, **fields: tuple[float, float]) -> None:
        selection = self.view.state.selection
        self.view.change(selection=replace(selection, **fields))

    @property
    def is_active(self) -> bool:
        """True if the selection hides anything, a crop included."""
        return self._unmarked != EVERYTHING

    @property
    def _unmarked(self) -> Selection:
        """The selection without what stands out."""
        return self.view.state.selection.unmarked

    @property
    def known_statistics(self) -> Statistics | None:
        """The statistics of what is shown now; None while they are not known."""
        if self.counted_selection != self._unmarked:
            return None
        return self.statistics

    # -- time ----------------------------------------------------------------------

    def tick(self, now: float) -> bool:
        # The panel shows how far a file is.
        needs_redraw = self._job is not None
        if self._job is not None and self._job.done:
            self._finish_saving(self._job)
        answer = self._reader.take()
        if answer is not None:
            self.counted_selection, self.statistics = answer
            needs_redraw |= self.is_open
        if self.is_open and self.view.data.summary is not None:
            selection = self._unmarked
            self._reader.read(
                now, selection, lambda scene: count_later(scene, selection)
            )
        return needs_redraw

    # -- saving --------------------------------------------------------------------

    @property
    def progress(self) -> float | None:
        """Progress from 0 to 1 while a file is written."""
        if self._job is None:
            return None
        return self._job.progress

    @property
    def why_not_saved(self) -> str | None:
        """The reason why the scene cannot be saved now; None: it can."""
        if self.view.data.summary is None:
            return "there is no scene"
        if self._job is not None:
            return "a file is being written"
        return None

    def save(self, *, only_shown: bool, chosen_mask: Mask | None = None) -> None:
        """Save Gaussians in a file of `save_suffix` in the folder where the viewer runs.

        A scene on a GPU is copied to the host at once, which takes a tenth of a second
        per million.

        Args:
            only_shown: leave out what the selection hides.
            chosen_mask: save those alone; None: all.
        """
        view = self.view
        summary = view.data.summary
        if summary is None or self._job is not None:
            return
        stem = _file_stem(view.host.name) + _step_suffix(summary.notes)
        try:
            scene = view.data.renderer.scene()
            path = output_path(stem, self.save_suffix)
        except (RendererError, FileError) as error:
            view.host.notify(str(error))
            return
        selection = view.state.selection
        writer = None
        if self.save_suffix == PAGE_SUFFIX:
            writer = self._page_writer()
        antialiased = summary.antialiased
        up = view.rig.up_axis.known
        gpu = scene.gpu
        scene = scene.to_host()

        def write(job: Job[tuple[Path, int]]) -> tuple[Path, int]:
            import torch

            from splatview_viewer.formats.writers import WrittenScene, write_scene

            keep = None
            if chosen_mask is not None:
                keep = torch.from_numpy(array_of(chosen_mask).copy())
            elif only_shown:
                keep = (flags(scene, selection) & HIDDEN) == 0
            written = WrittenScene(scene, antialiased, up, keep, gpu)
            return write_scene(
                written, path, numbered=True, writer=writer, progress=job.report
            )

        self._job = self._jobs.submit(write)

    def _page_writer(self) -> SceneWriter:
        """Return what writes a page that begins with the present view."""
        view = self.view
        return page_writer(
            view, view.rig.camera_of_scene(view.rig.rect), view.path.film
        )

    def jobs(self) -> Sequence[RunningJob]:
        """Return the file that is being written, if there is one."""
        if self._job is None:
            return ()
        return [RunningJob("Saving the scene", self._job.progress, self._give_up)]

    def _give_up(self) -> None:
        """Write no more of the file."""
        if self._job is not None:
            self._job.cancel()
            self._job = None
            self.view.host.notify("The scene is not saved")

    def _finish_saving(self, job: Job[tuple[Path, int]]) -> None:
        """Tell the user about a file that is written."""
        self._job = None
        host = self.view.host
        try:
            path, count = job.result()
        except (FileError, MemoryError) as error:
            host.notify(f"Not saved: {str(error) or 'not enough memory'}")
            return
        host.notify(f"Saved {count:,} Gaussians to {path}")
        host.hand_over(path)

    # -- drawing -------------------------------------------------------------------

    def draw_over(self, rect: Rect, scale: float) -> bool:
        # The panel's part, which is drawn later, sets this again.
        self.is_open = False
        return False

    def sections(self) -> Sequence[Section]:
        return [
            Section(
                "Filter",
                partial(draw_panel, self),
                opened=True,
                tip="Draw only some of the Gaussians",
                tab="data",
                state=state_words(self),
                reset=self.reset,
            ),
            Section(
                "Save the scene",
                partial(draw_save, self),
                tip="Write the Gaussians to a file that other programs read",
                tab="data",
            ),
        ]

    def details(self) -> Sequence[str]:
        if not self.is_active:
            return []
        if self.known_statistics is not None:
            # The number of Gaussians is of them.
            return []
        selection = self._unmarked
        if selection.cropped_by(None) != EVERYTHING:
            return ["filtered"]
        return []

    def close(self) -> None:
        self._reader.forget()
        # A file that is being written is finished.
        self._job = None


def _file_stem(name: str) -> str:
    """Return the start of a file's name for a scene of this name."""
    folder, slash, last_part = name.rpartition("/")
    first_words = last_part.split(".")[0]
    stem = re.sub(r"[^\w.-]+", "-", folder + slash + first_words).strip("-.")
    return (stem or "scene")[:_MAX_NAME]


def _step_suffix(notes: Sequence[str]) -> str:
    """Return "-step1500" for a scene with the note "step 1,500", otherwise ""."""
    for note in notes:
        if re.fullmatch(r"step [\d,]+", note):
            return "-" + note.replace(" ", "").replace(",", "")
    return ""
