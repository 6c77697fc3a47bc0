"""The layer of a view that a function's picture is drawn into, moved along or as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.screen import Rect, clear_rect
from splatview_viewer.kinds.rendered.textures import PictureTextures
from splatview_viewer.render.cameras.photos import PhotoTexture
from splatview_viewer.render.gl.moving import MovedPicture, can_be_moved

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.kinds.rendered.requests import FunctionPicture


class PictureLayer:
    """Draws the newest picture; one of another camera is moved along if it has depth."""

    def __init__(self, ctx: moderngl.Context, gpu_work: GpuWork) -> None:
        self.picture: FunctionPicture | None = None
        """The picture that is drawn; None: only the background is."""
        self.towards: Camera | None = None
        """The camera that the picture is moved to; None: it is drawn as it is."""
        self._gpu_work = gpu_work
        self._texture = PhotoTexture(ctx)
        self._moved = MovedPicture(ctx, has_few_cells=gpu_work.software)
        self._movable: FunctionPicture | None = None
        """The picture that `_moved` has taken."""

    @property
    def camera(self) -> Camera | None:
        """The camera that sees what is drawn; None without a picture."""
        if self.towards is not None or self.picture is None:
            return self.towards
        return self.picture.camera

    def draw(
        self,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        background: Color,
        middle: float,
    ) -> None:
        """Draw into a part of a framebuffer, every pixel of it once.

        Args:
            framebuffer: the target.
            rect: the part.
            background: RGB behind what the function leaves transparent.
            middle: distance of the scene from the camera.
        """
        picture = self.picture
        if picture is None:
            clear_rect(framebuffer, rect, background)
            return
        pixels = picture.pixels
        if isinstance(pixels, PictureTextures):
            self._texture.hold(pixels.color)
        else:
            self._texture.take(pixels.color, is_multiplied=True)
        if self.towards is not None:
            cameras = picture.camera, self.towards.resized(rect.width, rect.height)
            with self._gpu_work("moved", rect.width, rect.height):
                self._take_depth(picture)
                self._moved.draw(
                    framebuffer,
                    rect,
                    self._texture.texture,
                    cameras,
                    middle,
                    background,
                )
            return
        # Cameras keep their vertical field of view in a rectangle of another shape.
        width = round(rect.height * picture.camera.width / picture.camera.height)
        width = max(width, 1)
        x = rect.x + (rect.width - width) // 2
        if width < rect.width:
            clear_rect(framebuffer, rect, background)
        place = Rect(x, rect.y, width, rect.height)
        self._texture.draw(framebuffer, place, rect, background)

    def _take_depth(self, picture: FunctionPicture) -> None:
        """Have the depth of a picture be that by which it is moved."""
        if picture is not self._movable and picture.pixels.depth is not None:
            self._moved.take(picture.pixels.depth)
            self._movable = picture

    def drop(self) -> None:
        """Release what is made again when it is drawn. Idempotent."""
        self._texture.drop()
        self._moved.drop()
        self._movable = None

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._texture.close()
        self._moved.close()


def can_move(picture: FunctionPicture | None, camera: Camera) -> bool:
    """Return whether a picture is to be moved along to be what a camera sees."""
    if picture is None or picture.pixels.depth is None:
        return False
    is_same = _sees_same(picture.camera, camera)
    return not is_same and can_be_moved(picture.camera, camera)


def _sees_same(picture_camera: Camera, camera: Camera) -> bool:
    """Return whether a picture, in any resolution, is what a camera sees.

    Limits of depth do not count: the near one follows the points of the scene.
    """
    if picture_camera.model != camera.model:
        return False
    if not np.array_equal(picture_camera.viewmat, camera.viewmat):
        return False
    K = picture_camera.resized(camera.width, camera.height).K
    return np.allclose(K, camera.K)
