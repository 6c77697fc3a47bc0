"""Draw 3-D Gaussians with gradients: gsplat's kernels on CUDA, plain torch on the CPU.

On the CPU, projection as in "EWA splatting" (Zwicker et al. 2001) and with the
constants of gsplat 1.5.3, so that a scene trained here looks the same in any renderer
of that family. `compositing` does the part that costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from gsplat import rasterization
from gsplat.utils import normalized_quat_to_rotmat
from torch.nn import functional

from splatview.demo import DemoError
from splatview.demo.compositing import ALPHA_MIN, Composite, tile

if TYPE_CHECKING:
    from splatview.demo.views import DatasetView, Gaussians

SH_C0 = 0.28209479177387814
SH_C1 = 0.4886025119029199
NEAR = 0.01
BLUR = 0.3
"""Added to the 2-D covariance's diagonal, in square pixels: no Gaussian gets thinner
than about a pixel."""
_MARGIN = 0.15
"""Pixels beside the picture, as a share of its side, up to which the projection is
linearised: 0.3 tan(half the field of view), as every trainer has it."""


@dataclass(frozen=True)
class Drawn:
    """A picture of Gaussians, and the figures that density control needs."""

    image: torch.Tensor
    """(H, W, 3) over black, or (H, W, C) features premultiplied by alpha."""
    alpha: torch.Tensor
    """(H, W)."""
    depth: torch.Tensor
    """(H, W) camera z weighted by alpha: divide by alpha for the expected depth."""
    means2d: torch.Tensor
    """(N, 2) pixels; keeps its gradient when the picture was made with gradients."""
    visible: torch.Tensor
    """(N,) bool: touches at least one pixel."""


@dataclass(frozen=True)
class ProjectedSplats:
    """Gaussians on the screen."""

    means2d: torch.Tensor
    """(N, 2) pixels."""
    conics: torch.Tensor
    """(N, 3), the upper triangle of the inverse 2-D covariance."""
    depths: torch.Tensor
    """(N,) camera z."""
    variances: torch.Tensor
    """(N, 2), the diagonal of the 2-D covariance, square pixels."""
    valid: torch.Tensor
    """(N,) bool: in front of the camera."""


def colors(gaussians: Gaussians, viewmat: torch.Tensor, sh_degree: int) -> torch.Tensor:
    """Return the colours of Gaussians as a camera sees them, (N, 3) RGB >= 0.

    From spherical harmonics of degree 0 or 1.
    """
    rgb = 0.5 + SH_C0 * gaussians["sh0"][:, 0]
    if sh_degree == 1:
        position = -viewmat[:3, :3].T @ viewmat[:3, 3]
        directions = functional.normalize(gaussians["means"] - position, dim=1)
        x, y, z = directions[:, :, None].unbind(1)
        sh = gaussians["shN"]
        rgb = rgb + SH_C1 * (z * sh[:, 1] - y * sh[:, 0] - x * sh[:, 2])
    return rgb.clamp_min(0)


def project(gaussians: Gaussians, view: DatasetView) -> ProjectedSplats:
    """Return Gaussians as they appear on a view's screen."""
    rotation = view.viewmat[:3, :3]
    K = view.K
    in_camera = gaussians["means"] @ rotation.T + view.viewmat[:3, 3]
    valid = in_camera[:, 2].detach() > NEAR
    ahead = in_camera.new_tensor([0.0, 0.0, 1.0])
    x, y, z = torch.where(valid[:, None], in_camera, ahead).unbind(1)
    fx = K[0, 0]
    fy = K[1, 1]
    cx = K[0, 2]
    cy = K[1, 2]
    x_z = x / z
    y_z = y / z
    # The linearisation is taken no further off the axis than a little beside the
    # picture.
    margin_x = _MARGIN * view.width / fx
    margin_y = _MARGIN * view.height / fy
    jx = x_z.clamp(-(cx / fx + margin_x), (view.width - cx) / fx + margin_x)
    jy = y_z.clamp(-(cy / fy + margin_y), (view.height - cy) / fy + margin_y)

    quats = functional.normalize(gaussians["quats"], dim=1)
    scales = gaussians["scales"].exp()
    # (N, 3, 3), columns in the camera.
    axes = rotation @ (normalized_quat_to_rotmat(quats) * scales[:, None, :])
    jacobian_x = (axes[:, 0] - jx[:, None] * axes[:, 2]) * (fx / z)[:, None]
    jacobian_y = (axes[:, 1] - jy[:, None] * axes[:, 2]) * (fy / z)[:, None]
    xx = (jacobian_x * jacobian_x).sum(1) + BLUR
    xy = (jacobian_x * jacobian_y).sum(1)
    yy = (jacobian_y * jacobian_y).sum(1) + BLUR
    determinant = xx * yy - xy * xy
    return ProjectedSplats(
        means2d=torch.stack([fx * x_z + cx, fy * y_z + cy], 1),
        conics=torch.stack([yy, -xy, xx], 1) / determinant[:, None],
        depths=z,
        variances=torch.stack([xx, yy], 1),
        valid=valid,
    )


def draw(
    gaussians: Gaussians,
    view: DatasetView,
    sh_degree: int = 0,
    features: torch.Tensor | None = None,
) -> Drawn:
    """Draw Gaussians as a trainer holds them, with gradients to every parameter.

    All tensors are on one device.

    Args:
        gaussians: the Gaussians.
        view: the camera.
        sh_degree: of the colours; at most 1 on the CPU.
        features: (N, C), blended in place of the colours.
    """
    if gaussians["means"].is_cuda:
        return _draw_on_gpu(gaussians, view, sh_degree, features)
    return _draw_on_cpu(gaussians, view, sh_degree, features)


def _draw_on_gpu(
    gaussians: Gaussians,
    view: DatasetView,
    sh_degree: int,
    features: torch.Tensor | None,
) -> Drawn:
    """Draw with gsplat."""
    if features is not None:
        coefficients = features
    elif sh_degree:
        coefficients = torch.cat([gaussians["sh0"], gaussians["shN"]], 1)
    else:
        coefficients = gaussians["sh0"]
    blended, alpha, meta = rasterization(
        gaussians["means"],
        functional.normalize(gaussians["quats"], dim=1),
        gaussians["scales"].exp(),
        torch.sigmoid(gaussians["opacities"]),
        coefficients,
        view.viewmat[None],
        view.K[None],
        view.width,
        view.height,
        sh_degree=sh_degree if features is None else None,
        packed=False,
        render_mode="RGB+D",
    )
    means2d = meta["means2d"]
    if means2d.requires_grad:
        means2d.retain_grad()
    return Drawn(
        image=blended[0, ..., :-1],
        alpha=alpha[0, ..., 0],
        depth=blended[0, ..., -1],
        means2d=means2d,
        visible=(meta["radii"][0] > 0).all(-1),
    )


def _draw_on_cpu(
    gaussians: Gaussians,
    view: DatasetView,
    sh_degree: int,
    features: torch.Tensor | None,
) -> Drawn:
    """Draw with torch."""
    projected = project(gaussians, view)
    means2d = projected.means2d
    if means2d.requires_grad:
        means2d.retain_grad()
    opacities = torch.sigmoid(gaussians["opacities"])
    with torch.no_grad():
        # Alpha falls below 1/255 this many standard deviations from the centre.
        radius_in_sigmas = (2 * torch.log(opacities / ALPHA_MIN)).clamp_min(0).sqrt()
        radius_in_sigmas = radius_in_sigmas * projected.valid
        extents = radius_in_sigmas[:, None] * projected.variances.sqrt()
    tiling = tile(means2d, extents, projected.depths, view.width, view.height)
    if features is None:
        features = colors(gaussians, view.viewmat, sh_degree)
    channels = torch.cat([features, projected.depths[:, None]], 1)
    blended, alpha = Composite.apply(
        means2d, projected.conics, opacities, channels, tiling
    )
    visible = torch.zeros(len(means2d), dtype=torch.bool)
    visible[tiling.gaussians] = True
    return Drawn(
        image=blended[..., :-1],
        alpha=alpha,
        depth=blended[..., -1],
        means2d=means2d,
        visible=visible,
    )


def choose_device(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device to draw on.

    Raises DemoError when there is no CUDA device and one is wanted.
    """
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise DemoError(
            "--device cuda: torch finds no CUDA device here; use --device cpu"
        )
    if name == "cpu" or not has_cuda:
        return torch.device("cpu")
    return torch.device("cuda")
