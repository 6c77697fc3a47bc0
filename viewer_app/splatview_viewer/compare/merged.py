"""Several scenes of the list in one space, drawn as one scene."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from splatview_viewer.compare.pair_words import distinct_names
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, JobQueue
from splatview_viewer.geometry.cameras import bounds
from splatview_viewer.scene.scene import empty_scene, merged
from splatview_viewer.scene.turning import IDENTITY, Placement, transformed
from splatview_viewer.workspace.sources import ValueSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from splatview_viewer.core.settings import Entry
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.scene.scene import GaussianScene
    from splatview_viewer.workspace.catalogue import Catalogue

MAX_SCENES = 16
"""Scenes in one picture."""


@dataclass(eq=False)
class ComparedScene:
    """A scene that is drawn in a merged picture."""

    key: str
    """Key of its entry."""
    visible: bool = True
    placement: Placement = IDENTITY
    pivot: np.ndarray | None = None
    """Centre of turns and scales: the middle of the scene when it was first merged."""
    radius: float = 1.0
    """Radius of the scene then, in world units."""


class _LoadedScene(NamedTuple):
    """A visible scene that has been loaded, with a view of it."""

    compared: ComparedScene
    view: ShownView

    @property
    def content(self) -> Any:
        """The data that its views share."""
        return self.view.content


class _MergedVersion(NamedTuple):
    """A scene as it was merged: its entry, placement and version."""

    compared: ComparedScene
    placement: Placement
    content: Any
    loads: int


@dataclass(frozen=True)
class MergedState:
    """Holds what users choose of a merged picture, for undo."""

    scenes: tuple[ComparedScene, ...]
    placement: tuple[tuple[bool, Placement], ...]
    """Of each scene: whether it is visible, and where it is."""


class MergedSource(ValueSource):
    """The source of an entry that shows several others as one scene.

    The scene is merged again for each version and each placement: on the GPU if any of
    them is there, otherwise in a job.
    """

    path = "put together"
    at_work = True

    def __init__(self, catalogue: Catalogue, wake: Callable[[], None]) -> None:
        """Start without scenes; `wake` ends the loop's sleep, from any thread."""
        self.scenes: list[ComparedScene] = []
        self._catalogue = catalogue
        self._jobs = JobQueue("merge scenes", wake)
        self._job: Job[GaussianScene] | None = None
        self._merged: tuple[_MergedVersion, ...] | None = None
        """The scenes as they were merged last; None: to be merged once more."""
        self._scene: GaussianScene | None = None
        """The scene that the view took last: on a GPU it may still be read."""

    def add(self, keys: Sequence[str]) -> None:
        """Show more entries. Raises ViewerError for too many."""
        present = {compared.key for compared in self.scenes}
        new = [key for key in dict.fromkeys(keys) if key not in present]
        if len(self.scenes) + len(new) > MAX_SCENES:
            raise ViewerError(
                f"together: {MAX_SCENES} scenes are the most that can be shown in one "
                "picture; take one away first"
            )
        self.scenes += map(ComparedScene, new)

    def remove(self, compared: ComparedScene) -> None:
        self.scenes = [scene for scene in self.scenes if scene is not compared]

    @property
    def state(self) -> MergedState:
        """The scenes and their placements now."""
        placements = tuple((s.visible, s.placement) for s in self.scenes)
        return MergedState(tuple(self.scenes), placements)

    def undoable_state(self) -> MergedState:
        """Return what undo brings back: the same as `state`."""
        return self.state

    def restore(self, state: MergedState) -> None:
        """Place the scenes as they were; one that was removed comes back."""
        self.scenes = list(state.scenes)
        for compared, (visible, placement) in zip(
            state.scenes, state.placement, strict=False
        ):
            compared.visible = visible
            compared.placement = placement

    @property
    def reading(self) -> bool:
        return self._job is not None

    @property
    def uses(self) -> list[str]:  # type: ignore[override]
        return [compared.key for compared in self.scenes if compared.visible]

    def refresh(self, entry: Entry, now: float) -> None:
        catalogue = self._catalogue
        self.scenes = [
            compared for compared in self.scenes if compared.key in catalogue.slots
        ]
        if not self.scenes:
            catalogue.forget(entry.key)
            return
        entries = [catalogue.slots[compared.key].entry for compared in self.scenes]
        entry.name = name_of(entries)
        self.notes = [f"of {len(self.scenes)} scenes"]
        slot = catalogue.slots[entry.key]
        if slot in catalogue.watched():
            # The scenes may be drawn nowhere else.
            with catalogue.guard(slot):
                for loaded in self._loaded():
                    renderer = loaded.content.renderer
                    if renderer.pending:
                        renderer.read()
                    loaded.content.tick(now)

    # -- merging -----------------------------------------------------------------------

    def _loaded(self) -> list[_LoadedScene]:
        """Return the visible parts that have a scene."""
        loaded = []
        for compared in self.scenes:
            slot = self._catalogue.slots.get(compared.key)
            if not compared.visible or slot is None:
                continue
            view = slot.view
            if view is not None and not view.empty:
                loaded.append(_LoadedScene(compared, view))
        return loaded

    def _to_merge(self) -> tuple[_MergedVersion, ...] | None:
        """Return what is to be merged now; None while a scene is not completely read.

        The first time, all scenes that will come are awaited, so that the first picture
        shows all of them.
        """
        if self._merged is None and self._awaits_scenes():
            return None
        versions = []
        for compared, view in self._loaded():
            if view.wants.busy or view.wants.stale:
                return None
            content = view.content
            versions.append(
                _MergedVersion(compared, compared.placement, content, content.loads)
            )
        return tuple(versions)

    def _awaits_scenes(self) -> bool:
        """Return whether a visible scene has not been loaded, but will be."""
        for key in self.uses:
            slot = self._catalogue.slots.get(key)
            if slot is None:
                continue
            is_loaded = slot.view is not None and not slot.view.empty
            has_fault = slot.entry.fault or slot.entry.fault_of_source
            if not is_loaded and slot.entry.alive and not has_fault:
                return True
        return False

    def open(self) -> None:
        """Merge once more: the last time may have failed."""
        self._merged = None

    def has_new_value(self) -> bool:
        if self._job is not None:
            return self._job.done
        to_merge = self._to_merge()
        return to_merge is not None and to_merge != self._merged

    def feed(self, view: ShownView) -> bool:
        if self._job is not None:
            return self._take_result(view, self._job)
        scene = self._scene
        if scene is not None and scene.on_gpu and view.content.renderer.reading:
            # The memory of the scene would be used again while it is read.
            return False
        self._merged = self._to_merge()
        loaded = self._loaded()
        for loaded_scene in loaded:
            _note_bounds(loaded_scene)
        merge = _Merge(loaded)
        if loaded and merge.gpu is None:
            self._job = self._jobs.submit(lambda _: merge.run())
            return False
        self._scene = merge.run()
        return view.update(self._scene)

    def _take_result(self, view: ShownView, job: Job[GaussianScene]) -> bool:
        """Give the scene that a job has merged to a view."""
        self._job = None
        if job.fault:
            raise ViewerError(f"together: {job.fault}")
        self._scene = job.result()
        return view.update(self._scene)

    def close(self) -> None:
        self._jobs.close()
        self._job = None
        self._scene = None
        self._merged = None


class _Merge:
    """The merging of scenes, which holds all that it needs and may run in a job."""

    def __init__(self, loaded: Sequence[_LoadedScene]) -> None:
        self._scenes: list[GaussianScene] = [
            scene.content.renderer.scene() for scene in loaded
        ]
        self._placements = [scene.compared.placement for scene in loaded]
        self._pivots = [scene.compared.pivot for scene in loaded]
        self._antialiased = [scene.content.summary.antialiased for scene in loaded]
        self.gpu = next((scene.gpu for scene in self._scenes if scene.on_gpu), None)
        """The first GPU that holds one of the scenes; None if all are on the host."""

    def run(self) -> GaussianScene:
        """Return the merged scene."""
        moved = []
        for scene, placement, pivot in zip(
            self._scenes, self._placements, self._pivots, strict=True
        ):
            if pivot is not None:
                moved.append(transformed(scene, placement, pivot))
            else:
                moved.append(scene)
        if not moved:
            return empty_scene()
        return merged(moved, self._antialiased, self.gpu or "cpu")


def _note_bounds(loaded: _LoadedScene) -> None:
    """Set the pivot and radius of a scene from the first version that is merged."""
    sample = loaded.content.sample
    if loaded.compared.pivot is None and sample is not None:
        loaded.compared.pivot, loaded.compared.radius = bounds(
            sample.means, sample.weights
        )


def name_of(entries: Sequence[Entry]) -> str:
    """Return the name of an entry that shows several others."""
    names = distinct_names(entries)
    if len(names) < 4:
        return " + ".join(names)
    return f"{names[0]} + {len(names) - 1} more"
