"""The order in which Gaussians matter for a picture: by opacity and size, in view first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from splatview_viewer.blocks.packing import kernels_for
from splatview_viewer.render.activation import activate
from splatview_viewer.scene.selecting import HIDDEN, flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from splatview_viewer.core.selection import Selection
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene

OUT_OF_VIEW = 1 / 16
"""Weight of what no camera sees, against what one does."""
_MARGIN = 1.15
"""Of the angle that counts as seen."""


class SeenCone(NamedTuple):
    """The cone that a camera sees, roughly."""

    position: list[float]
    """Its tip, relative to the scene's origin."""
    ahead: list[float]
    """Its axis."""
    angle: float
    """From the axis to the border; infinite for all there is."""


def ranked_by_importance(
    scene: GaussianScene, origin: tuple[float, float, float], cameras: Sequence[Camera]
) -> torch.Tensor:
    """Return the indices of all Gaussians, the most important first, int32.

    Args:
        scene: on any device.
        origin: near its middle, so that float32 holds differences from it.
        cameras: what they see comes first.
    """
    import torch

    cones = [cone_of(camera, origin) for camera in cameras]
    kernels = kernels_for(scene)
    if kernels is not None:
        weights = kernels.weigh(scene, origin, cones, OUT_OF_VIEW)
    else:
        pieces = [weights_of(piece, origin, cones) for _, piece in scene.chunks()]
        weights = torch.cat(pieces)
    return weights.argsort(descending=True, stable=True).int()


def drawn_rows(scene: GaussianScene, selection: Selection) -> torch.Tensor:
    """Return the indices of the Gaussians that a selection does not hide, int32."""
    import torch

    rows = []
    for first, piece in scene.chunks():
        active = piece
        if not (piece.activation.scales and piece.activation.opacities):
            active, _ = activate(piece)
        is_hidden = flags(active, selection, first) & HIDDEN
        rows.append((is_hidden == 0).nonzero()[:, 0] + first)
    return torch.cat(rows).int()


def weights_of(
    scene: GaussianScene, origin: tuple[float, float, float], cones: Sequence[SeenCone]
) -> torch.Tensor:
    """Return the importance of Gaussians, (N,) float32, at least 0."""
    import torch

    scales = scene.scales.float()
    if scene.activation.scales:
        scales = scales.abs().log()
    opacities = scene.opacities.float()
    if not scene.activation.opacities:
        opacities = opacities.sigmoid()
    # Two thirds of the volume's power: an area.
    weights = opacities * (scales.clamp(-30, 30).sum(1) * (2 / 3)).exp()
    middle = torch.tensor(origin, dtype=scene.means.dtype, device=scene.means.device)
    means = (scene.means - middle).float()
    is_seen = torch.zeros(len(means), dtype=torch.bool, device=means.device)
    for cone in cones:
        is_seen |= _lies_in(means, cone)
    weights = torch.where(is_seen, weights, weights * OUT_OF_VIEW)
    is_drawn = means.isfinite().all(1) & weights.isfinite()
    return torch.where(is_drawn, weights.clamp(min=0), 0.0)


def _lies_in(means: torch.Tensor, cone: SeenCone) -> torch.Tensor:
    """Return which points (N, 3), relative to the origin, lie in a cone."""
    if math.isinf(cone.angle):
        return means.isfinite().all(1)
    offsets = means - means.new_tensor(cone.position)
    depths = offsets @ means.new_tensor(cone.ahead)
    return depths >= math.cos(cone.angle) * offsets.norm(dim=1)


def cone_of(camera: Camera, origin: tuple[float, float, float]) -> SeenCone:
    """Return the cone that a camera sees, roughly."""
    angle = math.inf
    if camera.model != "ortho":
        angle = _half_angle(camera)
    position = (camera.position - origin).tolist()
    return SeenCone(position, camera.viewmat[2, :3].tolist(), angle)


def _half_angle(camera: Camera) -> float:
    """Return the angle from the line of sight to the corners, and somewhat more."""
    corner = math.hypot(camera.width, camera.height) / 2 / float(camera.K[1, 1])
    angle = corner if camera.model == "fisheye" else math.atan(corner)
    return min(angle * _MARGIN, math.pi)
