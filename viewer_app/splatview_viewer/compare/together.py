"""Several scenes in one picture: each is seen or not, and put where one likes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.host import Host
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.geometry.cameras import bounds
from splatview_viewer.kinds import SCENES
from splatview_viewer.scene.merging import merged
from splatview_viewer.scene.scene import nothing
from splatview_viewer.scene.turning import STAYS, Placement, placed
from splatview_viewer.workspace.sources import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from splatview_viewer.core.old_view import View
    from splatview_viewer.core.settings import Entry
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.scene.scene import GaussianScene
    from splatview_viewer.workspace.catalogue import Catalogue, Slot

MOST = 16
"""Scenes in one picture."""


@dataclass(eq=False)
class Part:
    """One of the scenes, by the key of its entry. For the catalogue it is somebody who looks at that entry: its view
    keeps the scene loaded, and is never drawn."""

    key: str
    visible: bool = True
    placement: Placement = STAYS
    pivot: np.ndarray | None = None
    """What it is turned and scaled around: the middle of the scene when it was first seen."""
    radius: float = 1.0
    """How large it was then, in world units."""
    host: Host = field(default_factory=Host)


class Together(Source):
    """The source of an entry that shows several scenes. Merges them anew when one of them brings something, or is put
    elsewhere: on the GPU if any lies there, otherwise in a job."""

    path = "put together"

    def __init__(self, catalogue: Catalogue, keys: Sequence[str], wake: Callable[[], None]) -> None:
        """`wake` ends the loop's sleep, from any thread."""
        self.parts = [Part(key) for key in keys]
        self._catalogue = catalogue
        self._jobs = Jobs("merge scenes", wake)
        self._of: tuple[object, ...] | None = None
        """What was merged last: which parts, where, of which versions."""
        self._now = 0.0
        self._ready: GaussianScene | None = None
        self._held: GaussianScene | None = None
        """What the view took last: on a GPU it may still be read."""
        self._failed = False
        """Whether the last merging did."""
        self._job: Job[GaussianScene] | None = None

    # -- parts ---------------------------------------------------------------------------------------------------

    def add(self, key: str) -> None:
        """Show another scene as well. Raises ViewerError where there are too many."""
        if any(part.key == key for part in self.parts):
            return
        if len(self.parts) >= MOST:
            raise ViewerError(f"together: {MOST} scenes are the most that can be shown in one picture; "
                              "take one away first")
        self.parts.append(Part(key))

    def remove(self, part: Part) -> None:
        if part in self.parts:
            if (view := self._view(part)) is not None:
                view.framed = False
            self._catalogue.leave(part)  # type: ignore[arg-type]
            self.parts.remove(part)

    def reads(self, slot: Slot) -> bool:
        """Whether a job reads this entry's scene just now, so that it must not be replaced."""
        return self.reading and any(part.key == slot.entry.key for part in self.parts)

    @property
    def uses(self) -> list[str]:  # type: ignore[override]
        return [part.key for part in self.parts if part.visible]

    @property
    def reading(self) -> bool:  # type: ignore[override]
        """A job merges the scenes."""
        return self._job is not None

    def _view(self, part: Part) -> GaussianView | None:
        view: Any = self._catalogue.view(part)  # type: ignore[arg-type]
        if view is None or view.kind not in SCENES:
            return None
        view.framed = True  # nobody looks with it: where to look from is not to be found out for each version
        return view

    # -- merging -------------------------------------------------------------------------------------------------

    def update(self) -> bool:
        """Go on with merging; once in each turn of the loop. True when there is a new scene. Raises ViewerError when it
        cannot be made."""
        if self._job is not None:
            job = self._job
            if not job.done:
                return False
            self._job, self._failed = None, bool(job.fault)
            if job.fault:
                raise ViewerError(f"together: {job.fault}")
            self._ready = job.result()
            return True
        found = self._found()
        if found is None or found[0] == self._of:
            return False
        self._of, scenes = found
        return self._merge(scenes)

    def _found(self) -> tuple[tuple[object, ...], list[tuple[GaussianView, Part]]] | None:
        """What is to be merged, by what it is known by, and the views that have it. None while it is not all there: at
        first until each scene has come that will come, so that all of it is framed."""
        of: list[object] = []
        views: list[tuple[GaussianView, Part]] = []
        for part in self.parts:
            if not part.visible:
                continue
            if (view := self._view(part)) is None or view.content.facts is None:
                slot = self._catalogue.slots.get(part.key)
                if self._of is None and slot is not None and slot.entry.alive and not (
                        slot.entry.fault or slot.entry.fault_of_source):
                    return None  # it is to come
                continue
            content = view.content
            if content.renderer.pending:
                content.renderer.read()
            content.tick(self._now)
            if content.busy or content.stale:  # a whole one is to come
                return None
            if part.pivot is None and content.sight is not None:
                part.pivot, part.radius = bounds(content.sight.means, content.sight.weights)
            of.append((part, part.placement, content, content.loads))
            views.append((view, part))
        return tuple(of), views

    def _merge(self, views: Sequence[tuple[GaussianView, Part]]) -> bool:
        scenes = [(view.content.renderer.scene(), part.placement, part.pivot) for view, part in views]
        if not scenes:
            self._ready = nothing()
            return True
        device = next((scene.gpu for scene, *_ in scenes if scene.on_gpu), None)
        smooth = [view.content.facts is not None and view.content.facts.antialiased for view, _ in views]

        def make(_: object = None) -> GaussianScene:
            moved = [placed(scene, where, pivot) if pivot is not None else scene for scene, where, pivot in scenes]
            return merged(moved, smooth, device or "cpu")

        if device is not None:
            self._failed = True
            self._ready = make()
            self._failed = False
            return True

        self._job = self._jobs.submit(make)
        return False

    # -- Source --------------------------------------------------------------------------------------------------

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        return [f"of {len(self.parts)} scenes"]

    def refresh(self, entry: Entry, now: float) -> None:
        self._now = now

    def open(self) -> None:
        if self._failed:  # who looks again tries again
            self._of = None

    def has_news(self) -> bool:
        return self._ready is not None

    def again(self) -> None:
        self._of = None

    def feed(self, view: View) -> bool:
        content = getattr(view, "content", None)
        if self._ready is None or content is None:
            return False
        if self._held is not None and self._held.on_gpu and content.renderer.reading:
            return False  # its memory would be used again
        if not view.update(self._ready):
            return False
        self._held, self._ready = self._ready, None
        return True

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._jobs.close(None)  # one that runs reads what others hold
        self._job = None
        for part in list(self.parts):
            self.remove(part)
        self._ready = self._held = self._of = None
