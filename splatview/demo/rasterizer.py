"""Differentiable drawing of 3-D Gaussians: gsplat's kernels on CUDA, plain torch on the CPU.

On the CPU, projection as in "EWA splatting" (Zwicker et al. 2001) and with the constants of gsplat 1.5.3, so that a
scene trained here looks the same in any renderer of that family. `compositing` does the part that costs.
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
    from splatview.demo.datasets import DatasetView, Gaussians

SH_C0 = 0.28209479177387814
SH_C1 = 0.4886025119029199
NEAR = 0.01
BLUR = 0.3
"""Added to the 2-D covariance's diagonal, in square pixels: no Gaussian gets thinner than about a pixel."""


@dataclass(frozen=True)
class Drawn:
    """A picture of Gaussians, and what density control wants to know of it."""

    image: torch.Tensor
    """(H, W, 3), over black."""
    alpha: torch.Tensor
    """(H, W)."""
    depth: torch.Tensor
    """(H, W) camera z weighted by alpha: divide by alpha for the expected depth."""
    means2d: torch.Tensor
    """(N, 2) pixels; keeps its gradient when the picture was made with gradients."""
    visible: torch.Tensor
    """(N,) bool: touches at least one pixel."""


def colors(gaussians: Gaussians, viewmat: torch.Tensor, sh_degree: int) -> torch.Tensor:
    """(N, 3) RGB >= 0 as seen from the camera, from spherical harmonics of degree 0 or 1."""
    rgb = 0.5 + SH_C0 * gaussians["sh0"][:, 0]
    if sh_degree == 1:
        position = -viewmat[:3, :3].T @ viewmat[:3, 3]
        x, y, z = functional.normalize(gaussians["means"] - position, dim=1)[
            :, :, None
        ].unbind(1)
        s = gaussians["shN"]
        rgb = rgb + SH_C1 * (z * s[:, 1] - y * s[:, 0] - x * s[:, 2])
    return rgb.clamp_min(0)


def project(gaussians: Gaussians, view: DatasetView) -> tuple[torch.Tensor, ...]:
    """Screen-space means2d (N, 2), conics (N, 3), depths (N,), covariance diagonal (N, 2), valid (N,) bool."""
    rotation = view.viewmat[:3, :3]
    K = view.K
    in_camera = gaussians["means"] @ rotation.T + view.viewmat[:3, 3]
    valid = in_camera[:, 2].detach() > NEAR
    x, y, z = torch.where(
        valid[:, None], in_camera, in_camera.new_tensor([0.0, 0.0, 1.0])
    ).unbind(1)
    fx = K[0, 0]
    fy = K[1, 1]
    cx = K[0, 2]
    cy = K[1, 2]
    x_z = x / z
    y_z = y / z
    # The linearisation is taken no further off the axis than a little beside the picture, as every trainer does.
    # 0.3 tan(half the field of view)
    beyond_x = 0.15 * view.width / fx
    beyond_y = 0.15 * view.height / fy
    jx = x_z.clamp(-(cx / fx + beyond_x), (view.width - cx) / fx + beyond_x)
    jy = y_z.clamp(-(cy / fy + beyond_y), (view.height - cy) / fy + beyond_y)

    turn = normalized_quat_to_rotmat(functional.normalize(gaussians["quats"], dim=1))
    axes = torch.matmul(
        rotation, turn * gaussians["scales"].exp()[:, None, :]
    )  # (N, 3, 3), columns in the camera
    across = (axes[:, 0] - jx[:, None] * axes[:, 2]) * (fx / z)[:, None]
    down = (axes[:, 1] - jy[:, None] * axes[:, 2]) * (fy / z)[:, None]
    xx = (across * across).sum(1) + BLUR
    xy = (across * down).sum(1)
    yy = (down * down).sum(1) + BLUR
    determinant = xx * yy - xy * xy
    conics = torch.stack([yy, -xy, xx], 1) / determinant[:, None]
    means2d = torch.stack([fx * x_z + cx, fy * y_z + cy], 1)
    return means2d, conics, z, torch.stack([xx, yy], 1), valid


def draw(gaussians: Gaussians, view: DatasetView, sh_degree: int = 0) -> Drawn:
    """Draw Gaussians as a trainer holds them, with gradients to every parameter.

    All tensors are on one device: a CUDA device, or the CPU, where sh_degree is at most 1.
    """
    if gaussians["means"].is_cuda:
        blended, alpha, meta = rasterization(
            gaussians["means"],
            functional.normalize(gaussians["quats"], dim=1),
            gaussians["scales"].exp(),
            torch.sigmoid(gaussians["opacities"]),
            torch.cat([gaussians["sh0"], gaussians["shN"]], 1),
            view.viewmat[None],
            view.K[None],
            view.width,
            view.height,
            sh_degree=sh_degree,
            packed=False,
            render_mode="RGB+D",
        )
        if meta["means2d"].requires_grad:
            meta["means2d"].retain_grad()
        visible = (meta["radii"][0] > 0).all(-1)
        return Drawn(
            blended[0, ..., :3],
            alpha[0, ..., 0],
            blended[0, ..., 3],
            meta["means2d"],
            visible,
        )
    means2d, conics, depths, variances, valid = project(gaussians, view)
    opacities = torch.sigmoid(gaussians["opacities"])
    if means2d.requires_grad:
        means2d.retain_grad()
    with (
        torch.no_grad()
    ):  # alpha falls below 1/255 this many standard deviations from the centre
        reach = (2 * torch.log(opacities / ALPHA_MIN)).clamp_min(0).sqrt() * valid
        extents = reach[:, None] * variances.sqrt()
    tiling = tile(means2d, extents, depths, view.width, view.height)
    features = torch.cat(
        [colors(gaussians, view.viewmat, sh_degree), depths[:, None]], 1
    )
    blended, alpha = Composite.apply(means2d, conics, opacities, features, tiling)
    visible = torch.zeros(len(means2d), dtype=torch.bool)
    visible[tiling.gaussians] = True
    return Drawn(blended[..., :3], alpha, blended[..., 3], means2d, visible)


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """The device to draw on. Raises DemoError when there is no CUDA device and one is wanted."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise DemoError(
            "--device cuda: torch finds no CUDA device here; use --device cpu"
        )
    return torch.device(
        "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"
    )
