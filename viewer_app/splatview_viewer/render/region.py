"""The Gaussians in a region of the picture, which a user has drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from splatview_viewer.scene import EVERYTHING, HIDDEN, flags
from splatview_viewer.scene.scene import HostCopy
from splatview_viewer.scene.selecting import largest_scale

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_viewer.core.selection import Selection
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene

_CELL = 6
"""Pixels along the side of the cells in which the nearest surface is looked for."""
_SOLID = 0.5
"""Opacity from which a Gaussian hides what is behind it."""
_FAINTEST = 1 / 255
_DEPTH_TOLERANCE = 0.03
"""Share of its depth by which a Gaussian may be behind the surface and still be part of
it."""


class _Seen(NamedTuple):
    """Gaussians as the camera sees them, each (N,)."""

    is_inside: torch.Tensor
    """Its centre is in the region, and it is drawn."""
    is_solid: torch.Tensor
    cell: torch.Tensor
    """The index of the cell that its centre is in."""
    z: torch.Tensor
    tolerance: torch.Tensor
    """How far behind the surface its centre may be."""


def choose_later(
    scene: GaussianScene,
    camera: Camera,
    region: np.ndarray,
    selection: Selection,
    *,
    through: bool,
) -> Callable[[], np.ndarray]:
    """Begin to find the Gaussians whose centres are seen in a region.

    The returned function waits for the result, (N,) bool. The scene is read as `HostCopy`
    says.

    Args:
        scene: activated, as `Renderer.scene()` gives it.
        camera: the camera of the picture.
        region: the pixels of the picture, (height, width) bool.
        selection: what is drawn.
        through: also those that are hidden by others in front of them.
    """
    copy = HostCopy(
        scene, lambda: [_find(scene, camera, region, selection, through=through)]
    )

    def read() -> np.ndarray:
        return copy.arrays()[0]

    return read


def _find(
    scene: GaussianScene,
    camera: Camera,
    region: np.ndarray,
    selection: Selection,
    *,
    through: bool,
) -> torch.Tensor:
    """Return which Gaussians are in the region, (N,) bool on the scene's device."""
    import torch

    pixels = torch.from_numpy(np.ascontiguousarray(region)).to(scene.means.device)
    candidates = []
    for first, chunk in scene.chunks():
        candidates.append(_see(chunk, first, camera, pixels, selection.unmarked))
    candidate = _Seen(*(torch.cat(column) for column in zip(*candidates, strict=True)))
    if through:
        return candidate.is_inside
    rows = -(-camera.height // _CELL)
    columns = -(-camera.width // _CELL)
    # One more cell is for all that lies outside of the picture.
    surface = torch.full((rows * columns + 1,), torch.inf, device=candidate.z.device)
    z = torch.where(candidate.is_solid, candidate.z, torch.inf)
    cell = candidate.cell.long()
    surface.scatter_reduce_(0, cell, z, "amin")
    return candidate.is_inside & (candidate.z <= surface[cell] + candidate.tolerance)


def _see(
    scene: GaussianScene,
    first: int,
    camera: Camera,
    region: torch.Tensor,
    selection: Selection,
) -> _Seen:
    """Project some Gaussians of a scene, of which the first has this index."""
    import torch

    height, width = region.shape
    right, down, depth = _to_local(scene.means, camera)
    x, y = _to_pixels(camera, right, down, depth)
    # What is not a number is in no picture.
    is_drawn = (depth > camera.near) & (depth < camera.far)
    is_drawn &= (x >= 0) & (x < width) & (y >= 0) & (y < height)
    is_drawn &= scene.opacities >= _FAINTEST
    if selection != EVERYTHING:
        is_drawn &= (flags(scene, selection, first) & HIDDEN) == 0
    # The first pixel stands for all that is not drawn.
    column = torch.where(is_drawn, x, 0.0).int()
    row = torch.where(is_drawn, y, 0.0).int()
    pixel = row * width + column
    columns = -(-width // _CELL)
    outside = -(-height // _CELL) * columns
    cell = (row // _CELL) * columns + column // _CELL
    return _Seen(
        is_inside=is_drawn & region.reshape(-1).index_select(0, pixel),
        is_solid=is_drawn & (scene.opacities >= _SOLID),
        cell=torch.where(is_drawn, cell, outside),
        z=depth,
        tolerance=_DEPTH_TOLERANCE * depth + largest_scale(scene).float(),
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
