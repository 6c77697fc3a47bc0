"""Which rasteriser trains: gsplat's kernels on CUDA, this package's own on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from splatview.demo import rasterizer
from splatview.demo.errors import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview.demo.capture import Gaussians, View
    from splatview.demo.rasterizer import Drawn


@dataclass(frozen=True)
class Backend:
    name: str
    device: torch.device
    draw: Callable[[Gaussians, View, int], Drawn]
    """(Gaussians as a trainer holds them, view, SH degree) -> picture with gradients."""


def choose(device: str) -> Backend:
    """The backend for "auto", "cpu" or "cuda". Raises DemoError when it cannot be had."""
    if device not in ("auto", "cpu", "cuda"):
        raise DemoError(f"--device {device!r} is not 'auto', 'cpu' or 'cuda'")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return Backend("torch on the CPU", torch.device("cpu"), rasterizer.draw)
    if not torch.cuda.is_available():
        raise DemoError("--device cuda: torch finds no CUDA device here; use --device cpu")
    try:
        import gsplat
    except ImportError as e:
        raise DemoError(f"--device cuda needs gsplat, which cannot be imported ({e}); "
                        "pip install gsplat, or use --device cpu") from None
    return Backend(f"gsplat {gsplat.__version__}", torch.device("cuda"), draw_gsplat)


def draw_gsplat(gaussians: Gaussians, view: View, sh_degree: int = 0) -> Drawn:
    """`rasterizer.draw` by gsplat's kernels; everything lies on one CUDA device."""
    from gsplat import rasterization

    blended, alpha, meta = rasterization(
        gaussians["means"], torch.nn.functional.normalize(gaussians["quats"], dim=1), gaussians["scales"].exp(),
        torch.sigmoid(gaussians["opacities"]), torch.cat([gaussians["sh0"], gaussians["shN"]], 1),
        view.viewmat[None], view.K[None], view.width, view.height,
        sh_degree=sh_degree, packed=False, render_mode="RGB+D")
    means2d = meta["means2d"]
    if means2d.requires_grad:
        means2d.retain_grad()
    visible = (meta["radii"][0] > 0).all(-1) if meta["radii"].dim() == 3 else meta["radii"][0] > 0
    return rasterizer.Drawn(blended[0, ..., :3], alpha[0, ..., 0], blended[0, ..., 3], means2d, visible)
