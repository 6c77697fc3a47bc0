"""The order in which Gaussians matter for a picture: by opacity and size, in view first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.render.activation import activate
from splatview_viewer.scene.selecting import HIDDEN, flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from splatview_viewer.core.selection import Selection
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene.scene import GaussianScene

_OUT_OF_VIEW = 1 / 16
"""Weight of what no camera sees, against what one does."""
_MARGIN = 1.15
"""Of the angle that counts as seen."""


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

    weights = [_weights(piece, origin, cameras) for _, piece in scene.chunks()]
    return torch.cat(weights).argsort(descending=True, stable=True).int()


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


def _weights(
    scene: GaussianScene, origin: tuple[float, float, float], cameras: Sequence[Camera]
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
    for camera in cameras:
        is_seen |= _seen(means, origin, camera)
    weights = torch.where(is_seen, weights, weights * _OUT_OF_VIEW)
    is_drawn = means.isfinite().all(1) & weights.isfinite()
    return torch.where(is_drawn, weights.clamp(min=0), 0.0)


def _seen(
    means: torch.Tensor, origin: tuple[float, float, float], camera: Camera
) -> torch.Tensor:
    """Return which points (N, 3), relative to an origin, a camera sees, roughly."""
    if camera.model == "ortho":
        return means.isfinite().all(1)
    ahead = means.new_tensor(camera.viewmat[2, :3])
    position = means.new_tensor(camera.position - origin)
    offsets = means - position
    depths = offsets @ ahead
    return depths >= math.cos(_half_angle(camera)) * offsets.norm(dim=1)


def _half_angle(camera: Camera) -> float:
    """Return the angle from the line of sight to the corners, and somewhat more."""
    corner = math.hypot(camera.width, camera.height) / 2 / float(camera.K[1, 1])
    angle = corner if camera.model == "fisheye" else math.atan(corner)
    return min(angle * _MARGIN, math.pi)
