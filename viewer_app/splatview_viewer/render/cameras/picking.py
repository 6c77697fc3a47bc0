"""Which camera's frustum lies under a pixel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.geometry.cameras import project

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.geometry.training_cameras import CameraSet


class Outlines:
    """Where the frustums of cameras lie on the screen, kept while nobody moves."""

    def __init__(self) -> None:
        self._of: CameraSet | None = None
        self._key: tuple[object, ...] = ()
        self._corners = np.empty((0, 4, 2))
        self._centres = np.empty((0, 2))
        self._depths = np.empty(0)

    def at(self, cameras: CameraSet, camera: Camera, depth: float, x: float, y: float, reach: float) -> int | None:
        """The nearest camera whose picture, at `depth` in front of it, or whose centre, within `reach` pixels, lies
        under a pixel of `camera`'s picture."""
        key = camera.key, depth
        if key != self._key or cameras is not self._of:
            self._key, self._of = key, cameras
            e, count = cameras.extents * depth, len(cameras)
            local = np.stack([e[:, [0, 1]], e[:, [2, 1]], e[:, [2, 3]], e[:, [0, 3]]], 1)
            local = np.concatenate([local, np.full((count, 4, 1), depth)], 2)
            turn = np.where(cameras.fine[:, None, None], cameras.viewmats[:, :3, :3], np.eye(3))
            self._corners = project(camera, local @ turn + cameras.positions[:, None])
            self._centres = project(camera, cameras.positions)
            self._depths = np.linalg.norm(cameras.positions - camera.position, axis=1)
        off = self._corners - (x, y)
        ahead = np.roll(off, -1, 1)
        turns = off[..., 0] * ahead[..., 1] - off[..., 1] * ahead[..., 0]
        with np.errstate(invalid="ignore"):
            inside = (turns > 0).all(1) | (turns < 0).all(1)
            inside |= (np.abs(self._centres - (x, y)) <= reach).all(1)
            inside &= cameras.fine & (self._depths > 0.4 * depth)  # not the one in which somebody stands
        found = np.flatnonzero(inside)
        return int(found[np.argmin(self._depths[found])]) if len(found) else None
