"""Content of a stream of cameras: the cameras, and their photographs.

It is shared by the stream's own view and by scenes that are trained with the cameras.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.geometry.training_cameras import CameraSet, cameras_of
from splatview_viewer.render.cameras.drawing import FrustumDrawing
from splatview_viewer.render.cameras.hints import CameraHints
from splatview_viewer.render.cameras.photos import PhotoStore

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.view import Value
    from splatview_viewer.gpu.work import GpuWork


class CamerasContent:
    """Lives until the last of its users is gone."""

    def __init__(self, ctx: moderngl.Context, gpu_work: GpuWork) -> None:
        self.ctx = ctx
        self.work = gpu_work
        self.cameras: CameraSet | None = None
        self.current: int | None = None
        """Index of the camera that is trained with; None if it was not published."""
        self.changes = 0
        """Counts changes of cameras, of photographs and of `current`."""
        self.meta: dict[str, object] = {}
        self.photos = PhotoStore(self._wake)
        self.drawing = FrustumDrawing(ctx, gpu_work)
        self.hints = CameraHints()
        self.wants_thumbnails = True
        """True if small photographs are wanted."""
        self._users: list[Any] = []
        """Views, which have `wake()`: have the loop turn soon, from any thread."""

    def join(self, user: Any) -> None:
        """Add a user, a view."""
        if user not in self._users:
            self._users.append(user)

    def leave(self, user: Any) -> None:
        """Remove a user; with the last one everything is released. Idempotent."""
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self.close()

    def _wake(self) -> None:
        for user in list(self._users):
            user.wake()

    @property
    def closed(self) -> bool:
        """True if there is no user."""
        return not self._users

    def update(self, value: Value) -> bool:
        """Take a frame of cameras, as `View.update`."""
        if isinstance(value, np.ndarray) or not hasattr(value, "tensors"):
            raise ViewerError(f"cameras: a {type(value).__name__} holds no cameras")
        frame: StreamFrame = value  # type: ignore[assignment]
        cameras = cameras_of(frame)
        meta = dict(frame.meta)
        if not frame.intact():
            return False
        self.meta = meta
        self.use_cameras(cameras)
        return True

    def use_cameras(self, cameras: CameraSet) -> None:
        """Show these cameras from now on."""
        has_new_photos = self.photos.use_cameras(cameras)
        self.drawing.use(cameras, photos_stay=not has_new_photos)
        self.hints.check_intrinsics(cameras)
        self.cameras = cameras
        self.changes += 1

    def take_update(self, frame: StreamFrame) -> bool:
        """Take photographs, or the index of the camera that is trained with.

        Returns False if they were overwritten meanwhile.
        """
        if "current" in frame.tensors:
            index = int(frame.tensors["current"].array[0])  # type: ignore[union-attr]
            if not frame.intact():
                return False
            self.changes += index != self.current
            self.current = index
        elif "photos" in frame.tensors:
            self.changes += 1
            if frame.meta["photos"] == self.photos.photo_set:
                self.hints.take_photo_hint(frame.meta.get("hint"))
            return self.photos.take_frame(frame)
        return True

    def tick(self, now: float) -> None:
        """Take photographs that were read, and bring them to the GPU."""
        has_changed = self.photos.tick(now)
        if self.wants_thumbnails and self.cameras is not None:
            has_changed |= self.drawing.upload_thumbnails(self.photos)
        self.changes += has_changed

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._users.clear()
        self.photos.close()
        self.drawing.close()
        self.cameras = None
