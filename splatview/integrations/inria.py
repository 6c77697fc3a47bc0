"""Show the training cameras of inria's `train.py` and of trainers that were made of it.

For example, in `training()`, before its loop::

    from splatview.integrations import inria
    inria.publish_cameras(scene.getTrainCameras())

Among these trainers are 2DGS and mip-splatting. Their `GaussianModel` goes into
`splatview.publish` as it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

import splatview

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["publish_cameras"]


def publish_cameras(cameras: Sequence[Any], name: str = "cameras") -> None:
    """Publish cameras of inria's class `Camera` with the photographs that they hold.

    They are numbered as `getTrainCameras` lists them, which is what their attribute
    `uid` says: `splatview.publish_cameras(current=viewpoint_cam.uid)` names the one
    that is trained with. The photographs are kept, not copied.

    Args:
        cameras: what `scene.getTrainCameras()` returns.
        name: the stream's.
    """
    splatview.publish_cameras(
        # They hold the transpose, as their CUDA code reads it.
        torch.stack([camera.world_view_transform.T for camera in cameras]),
        torch.tensor([_intrinsics(camera) for camera in cameras]),
        [camera.image_width for camera in cameras],
        [camera.image_height for camera in cameras],
        [getattr(camera, "original_image", None) for camera in cameras],
        name,
    )


def _intrinsics(camera: Any) -> list[list[float]]:
    """Return the matrix K of a camera whose principal point is the picture's middle."""
    width = camera.image_width
    height = camera.image_height
    focal_x = width / (2 * math.tan(camera.FoVx / 2))
    focal_y = height / (2 * math.tan(camera.FoVy / 2))
    return [[focal_x, 0.0, width / 2], [0.0, focal_y, height / 2], [0.0, 0.0, 1.0]]
