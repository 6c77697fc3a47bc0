"""Pictures that are moved along with the camera until a new one is done."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.control.errors import SharingError
from splatview_viewer.core.errors import RendererError
from splatview_viewer.gpu.costs import scaled_size
from splatview_viewer.gpu.governor import WITH_DEPTH
from splatview_viewer.kinds.gaussians.picture import GpuTask, PictureKey

if TYPE_CHECKING:
    from splatview_ipc.gl.base import PixelSource
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.cache import SceneCache
    from splatview_viewer.kinds.gaussians.picture import ViewportPicture
    from splatview_viewer.render.base import RenderedPicture, RenderOptions

log = logging.getLogger("splatview")

_FLUENT_MS = 10.0
"""Milliseconds up to which a scene is drawn for each picture where no other process
needs the GPU."""
_MIN_TURN_COSINE = 0.7
"""Cosine of the turn from which on a picture shows too little of what is seen now."""


@dataclass
class QueuedPicture:
    """A picture that the GPU is drawing and that is not waited for."""

    rendered: RenderedPicture
    picture: ViewportPicture
    """The viewport's picture that it will be."""
    camera: Camera
    key: PictureKey
    reads_scene: bool
    """The scene is read in one go with it."""


class MovedPictures:
    """Moves the pictures of a scene, and queues the new ones without waiting for them."""

    def __init__(self, cache: SceneCache) -> None:
        self._cache = cache
        self.queued: QueuedPicture | None = None
        """The picture that is being drawn for later."""

    def can_move(
        self, picture: ViewportPicture, camera: Camera, options: RenderOptions
    ) -> bool:
        """Return True if the picture, moved to `camera`, may stand in for a new one."""
        rendered_with = picture.camera
        if picture.movable is None or rendered_with is None or picture.key is None:
            return False
        drawn = picture.key.options
        # It shows another sort of thing.
        if (drawn.paint, drawn.depth) != (options.paint, options.depth):
            return False
        if rendered_with.model != camera.model:
            return False
        size = (camera.width, camera.height)
        if self._is_fluent(picture, size):
            return False
        rotation = rendered_with.viewmat[:3, :3].T @ camera.viewmat[:3, :3]
        if float(np.trace(rotation)) < 1 + 2 * _MIN_TURN_COSINE:
            return False
        return self._is_worthwhile(picture, size)

    def is_wanted(self, picture: ViewportPicture, size: tuple[int, int]) -> bool:
        """Return True if the picture is to be moved along from the next one on.

        For one that cannot be moved; `can_move` says it of others.
        """
        if self._is_fluent(picture, size):
            return False
        return self._is_worthwhile(picture, size)

    def _is_fluent(self, picture: ViewportPicture, size: tuple[int, int]) -> bool:
        """Return True if nothing holds back a new picture each time."""
        governor = self._cache.work.governor
        if governor.account.limited:
            return False
        scene_ms = governor.cost(("scene", *size)) or 0.0
        warp_ms = governor.cost(self._warp_task(picture, size)) or 0.0
        return scene_ms <= max(_FLUENT_MS, 2 * warp_ms)

    def _is_worthwhile(self, picture: ViewportPicture, size: tuple[int, int]) -> bool:
        """Return True if the governor has pictures be moved along, or has no say."""
        governor = self._cache.work.governor
        if not governor.account.limited:
            return True
        return governor.moves_along("scene", size, self._warp_task(picture, size))

    def move_along(
        self, picture: ViewportPicture, camera: Camera, options: RenderOptions
    ) -> None:
        """Have a picture be moved until a new one is done.

        The new one is queued, if that may be, without waiting for it.
        """
        self.land()
        key = PictureKey(camera.key, options, self._cache.loads)
        if picture.key == key:
            picture.scale = 1.0
            return
        if not self._cache.is_being_replaced:
            self._queue_next(picture, camera, key)
        # Where it could not be queued, it has been drawn at once.
        if picture.key != key:
            picture.motion.towards = camera
        else:
            picture.scale = 1.0

    def _queue_next(
        self, picture: ViewportPicture, camera: Camera, key: PictureKey
    ) -> None:
        """Queue the picture that `key` says, if that may be, in lower resolution."""
        size = (camera.width, camera.height)
        scale = self._next_scale(size)
        if scale is None:
            return
        picture.scale = scale
        if scale < 1.0:
            camera = camera.resized(*scaled_size(size, scale))
        self._queue(picture, camera, key._replace(camera_key=camera.key))

    def _next_scale(self, size: tuple[int, int]) -> float | None:
        """Return the resolution of the next picture of the scene, shown at this size.

        Returns None while it may not begin, as another one is being drawn, or its cost
        is being saved up.
        """
        governor = self._cache.work.governor
        scale, ms = governor.scale_with_depth("scene", size)
        # The scene is read in one go with the picture.
        if self._cache.renderer.pending:
            ms += governor.cost(("load",)) or 0.0
        if not governor.has_saved(ms) or self.queued is not None:
            return None
        return scale

    def _queue(self, picture: ViewportPicture, camera: Camera, key: PictureKey) -> None:
        """Render, with depth, what `picture` becomes when that is done (`land`).

        It is drawn at once where it cannot be moved along.
        """
        with self._cache.stopwatch("render"):
            self.land(wait=True)
            reads_scene = self._cache.reads_scene
            options = replace(key.options, depth=True)
            rendered = self._cache.render(picture, camera, options, WITH_DEPTH)
            if rendered.queue_source():
                self.queued = QueuedPicture(rendered, picture, camera, key, reads_scene)
                self._cache.work.flush()
                self._cache.report_gpu_times()
                return
        if self._cache.finish_reading():
            picture.become(rendered.source(), camera, key, is_borrowed=True)

    def land(self, *, wait: bool = False) -> None:
        """Have the queued picture take its place, if it is done.

        Args:
            wait: wait until it is done.
        """
        queued = self.queued
        if queued is None or not (wait or queued.rendered.is_done):
            return
        self.queued = None
        if queued.reads_scene and not self._cache.finish_reading():
            return
        source = queued.rendered.queued_source()
        if source is None:
            return
        movable = queued.rendered.movable
        queued.picture.become(
            source, queued.camera, queued.key, is_borrowed=True, movable=movable
        )
        queued.picture.motion.has_landed = True

    def moves_on(self, picture: ViewportPicture, moving: bool) -> bool:
        """Return True if a picture that is moved along has to be drawn again.

        Args:
            moving: the camera still moves.
        """
        motion = picture.motion
        has_landed = motion.has_landed
        motion.has_landed = False
        if motion.towards is None:
            return has_landed
        if has_landed or not moving:
            return True
        size = (motion.towards.width, motion.towards.height)
        return self._next_scale(size) is not None

    def source(
        self, picture: ViewportPicture, pivot_distance: float
    ) -> PixelSource | None:
        """Return the pixels of a viewport's picture, moved if that is due.

        Args:
            pivot_distance: from the camera to what is orbited around.
        """
        movable = picture.movable
        rendered_with = picture.camera
        towards = picture.motion.towards
        if towards is None or rendered_with is None or movable is None:
            return picture.source
        size = (towards.width, towards.height)
        self._cache.work.governor.charge(self._warp_task(picture, size), "cuda")
        try:
            return movable.mover.move(movable, rendered_with, towards, pivot_distance)
        except (RendererError, SharingError, RuntimeError) as error:
            log.warning("pictures are moved along no more: %s", error)
            movable.mover.failure = str(error) or type(error).__name__
            picture.movable = None
            return picture.source

    def _warp_task(self, picture: ViewportPicture, size: tuple[int, int]) -> GpuTask:
        """Return the governor's work of moving a picture, to be shown at this size."""
        task = ("warp", *size)
        if picture.movable is not None:
            ms = picture.movable.mover.clock.new_ms
            if ms is not None:
                self._cache.work.record(task, ms)
        return task
