"""The camera that a function draws a picture with."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from splatview_ipc.control.messages import Draw


@dataclass(frozen=True, eq=False)
class RenderCamera:
    """The camera of a picture, as gsplat's `rasterization` and the like take it.

    OpenCV axes: x right, y down, z forward. Pixel centres are at +0.5.
    """

    viewmat: torch.Tensor
    """(4, 4) float32, world to camera."""
    c2w: torch.Tensor
    """(4, 4) float32, camera to world: the inverse of `viewmat`."""
    K: torch.Tensor
    """(3, 3) float32, focal lengths and principal point in pixels."""
    c2w_host: np.ndarray
    """`c2w` as a float64 array in host memory, for which no GPU has to be waited for."""
    K_host: np.ndarray
    """`K` likewise."""
    width: int
    """Pixels of the picture that is expected."""
    height: int
    model: str = "pinhole"
    """"pinhole", "ortho" (K has pixels per world unit) or "fisheye"."""
    near: float = 0.01
    far: float = 1e10
    is_draft: bool = False
    """True while the camera moves: another picture follows soon, so a coarse one does."""
    fov: float = math.nan
    """Vertical field of view in radians, of a pinhole camera."""

    @classmethod
    def of(cls, draw: Draw, device: torch.device | str = "cpu") -> RenderCamera:
        """Return the camera of a viewer's request.

        Waits for no GPU. Raises ValueError for a camera that cannot be inverted.

        Args:
            draw: the request.
            device: where the tensors are to be.
        """
        camera = draw.camera
        viewmat = np.array(camera.viewmat, np.float64).reshape(4, 4)
        K = np.array(camera.K, np.float64).reshape(3, 3)
        if not np.isfinite(viewmat).all() or not np.isfinite(K).all():
            raise ValueError("the viewer's camera has values that are not finite")
        try:
            c2w = np.linalg.inv(viewmat)
        except np.linalg.LinAlgError:
            raise ValueError("the viewer's camera cannot be inverted") from None
        flat_matrices = np.concatenate([viewmat.ravel(), c2w.ravel(), K.ravel()])
        # One copy for all. It is so small that CUDA takes it into its queue at once.
        tensor = torch.from_numpy(flat_matrices.astype(np.float32))
        tensor = tensor.to(device, non_blocking=True)
        return cls(
            viewmat=tensor[:16].view(4, 4),
            c2w=tensor[16:32].view(4, 4),
            K=tensor[32:].view(3, 3),
            c2w_host=c2w,
            K_host=K,
            width=camera.width,
            height=camera.height,
            model=camera.model,
            near=camera.near,
            far=camera.far,
            is_draft=draw.is_draft,
            fov=2 * math.atan2(camera.height / 2, K[1, 1]),
        )

    def to(self, device: torch.device | str) -> RenderCamera:
        """Return the same camera with its tensors on another device."""
        return dataclasses.replace(
            self,
            viewmat=self.viewmat.to(device, non_blocking=True),
            c2w=self.c2w.to(device, non_blocking=True),
            K=self.K.to(device, non_blocking=True),
        )
