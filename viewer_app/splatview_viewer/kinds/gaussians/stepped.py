"""Pictures of a scene that are drawn in steps, while the ones before are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.steps import SteppedWork
    from splatview_viewer.kinds.gaussians.cache import SceneCache
    from splatview_viewer.kinds.gaussians.picture import (
        GpuTask,
        PictureKey,
        ViewportPicture,
    )
    from splatview_viewer.render.base import RenderedPicture, RenderOptions


@dataclass
class UnfinishedPicture:
    """A picture of which some steps are done."""

    work: SteppedWork[RenderedPicture]
    picture: ViewportPicture
    """The viewport's picture that it will be."""
    camera: Camera
    key: PictureKey
    size: tuple[int, int]
    """Width and height of the viewport."""
    task: GpuTask
    is_passing: bool
    """What it shows changes: it is finished also if the camera or the options have gone
    on meanwhile, so that something is seen of a drag that does not end."""


_MAX_VERSION_WAIT_S = 1.0
"""Seconds for which a new version waits for pictures that are drawn without a pause, as
while a user drags."""


class SteppedPictures:
    """Draws one picture of a scene at a time in steps, each whole before it is shown."""

    def __init__(self, cache: SceneCache) -> None:
        self._cache = cache
        self._unfinished: UnfinishedPicture | None = None
        self._waiting: list[ViewportPicture] = []
        """Pictures of other viewports that are wanted meanwhile."""
        self._giving_way: ViewportPicture | None = None
        """The picture that was drawn last, while others waited: it lets them begin."""
        self._version_since: float | None = None
        """Time of the loop since which a version of the scene waits; None: none does."""
        self._version_before = 0
        """The version (`SceneCache.loads`) that is drawn meanwhile."""

    @property
    def is_drawing(self) -> bool:
        """True while the renderer is taken."""
        return self._unfinished is not None

    def awaits(
        self, picture: ViewportPicture, camera: Camera, options: RenderOptions
    ) -> bool:
        """Return True if a viewport has to wait for a picture that it still wants.

        Args:
            picture: the viewport's picture.
            camera: the present camera, in the viewport's size.
            options: the present options.
        """
        unfinished = self._unfinished
        if unfinished is None:
            return False
        if unfinished.picture is not picture:
            return picture in self._waiting
        key = unfinished.key
        if key.loads != self._cache.loads:
            return False
        if unfinished.size != (camera.width, camera.height):
            return False
        if unfinished.is_passing:
            return True
        return key.options == options and is_same_pose(unfinished.camera, camera)

    def await_version(self) -> None:
        """Take note that a version of the scene waits for a pause between pictures."""
        if self._version_since is None or self._version_before != self._cache.loads:
            self._version_since = self._cache.now
            self._version_before = self._cache.loads

    def _gives_way(self, picture: ViewportPicture) -> bool:
        """Return whether others come first, for the length of a turn."""
        if self._version_before != self._cache.loads:
            self._version_since = None
        since = self._version_since
        if since is not None and self._cache.now - since >= _MAX_VERSION_WAIT_S:
            self._version_since = None
            return True
        if self._giving_way is picture:
            self._giving_way = None
            return True
        return False

    def start(
        self,
        picture: ViewportPicture,
        camera: Camera,
        key: PictureKey,
        size: tuple[int, int],
        *,
        is_passing: bool,
    ) -> None:
        """Begin a picture in place of an unfinished one of this viewport.

        While one of another viewport is drawn, this one waits.
        """
        unfinished = self._unfinished
        if unfinished is not None and unfinished.picture is not picture:
            self._waiting.append(picture)
            return
        self.give_up()
        if self._gives_way(picture):
            picture.motion.has_landed = True
            return
        cache = self._cache
        for shown in cache.pictures:
            if shown.is_borrowed:
                shown.keep(cache.composer)
        steps = cache.renderer.steps(camera, key.options)
        self._unfinished = UnfinishedPicture(
            work=cache.work.steps.start(steps),
            picture=picture,
            camera=camera,
            key=key,
            size=size,
            task=("scene", camera.width, camera.height),
            is_passing=is_passing,
        )

    def land(self, *, wait: bool = False) -> None:
        """Have the unfinished picture take its place, if it is done.

        Args:
            wait: take all of its steps now.

        Raises:
            RendererError: it cannot be drawn.
        """
        unfinished = self._unfinished
        if unfinished is None or not (wait or unfinished.work.is_done):
            return
        self._unfinished = None
        picture = unfinished.picture
        if self._waiting:
            self._giving_way = picture
        self._call_waiting()
        picture.motion.has_landed = True
        rendered = unfinished.work.result()
        self._cache.work.record(unfinished.task, unfinished.work.ms)
        self._cache.take_rendered(picture, unfinished.camera, unfinished.key, rendered)

    def give_up(self, *pictures: ViewportPicture) -> None:
        """Draw no more of the unfinished picture.

        Args:
            pictures: only if it is one of these, which do not wait either; none: in
                any case.
        """
        self._waiting = [p for p in self._waiting if p not in pictures]
        unfinished = self._unfinished
        if unfinished is None or (pictures and unfinished.picture not in pictures):
            return
        self._unfinished = None
        unfinished.work.give_up()
        self._call_waiting()

    def _call_waiting(self) -> None:
        """Have the viewports that wait be drawn."""
        for picture in self._waiting:
            picture.motion.has_landed = True
        self._waiting.clear()


def is_same_pose(first: Camera, second: Camera) -> bool:
    """Return whether two cameras are at one place, and look in one direction."""
    return np.array_equal(first.viewmat, second.viewmat)


def is_outdated(
    picture: ViewportPicture, camera: Camera, options: RenderOptions
) -> bool:
    """Return whether a picture shows another pose or look than is wanted now."""
    if picture.camera is None or picture.key is None:
        return False
    is_same_look = picture.key.options == options
    return not (is_same_look and is_same_pose(picture.camera, camera))
