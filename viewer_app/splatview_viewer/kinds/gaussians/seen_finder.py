"""The search for the Gaussians that are seen in a picture, while a region is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.jobs import Job, JobQueue
from splatview_viewer.render.region import SeenCentres

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.selection import Selection
    from splatview_viewer.kinds.gaussians.view import GaussianView


class _PictureKey(NamedTuple):
    """All that decides which centres are seen, and where, but for the scene."""

    camera_key: tuple[object, ...]
    selection: Selection
    through: bool


class SeenFinder:
    """Finds which Gaussians are seen, and where, and keeps the last answer."""

    def __init__(self, view: GaussianView) -> None:
        self._view = view
        self._jobs = JobQueue("seen")
        self._job: Job[SeenCentres] | None = None
        self._seen: SeenCentres | None = None
        """The result of the last search; None while `_job` has it."""
        self._key: _PictureKey | None = None
        self._loads = -1
        """The version of the scene (`SceneCache.loads`)."""
        self._count = -1
        """Its number of Gaussians."""

    def prepare(self, rect: Rect, *, through: bool) -> None:
        """Begin to search the newest version of the scene, in the picture in `rect`."""
        key = self._key_of(rect, through=through)
        is_newest = self._loads == self._view.data.loads
        if key is not None and (key != self._key or not is_newest):
            self._search(key, rect)

    def find(self, rect: Rect, *, through: bool) -> SeenCentres | None:
        """Return what is seen in the picture in `rect`; waits for the search.

        Of the version of the scene for which `prepare` was called: a training that goes
        on does not begin the search again, unless it has another number of Gaussians,
        which could not be chosen by that answer. None where it failed, which the user is
        told.
        """
        key = self._key_of(rect, through=through)
        if key is None:
            return None
        if key != self._key or self._count != self._scene_count:
            self._search(key, rect)
        job = self._job
        if job is not None:
            job.wait()
            self._job = None
            if job.fault:
                self._fail(job.fault)
            else:
                self._seen = job.result()
        return self._seen

    def _key_of(self, rect: Rect, *, through: bool) -> _PictureKey | None:
        camera = self._view.rig.camera(rect)
        if camera is None:
            return None
        selection = self._view.state.selection.unmarked
        return _PictureKey(camera.key, selection, through)

    @property
    def _scene_count(self) -> int:
        summary = self._view.data.summary
        if summary is None:
            return 0
        return summary.count

    def _search(self, key: _PictureKey, rect: Rect) -> None:
        """Search the scene; in another thread where the processor does it."""
        self.forget()
        camera = self._view.rig.camera_of_scene(rect)
        try:
            scene = self._view.data.renderer.scene()
        except RendererError as error:
            self._fail(str(error))
            return
        self._key = key
        self._loads = self._view.data.loads
        self._count = self._scene_count

        def search(_: Job[SeenCentres] | None = None) -> SeenCentres:
            return SeenCentres(scene, camera, key.selection, through=key.through)

        if scene.on_gpu:
            self._seen = search()
        else:
            self._job = self._jobs.submit(search)

    def _fail(self, message: str) -> None:
        self.forget()
        self._view.host.notify(message)

    def forget(self) -> None:
        """Drop the last answer. Idempotent."""
        self._jobs.close()
        self._job = None
        self._seen = None
        self._key = None
