"""The point of a drawn scene under a pixel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.geometry.cameras import project, unproject

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.rendered.requests import FunctionPicture
    from splatview_viewer.scene_view.sample import SceneSample

_REACH_SHARE = 0.05
"""Distance from the pixel within which a point of the sample counts, as a share of the
picture's height."""


@dataclass(frozen=True)
class ScenePoint:
    """A point of the scene."""

    point: np.ndarray
    """World coordinates (3,)."""


def pick(
    picture: FunctionPicture | None,
    sample: SceneSample | None,
    camera: Camera,
    x: float,
    y: float,
) -> ScenePoint | None:
    """Return what a camera sees at a pixel, by the depth of a picture if it has one.

    Otherwise it is the nearest point of the scene's sample. None: nothing is there.
    """
    if (
        picture is not None
        and picture.pixels.depth is not None
        and np.array_equal(picture.camera.viewmat, camera.viewmat)
    ):
        return _pick_by_depth(picture, camera, x, y)
    if sample is None:
        return None
    distances = np.linalg.norm(project(camera, sample.means) - (x, y), axis=1)
    # What is behind the camera is nowhere.
    distances = np.nan_to_num(distances, nan=np.inf)
    nearest = int(distances.argmin())
    if distances[nearest] > _REACH_SHARE * camera.height:
        return None
    return ScenePoint(np.asarray(sample.means[nearest], np.float64))


def _pick_by_depth(
    picture: FunctionPicture, camera: Camera, x: float, y: float
) -> ScenePoint | None:
    """Return the point at a pixel of a camera, whose picture may have another size."""
    width = picture.camera.width
    height = picture.camera.height
    scale = height / camera.height
    column = int(np.floor((x - camera.width / 2) * scale + width / 2))
    row = int(np.floor(y * scale))
    if not (0 <= column < width and 0 <= row < height):
        return None
    z = picture.pixels.depth_at(column, row)
    if not (np.isfinite(z) and z > 0):
        return None
    return ScenePoint(unproject(camera, x, y, z))
