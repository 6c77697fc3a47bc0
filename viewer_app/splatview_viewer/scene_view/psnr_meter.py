"""The PSNR of a training camera's photograph and the scene as it was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.core.quantities import psnr_text
from splatview_viewer.core.screen import Rect
from splatview_viewer.geometry.training_cameras import at_size
from splatview_viewer.render.pair_compositor import PairCompositor

if TYPE_CHECKING:
    import numpy as np

    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.cameras.photos import PhotoTexture
    from splatview_viewer.scene_view.protocol import SceneView, TrainedView

READ_DELAY = 0.05
"""Seconds until the GPU is asked what the PSNR came to."""
_MEASURE_PERIOD = 0.5
"""Seconds between two measurements of a scene that changes."""


class _PsnrKey(NamedTuple):
    """The inputs of a measurement: others make another PSNR."""

    camera_index: int
    photo_id: int
    scene_version: int
    background: Color


class PsnrMeter:
    """Measures from time to time, at the photograph's own size."""

    def __init__(self, view: TrainedView, photo_texture: PhotoTexture) -> None:
        """Measure for a view; `photo_texture` may be used for other drawing as well."""
        self._view = view
        self._photo_texture = photo_texture
        self._compositor = PairCompositor(view.data.ctx, view.data.work)
        self.psnr: float | None = None
        """In dB; None while it is not known."""
        self._measured: _PsnrKey | None = None
        self._pending: _PsnrKey | None = None
        """The measurement that the GPU makes now."""
        self._next_at = 0.0
        """Time of the next step of a measurement."""
        self._copy: SceneView | None = None
        """Draws what is measured, while another program draws that."""

    @property
    def text(self) -> str:
        """The PSNR for users; "" while it is not known."""
        if self.psnr is None:
            return ""
        return psnr_text(self.psnr)

    def forget(self) -> None:
        """Forget what was measured: another camera is looked through."""
        self.psnr = None
        self._measured = None
        self._pending = None
        self._drop_copy()

    def tick(self, now: float, index: int, camera: Camera, photo: np.ndarray) -> bool:
        """Measure if that is due; return whether the PSNR has changed.

        Args:
            now: time of the loop, in seconds.
            index: the index of the camera.
            camera: the camera.
            photo: its photograph, as `PhotoStore.photo`.
        """
        view = self._view
        if now < self._next_at or view.data.summary is None or view.data.stale:
            return False
        if self._pending is not None:
            previous = self.psnr
            self.psnr = self.result()
            self._measured = self._pending
            self._pending = None
            self._next_at = now + _MEASURE_PERIOD
            return previous != self.psnr
        key = _PsnrKey(index, id(photo), view.data.loads, view.background)
        if key == self._measured or view.is_moving:
            return False
        self._next_at = now + READ_DELAY
        if self.begin(camera, photo):
            self._pending = key
        return False

    def result(self) -> float | None:
        """Return the PSNR of what `begin` compared, in dB; waits for the GPU."""
        return self._compositor.psnr()

    def begin(self, camera: Camera, photo: np.ndarray) -> bool:
        """Have the GPU compare the photograph of a camera with the scene.

        Returns False while another program has not drawn the scene yet: to be called
        again soon.
        """
        height, width = photo.shape[:2]
        rect = Rect(0, 0, width, height)
        copy = self._copy or self._view.trained_copy()
        self._copy = copy
        copy.rig.use_camera(at_size(camera, width, height))
        if copy.awaits_picture(rect):
            return False
        # The bound framebuffer must not stay ours: it may be released before
        # anything else is drawn. `ctx.fbo` may be one that was released meanwhile.
        bound = self._view.data.ctx.detect_framebuffer()
        try:
            copy.draw(self._compositor.target(0, width, height, "f1"), rect)
            background = copy.background
        finally:
            self._drop_copy()
        photographed = self._compositor.target(1, width, height, "f1")
        self._photo_texture.take(photo)
        self._photo_texture.draw(photographed, rect, background=background)
        self._compositor.measure()
        bound.use()
        return True

    def _drop_copy(self) -> None:
        if self._copy is not None:
            self._copy.release("closed")
            self._copy = None

    def drop(self) -> None:
        """Release what is only needed to measure."""
        self._drop_copy()
        self._compositor.drop()

    def close(self) -> None:
        """Release everything. Idempotent."""
        self._drop_copy()
        self._compositor.close()
