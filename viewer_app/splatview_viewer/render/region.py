"""The Gaussians in a region of the picture, which a user has drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.threads import one_thread
from splatview_viewer.render.base import ALPHA_MIN, EPS_2D
from splatview_viewer.render.hiding import Centres, LayeredLight
from splatview_viewer.scene import EVERYTHING, HIDDEN, flags
from splatview_viewer.scene.selecting import largest_scale

if TYPE_CHECKING:
    import torch

    from splatview_viewer.core.selection import Selection
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene

_MIN_LIGHT = 0.5
"""Share of the light of a centre that has to reach the camera for it to be in front."""
_DEPTH_TOLERANCE = 0.01
"""Share of its depth by which a Gaussian may be behind the surface, beside its own size,
and still be part of it."""


class SeenCentres:
    """The pixels in which the centres of a scene's Gaussians are seen by a camera."""

    def __init__(
        self,
        scene: GaussianScene,
        camera: Camera,
        selection: Selection,
        *,
        through: bool,
    ) -> None:
        """Find the pixels; on a GPU without waiting.

        Args:
            scene: activated, as `Renderer.scene()` gives it.
            camera: the camera of the picture.
            selection: what is drawn.
            through: also those that are hidden by others in front of them.
        """
        import torch

        with torch.no_grad(), one_thread():
            self._pixels = _find_pixels(scene, camera, selection.unmarked, through)

    def inside(self, region: np.ndarray) -> np.ndarray:
        """Return which Gaussians are seen in a region, (N,) bool; waits for a GPU.

        Args:
            region: the pixels of the picture, (height, width) bool.
        """
        import torch

        # The last pixel stands for all that is not seen.
        flat = np.append(region.reshape(-1), False)
        is_inside = torch.from_numpy(flat).to(self._pixels.device)
        with torch.no_grad(), one_thread():
            return is_inside.index_select(0, self._pixels).cpu().numpy()


def _find_pixels(
    scene: GaussianScene, camera: Camera, selection: Selection, through: bool
) -> torch.Tensor:
    """Return the index of the pixel of each centre, (N,) int32.

    Those that are not seen have the index after that of the last pixel.
    """
    import torch

    pieces = []
    for first, chunk in scene.chunks():
        pieces.append(_project(chunk, first, camera, selection))
    centres = Centres(*(torch.cat(column) for column in zip(*pieces, strict=True)))
    is_seen = centres.is_drawn & (centres.x >= 0) & (centres.x < camera.width)
    is_seen &= (centres.y >= 0) & (centres.y < camera.height)
    if not through:
        light = LayeredLight(scene, centres, camera)
        tolerance = _DEPTH_TOLERANCE * centres.depth + largest_scale(scene).float()
        passed = light.passed(centres.x, centres.y, centres.depth - tolerance)
        is_seen &= passed >= _MIN_LIGHT
    # What is not seen has no pixel: its numbers may be anything.
    column = torch.where(is_seen, centres.x, 0.0).int()
    row = torch.where(is_seen, centres.y, 0.0).int()
    nowhere = camera.width * camera.height
    return torch.where(is_seen, row * camera.width + column, nowhere)


def _project(
    scene: GaussianScene, first: int, camera: Camera, selection: Selection
) -> Centres:
    """Project some Gaussians of a scene, of which the first has this index."""
    import torch

    right, down, depth = _to_local(scene.means, camera)
    x, y = _to_pixels(camera, right, down, depth)
    # What is not a number is in no picture.
    is_drawn = (depth > camera.near) & (depth < camera.far)
    is_drawn &= scene.opacities >= ALPHA_MIN
    if selection != EVERYTHING:
        is_drawn &= (flags(scene, selection, first) & HIDDEN) == 0
    factor = _magnification(camera, depth)
    a, b, c = scene.scales.float().unbind(-1)
    largest = a.maximum(b).maximum(c)
    smallest = a.minimum(b).minimum(c)
    middle = a + b + c - largest - smallest
    sigma = largest * factor
    middle_sigma = middle * factor
    area = ((sigma * sigma + EPS_2D) * (middle_sigma * middle_sigma + EPS_2D)).sqrt_()
    return Centres(
        x=x,
        y=y,
        right=right,
        down=down,
        depth=depth,
        sigma=sigma,
        area=area,
        is_drawn=is_drawn & torch.isfinite(sigma),
    )


def _to_local(means: torch.Tensor, camera: Camera) -> tuple[torch.Tensor, ...]:
    """Return x, y and z of centres (N, 3) in camera axes, each (N,) float32."""
    import torch

    position = torch.tensor(camera.position, dtype=means.dtype, device=means.device)
    rotation = torch.tensor(
        camera.viewmat[:3, :3], dtype=torch.float32, device=means.device
    )
    # Far from the origin only the difference fits into float32.
    local = rotation @ (means - position).float().T
    return tuple(local.unbind(0))


def _to_pixels(
    camera: Camera, right: torch.Tensor, down: torch.Tensor, depth: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pixels of points in camera axes, as `cameras.to_pixels`."""
    import torch

    if camera.model == "ortho":
        factor = torch.ones_like(depth)
    elif camera.model == "pinhole":
        factor = 1 / depth
    else:
        length = torch.hypot(right, down).clamp(min=1e-12)
        factor = torch.atan2(length, depth) / length
    fx, fy = (float(focal) for focal in camera.focal_lengths)
    cx, cy = camera.K[:2, 2].tolist()
    return right * factor * fx + cx, down * factor * fy + cy


def _magnification(camera: Camera, depth: torch.Tensor) -> torch.Tensor:
    """Return the pixels of a world unit at depths, (N,)."""
    import torch

    focal = float(camera.focal_lengths.max())
    if camera.model == "ortho":
        return torch.full_like(depth, focal)
    return focal / depth
