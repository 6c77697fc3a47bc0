"""Pictures of a scene that CUDA alone draws, as bytes over a background.

OpenGL has no part in them: the GPU need not turn to it and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.kinds.gaussians.picture import DevicePicture

if TYPE_CHECKING:
    import torch

    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.cache import SceneCache
    from splatview_viewer.kinds.gaussians.picture import PictureKey, ViewportPicture
    from splatview_viewer.render.base import RenderedPicture, RenderOptions


class DevicePictures:
    """Draws what `Composer.lay` would of colours in full resolution."""

    def __init__(self, cache: SceneCache) -> None:
        self._cache = cache
        self._queued: RenderedPicture | None = None
        """The picture of `queue`, until `finish`."""

    def draw(
        self,
        picture: ViewportPicture,
        camera: Camera,
        key: PictureKey,
        background: Color,
    ) -> None:
        """Have a picture be drawn, unless the scene was overwritten meanwhile.

        It is one for OpenGL where another renderer has to take over.
        """
        cache = self._cache
        while True:
            with cache.stopwatch("render"):
                rendered = cache.render(picture, camera, key.options)
            with cache.stopwatch("lay"):
                pixels = rendered.over_background(background)
            if pixels is None:
                cache.take_rendered(picture, camera, key, rendered)
                return
            cache.report_gpu_times()
            with cache.stopwatch("wait"):
                lacks_gaussians = rendered.lacks_gaussians()
            if not lacks_gaussians:
                break
        if cache.finish_reading():
            picture.become_device(DevicePicture(pixels, background), camera, key)
            picture.drop_copy()

    def queue(
        self,
        picture: ViewportPicture,
        camera: Camera,
        options: RenderOptions,
        background: Color,
    ) -> torch.Tensor | None:
        """Queue a picture, as uint8 (H, W, 3) on the GPU, and wait for nothing.

        Call `finish` afterwards. Returns None where CUDA did not draw. `picture` shows
        nothing afterwards.
        """
        cache = self._cache
        picture.become()
        rendered = cache.render(picture, camera, options)
        pixels = rendered.over_background(background)
        cache.report_gpu_times()
        if pixels is None:
            cache.finish_reading()
            return None
        self._queued = rendered
        return pixels

    def finish(self) -> bool:
        """Wait for the picture of `queue`; return False if it has to be queued again.

        Afterwards the scene is stale if it was overwritten meanwhile.
        """
        picture = self._queued
        if picture is not None and picture.lacks_gaussians():
            return False
        self._queued = None
        self._cache.finish_reading()
        return True
