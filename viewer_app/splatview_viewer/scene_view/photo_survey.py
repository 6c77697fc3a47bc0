"""The PSNR of all photographs of a training, measured one after the other."""

from __future__ import annotations

import bisect
import math
import time
from collections import deque
from typing import TYPE_CHECKING

from splatview_viewer.core.jobs import RunningJob
from splatview_viewer.core.quantities import psnr_text
from splatview_viewer.render.cameras.photos import PhotoTexture
from splatview_viewer.scene_view.psnr_meter import READ_DELAY, PsnrMeter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.geometry.training_cameras import CameraSet
    from splatview_viewer.render.cameras.content import CamerasContent
    from splatview_viewer.render.cameras.photos import PhotoStore
    from splatview_viewer.scene_view.protocol import TrainedView

_MAX_DELAY = 10.0
"""Seconds after which a photograph that does not come is left out."""
_MOST_MISSING = 3
"""Photographs in a row that do not come, after which no others are waited for."""


class PhotoSurvey:
    """Measures all photographs of a view's cameras while the user does other things.

    One is measured in a turn of the loop, only while the camera rests and the GPU's
    account has something left.
    """

    def __init__(self, view: TrainedView) -> None:
        self._view = view
        self.is_by_psnr = False
        """The user goes through the cameras by PSNR, the worst first."""
        self.psnrs: dict[int, float] = {}
        """In dB, by camera."""
        self.worst_first: list[int] = []
        """The cameras that were measured, the worst one first."""
        self._order: Sequence[int] = ()
        self.seeks_worst = False
        """The worst photograph is to be looked at once all are measured."""
        self._waiting: deque[int] = deque()
        """The cameras that are not measured yet, the next one first."""
        self._total = 0
        self._measured_loads = -1
        """The scene (`SceneData.loads`) as it was when measuring began."""
        self._photos: tuple[int, int, tuple[str, ...]] = (0, 0, ())
        """The photographs that were measured: those of another set are others."""
        self._photo_texture = PhotoTexture(view.data.ctx)
        self._meter = PsnrMeter(view, self._photo_texture)
        self._is_measuring = False
        """The GPU compares the next camera's photograph now."""
        self._next_at = 0.0
        self._request_time = math.inf
        """When the next photograph was asked for."""
        self._missing = 0
        """The last photographs that did not come."""

    # -- what is known -------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """True while photographs are measured."""
        return bool(self._waiting)

    @property
    def is_current(self) -> bool:
        """True once all were measured of the scene as it is now."""
        is_same = self._measured_loads == self._view.data.loads
        return bool(self.psnrs) and not self.is_running and is_same

    @property
    def progress(self) -> float:
        """The share of the photographs that were measured."""
        return 1 - len(self._waiting) / max(self._total, 1)

    @property
    def count_words(self) -> str:
        """The number of photographs that were measured: "12 of 30"."""
        return f"{self._total - len(self._waiting)} of {self._total}"

    def take_worst(self) -> int | None:
        """Return the camera of the worst photograph, once if it is sought and known."""
        if not self.seeks_worst or self.is_running:
            return None
        self.seeks_worst = False
        return next(iter(self.worst_first), None)

    def order(self, cameras: CameraSet) -> Sequence[int]:
        """Return the cameras in the order in which the user goes through them."""
        if not self.is_by_psnr:
            return range(len(cameras))
        if len(self._order) != len(cameras):
            unmeasured = [i for i in range(len(cameras)) if i not in self.psnrs]
            self._order = [*self.worst_first, *unmeasured]
        return self._order

    def jobs(self) -> Sequence[RunningJob]:
        """Return the measurement, while it goes on."""
        if not self.is_running:
            return ()
        return [RunningJob("The photographs' PSNR", self.progress, self.cancel)]

    # -- measuring -----------------------------------------------------------------

    def start(self, cameras: CameraSet) -> None:
        """Measure all photographs, once more if they were measured before."""
        self._forget_results()
        self._waiting.clear()
        for index in range(len(cameras)):
            if cameras.is_valid[index] and cameras.has_photo(index):
                self._waiting.append(index)
        self._total = len(self._waiting)
        self._measured_loads = self._view.data.loads
        self._photos = _photos_of(cameras)
        self._is_measuring = False
        self._request_time = math.inf
        self._missing = 0
        self._view.host.wake()

    def cancel(self) -> None:
        """Measure no more; what was measured stays."""
        self._waiting.clear()
        self._is_measuring = False
        self.seeks_worst = False
        self._drop_pictures()

    def forget(self) -> None:
        """Forget what was measured: other cameras are shown."""
        self.cancel()
        self._forget_results()
        self.is_by_psnr = False

    def _forget_results(self) -> None:
        """Forget what was measured."""
        self.psnrs.clear()
        self.worst_first.clear()
        self._order = ()

    def tick(
        self,
        content: CamerasContent,
        cameras: CameraSet,
        now: float,
        looked_at: int | None,
    ) -> bool:
        """Measure the next photograph if that is due; return whether there is news.

        Args:
            looked_at: the camera whose photograph is shown: it comes first.
        """
        has_results = bool(self._waiting or self.psnrs)
        if has_results and self._photos != _photos_of(cameras):
            self.forget()
            return True
        if not self._waiting or not self._is_due(now):
            return False
        if self._is_measuring:
            self._take_result(now)
            return True
        if looked_at is not None and _is_expected(content.photos, looked_at):
            return False
        return self._measure_next(content.photos, cameras, now)

    def _measure_next(self, photos: PhotoStore, cameras: CameraSet, now: float) -> bool:
        """Have the next photograph measured once it is here; True if it is left out."""
        index = self._waiting[0]
        photo = photos.photo(index)
        camera = cameras.camera(index)
        if photo is None or camera is None:
            self._request_time = min(self._request_time, now)
            is_late = now - self._request_time > _MAX_DELAY
            if not is_late and camera is not None and _is_expected(photos, index):
                return False
            self._missing += is_late
            self._go_on()
            return True
        self._missing = 0
        started_at = time.perf_counter()
        if not self._meter.begin(camera, photo):
            self._next_at = now + READ_DELAY
            return False
        self._is_measuring = True
        # Where the processor draws, it has as much time for all else.
        seconds = time.perf_counter() - started_at
        self._next_at = now + max(READ_DELAY, seconds)
        self._view.host.wake()
        return False

    def _is_due(self, now: float) -> bool:
        """Return whether something may be measured now."""
        data = self._view.data
        if now < self._next_at or self._view.is_moving:
            return False
        if data.summary is None or data.stale:
            return False
        return not data.work.governor.next_picture()

    def _take_result(self, now: float) -> None:
        """Take the PSNR that the GPU has found."""
        self._is_measuring = False
        psnr = self._meter.result()
        if psnr is not None:
            camera_index = self._waiting[0]
            self.psnrs[camera_index] = psnr
            bisect.insort(self.worst_first, camera_index, key=self.psnrs.__getitem__)
            self._order = ()
        self._next_at = now
        self._go_on()

    def _go_on(self) -> None:
        """Go on with the next photograph, or end."""
        self._waiting.popleft()
        self._request_time = math.inf
        if self._missing >= _MOST_MISSING:
            self._waiting.clear()
            count = len(self.psnrs)
            self._view.host.notify(f"Photographs stopped coming: {count} are measured")
        if self._waiting:
            return
        self._drop_pictures()
        worst = self.worst_first
        if worst:
            text = psnr_text(self.psnrs[worst[0]])
            self._view.host.notify(f"The worst photograph: camera {worst[0]}, {text}")

    def _drop_pictures(self) -> None:
        """Release what the GPU needs only while photographs are measured."""
        self._meter.drop()
        self._photo_texture.drop()

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.cancel()
        self._meter.close()
        self._photo_texture.close()


def _is_expected(photos: PhotoStore, index: int) -> bool:
    """Return whether a photograph is not here, and may come."""
    return photos.photo(index) is None and not photos.problem(index)


def _photos_of(cameras: CameraSet) -> tuple[int, int, tuple[str, ...]]:
    return len(cameras), cameras.photos, cameras.paths
