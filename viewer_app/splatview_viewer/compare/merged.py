"""Several scenes in one space, as one scene: each is visible or not, and placed anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.geometry.cameras import bounds
from splatview_viewer.scene.scene import merged, nothing
from splatview_viewer.scene.turning import STAYS, Placement, placed
from splatview_viewer.workspace.sources import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.view import ShownView
    from splatview_viewer.scene.scene import GaussianScene
    from splatview_viewer.workspace.catalogue import Catalogue

MOST = 16
"""Scenes in one picture."""


@dataclass(eq=False)
class Part:
    """One of the scenes."""

    key: str
    """Key of its entry."""
    visible: bool = True
    placement: Placement = STAYS
    pivot: np.ndarray | None = None
    """Centre of turns and scales: the middle of the scene when it was first merged."""
    radius: float = 1.0
    """Radius of the scene then, in world units."""


class MergedSource(Source):
    """The source of an entry that shows several others as one scene, which is merged anew for each version and each
    placement: on the GPU if any of them is there, otherwise in a job."""

    path = "put together"

    def __init__(self, catalogue: Catalogue, wake: Callable[[], None]) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.parts: list[Part] = []
        self._catalogue, self._jobs = catalogue, Jobs("merge scenes", wake)
        self._job: Job[GaussianScene] | None = None
        self._of: tuple[object, ...] | None = None
        """The parts, placements and versions that were merged last."""
        self._held: GaussianScene | None = None
        """The scene that the view took last: on a GPU it may still be read."""

    def add(self, keys: Sequence[str]) -> None:
        """Show more entries. Raises ViewerError for too many."""
        new = [key for key in dict.fromkeys(keys) if all(part.key != key for part in self.parts)]
        if len(self.parts) + len(new) > MOST:
            raise ViewerError(f"together: {MOST} scenes are the most that can be shown in one picture; "
                              "take one away first")
        self.parts += map(Part, new)

    def remove(self, part: Part) -> None:
        self.parts = [other for other in self.parts if other is not part]

    @property
    def reading(self) -> bool:
        return self._job is not None

    @property
    def uses(self) -> list[str]:  # type: ignore[override]
        return [part.key for part in self.parts if part.visible]

    def refresh(self, entry: Entry, now: float) -> None:
        catalogue = self._catalogue
        self.parts = [part for part in self.parts if part.key in catalogue.slots]
        if not self.parts:
            catalogue.forget(entry.key)
            return
        entry.name = name_of([catalogue.slots[part.key].entry for part in self.parts], " + ")
        self.notes = [f"of {len(self.parts)} scenes"]
        if (own := catalogue.slots[entry.key]) in catalogue.watched():
            with catalogue.guard(own):
                for _, view in self._loaded():  # which may be drawn nowhere
                    if view.content.renderer.pending:
                        view.content.renderer.read()
                    view.content.tick(now)

    # -- merging -----------------------------------------------------------------------------------------------------

    def _loaded(self) -> list[tuple[Part, Any]]:
        """Return the visible parts that have a scene, each with a view of it."""
        slots = [(part, self._catalogue.slots.get(part.key)) for part in self.parts if part.visible]
        return [(part, slot.view) for part, slot in slots if slot is not None and slot.view is not None
                and not slot.view.empty]

    def _wanted(self) -> tuple[object, ...] | None:
        """Return the parts, placements and versions to be merged; None until all of them are whole, and at first all
        that will come have come, so that the first picture shows all of it."""
        loaded = self._loaded()
        if self._of is None:
            late = [slot.entry for key in self.uses if (slot := self._catalogue.slots.get(key)) is not None
                    and (slot.view is None or slot.view.empty)]
            if any(entry.alive and not (entry.fault or entry.fault_of_source) for entry in late):
                return None
        if any(view.wants.busy or view.wants.stale for _, view in loaded):
            return None
        return tuple((part, part.placement, view.content, view.content.loads) for part, view in loaded)

    def open(self) -> None:
        """Merge again: the last time may have failed."""
        self._of = None

    def has_news(self) -> bool:
        if self._job is not None:
            return self._job.done
        wanted = self._wanted()
        return wanted is not None and wanted != self._of

    def feed(self, view: ShownView) -> bool:
        if self._job is not None:
            job, self._job = self._job, None
            if job.fault:
                raise ViewerError(f"together: {job.fault}")
            self._held = job.result()
            return view.update(self._held)
        if self._held is not None and self._held.on_gpu and view.content.renderer.reading:
            return False  # its memory would be used again
        self._of, loaded = self._wanted(), self._loaded()
        for part, of in loaded:
            if part.pivot is None and of.content.sight is not None:
                part.pivot, part.radius = bounds(of.content.sight.means, of.content.sight.weights)
        scenes = [(of.content.renderer.scene(), part.placement, part.pivot) for part, of in loaded]
        smooth = [of.content.facts.antialiased for _, of in loaded]
        gpu = next((scene.gpu for scene, *_ in scenes if scene.on_gpu), None)

        def make(_: object = None) -> GaussianScene:
            moved = [placed(scene, where, pivot) if pivot is not None else scene for scene, where, pivot in scenes]
            return merged(moved, smooth, gpu or "cpu") if moved else nothing()

        if scenes and gpu is None:
            self._job = self._jobs.submit(make)
            return False
        self._held = make()
        return view.update(self._held)

    def close(self) -> None:
        self._jobs.close()
        self._job = self._held = self._of = None


def name_of(entries: Sequence[Entry], between: str) -> str:
    """Return the name of an entry that shows several others."""
    names = [entry.name for entry in entries]
    return between.join(names) if len(names) < 4 else f"{names[0]} + {len(names) - 1} more"
