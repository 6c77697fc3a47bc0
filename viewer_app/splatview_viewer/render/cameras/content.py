"""Content of a stream of cameras, shared by its own view and by scenes that are trained with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.geometry.training_cameras import CameraSet, cameras_of
from splatview_viewer.render.cameras.drawing import FrustumDrawing
from splatview_viewer.render.cameras.photos import PhotoStore

if TYPE_CHECKING:
    import moderngl

    from splatview_ipc.control.frame import Frame
    from splatview_viewer.core.view import Value
    from splatview_viewer.gpu.work import GpuWork


class _User(Protocol):
    """Whoever looks."""

    def wake(self) -> None:
        """Have the loop turn soon. From any thread."""
        ...


class CamerasContent:
    """Lives until the last of those who use it is gone."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self.ctx, self.work = ctx, work
        self.cameras: CameraSet | None = None
        self.current: int | None = None
        """Which one is trained with; None: nobody says."""
        self.changes = 0
        """Counts what came: cameras, photographs, which one is trained with."""
        self.meta: dict[str, object] = {}
        self.photos = PhotoStore(self._wake)
        self.drawing = FrustumDrawing(ctx, work)
        self.small = True
        """True if small photographs are wanted."""
        self._users: list[_User] = []

    def join(self, user: _User) -> None:
        if user not in self._users:
            self._users.append(user)

    def leave(self, user: _User) -> None:
        """Somebody looks no more; with the last one everything is given back. Idempotent."""
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self.close()

    def _wake(self) -> None:
        for user in list(self._users):
            user.wake()

    @property
    def closed(self) -> bool:
        return not self._users

    def update(self, value: Value) -> bool:
        """As `View.update`."""
        if isinstance(value, np.ndarray) or not hasattr(value, "tensors"):
            raise ViewerError(f"cameras: a {type(value).__name__} holds no cameras")
        frame: Frame = value  # type: ignore[assignment]
        cameras, meta = cameras_of(frame), dict(frame.meta)
        if not frame.intact():
            return False
        self.meta = meta
        self.put(cameras)
        return True

    def put(self, cameras: CameraSet) -> None:
        """These are the cameras from now on."""
        others = self.photos.use(cameras)
        self.drawing.use(cameras, photos_stay=not others)
        self.cameras = cameras
        self.changes += 1

    def take_part(self, frame: Frame) -> bool:
        """Take photographs, or the number of the camera that is trained with. False if they were overwritten meanwhile.
        """
        if "current" in frame.tensors:
            number = int(frame.tensors["current"].array[0])  # type: ignore[union-attr]
            if not frame.intact():
                return False
            self.changes += number != self.current
            self.current = number
        elif "photos" in frame.tensors:
            self.changes += 1
            return self.photos.take(frame)
        return True

    def tick(self, now: float) -> None:
        """Take in what was read, and bring it to the GPU."""
        came = self.photos.tick(now)
        if self.small and self.cameras is not None:
            came |= self.drawing.take_small(self.photos)
        self.changes += came

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._users.clear()
        self.photos.close()
        self.drawing.close()
        self.cameras = None
