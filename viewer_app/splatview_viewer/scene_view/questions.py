"""Facts about a scene that a job finds while the loop goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.jobs import Job, JobQueue

if TYPE_CHECKING:
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.scene_view.protocol import SceneView


class Question:
    """A fact about a scene that one job finds; a new question drops an open one."""

    def __init__(self, view: SceneView, name: str) -> None:
        """Give the question's jobs the name `name`."""

        def wake() -> None:
            # The view may get another host.
            view.host.wake()

        self._view = view
        self._jobs = JobQueue(name, wake)
        self._job: Job[Any] | None = None

    def take(self) -> Any:
        """Return the answer once.

        Returns None while there is none, and where the memory for it was missing.
        """
        job = self._job
        if job is None or not job.done:
            return None
        self._job = None
        if isinstance(job.error, MemoryError):
            return None
        return job.result()

    def forget(self) -> None:
        """Drop the open question."""
        self._jobs.close()
        self._job = None


class PointPicker(Question):
    """Finds what lies under a pixel. Answers are lists of one hit, or of none."""

    def search(self, x: float, y: float, rect: Rect) -> None:
        """Search under a pixel of the framebuffer, where the picture fills `rect`.

        The user is notified where the renderer has failed.
        """
        self.forget()
        camera = self._view.rig.camera(rect)
        if camera is None:
            return
        try:
            finish = self._view.pick_later(camera, x - rect.x, y - rect.y)
        except RendererError as error:
            self._view.host.notify(str(error))
            return

        def find(_: Job[Any]) -> list[Any]:
            hit = finish()
            if hit is None:
                return []
            return [hit]

        self._job = self._jobs.submit(find)
