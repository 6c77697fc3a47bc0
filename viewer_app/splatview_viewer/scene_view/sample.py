"""A sample of a scene's points, and the cameras from which the whole scene is seen."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.geometry.cameras import NEAR, bounds, frame_ball, frame_points

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera

_VISIBLE_OPACITY = 0.05
"""Points of at most this opacity do not count when a scene is framed."""
_MAX_NEAR_POINTS = 5000
_MAX_FRAMED_POINTS = 50_000
_FILLED_SHARE = 0.84
"""Share of the picture's width and height that the framed scene takes."""
_SQUARE = 1000
"""Pixels along the sides of a picture whose shape does not matter."""


@dataclass(frozen=True)
class SceneSample:
    """A sample of a scene's points, evenly spread over its arrays."""

    means: np.ndarray
    """(M, 3) float32, or float64 as the scene's."""
    opacities: np.ndarray
    """(M,) float32 in [0, 1]."""

    @property
    def weights(self) -> np.ndarray | None:
        """Opacities (M,), 0 for what can hardly be seen; None when nothing can."""
        # A NaN compares as False, and counts as invisible.
        is_visible = self.opacities > _VISIBLE_OPACITY
        weights = np.where(is_visible, self.opacities, 0.0)
        if weights.any():
            return weights
        return None

    @functools.cached_property
    def center(self) -> np.ndarray:
        """Middle (3,) of all points, visible or not."""
        return bounds(self.means)[0]

    @functools.cached_property
    def bounds(self) -> tuple[np.ndarray, float]:
        """Middle (3,) and radius of the visible points."""
        return bounds(self.means, self.weights)

    @property
    def middle(self) -> np.ndarray:
        """Middle (3,) of the visible points."""
        return self.bounds[0]

    def near_of(self, camera: Camera) -> Camera:
        """Return a camera whose near plane fits scenes smaller than a unit.

        Only gsplat's default near plane is replaced, not one that was chosen.
        """
        if self._near < camera.near == NEAR:
            return replace(camera, near=self._near)
        return camera

    @functools.cached_property
    def _near(self) -> float:
        # This is computed for each version of a stream, so few points have to do.
        step = len(self.means) // _MAX_NEAR_POINTS + 1
        _, radius = bounds(self.means[::step])
        return min(NEAR, NEAR * radius)

    def camera(self, width: int, height: int, up: np.ndarray) -> Camera:
        """Return the camera from which the whole scene is seen in the picture's middle.

        Starts from `frame_points`, whose direction it keeps, and corrects it by where
        the visible points come to lie in the picture. Floaters, the outer hundredth on
        each side, do not count, and the camera never moves far.
        """
        start = frame_points(self.means, width, height, weights=self.weights, up=up)
        return self._fill_picture(start)

    def camera_along(
        self, rotation: np.ndarray, fov: float, width: int, height: int
    ) -> Camera:
        """Return the camera that sees the whole scene in a given direction.

        Args:
            rotation: (3, 3) world to camera.
            fov: vertical angle in degrees.
            width: the width of the picture, in pixels.
            height: the height of the picture, in pixels.
        """
        start = frame_ball(*self.bounds, rotation, fov, width, height)
        return self._fill_picture(start)

    def focus(self, up: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the point (3,) that a first camera looks at, and how far away it is.

        The picture is a square, so that scenes of any shape are alike.
        """
        camera = self.camera(_SQUARE, _SQUARE, up)
        rotation = camera.viewmat[:3, :3]
        distance = float((rotation @ self.middle + camera.viewmat[:3, 3])[2])
        return camera.position + rotation[2] * distance, distance

    def _fill_picture(self, camera: Camera) -> Camera:
        """Move a pinhole camera to where the visible points fill its picture."""
        points = self._framed_points()
        focal = camera.K[0, 0]
        extent = np.array([camera.width, camera.height]) / focal * _FILLED_SHARE
        viewmat = camera.viewmat
        # One correction is exact for a flat scene; the second takes depth in.
        for _ in range(2):
            in_camera = points @ viewmat[:3, :3].T + viewmat[:3, 3]
            in_front = in_camera[in_camera[:, 2] > camera.near]
            if len(in_front) < 2:
                break
            distance = float(np.median(in_front[:, 2]))
            slopes = in_front[:, :2] / in_front[:, 2:]
            low, high = np.percentile(slopes, (1, 99), axis=0)
            factor = float(np.clip(((high - low) / extent).max(), 0.7, 1.6))
            sideways = (low + high) / 2 * distance
            viewmat = viewmat.copy()
            viewmat[:3, 3] -= np.array([*sideways, distance * (1 - factor)])
        return replace(camera, viewmat=viewmat)

    def _framed_points(self) -> np.ndarray:
        """Return some of the finite, visible points, (N, 3) float64."""
        weights = self.weights
        if weights is None:
            points = self.means
        else:
            points = self.means[weights > 0]
        points = points[np.isfinite(points).all(axis=1)]
        step = max(len(points) // _MAX_FRAMED_POINTS, 1)
        return points[::step].astype(np.float64)
