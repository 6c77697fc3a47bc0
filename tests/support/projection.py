"""Launch the kernel that projects Gaussians."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

from splatview_viewer.geometry.cameras import MODELS
from splatview_viewer.render.base import EPS_2D
from splatview_viewer.render.gsplat.cuda import blocks

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.render.gsplat.cuda import Launcher
    from splatview_viewer.scene.scene import GaussianScene


def projected(
    kernels: Launcher,
    s: GaussianScene,
    view: Camera,
    antialiased: bool,
    radius_clip: float = 0.0,
) -> list[torch.Tensor]:
    """Project an activated scene where it lies.

    Returns:
        Radii (N, 2), centres (N, 2), depths (N, 1), conics (N, 3) and, if antialiased,
        compensations (N, 1).
    """
    n = len(s)
    device = s.means.device
    radii = torch.full((n, 2), 7, dtype=torch.int32, device=device)
    sizes = (2, 1, 3, 1) if antialiased else (2, 1, 3)
    results = [radii, *(torch.zeros(n, size, device=device) for size in sizes)]
    arguments: list[Any] = [*results]
    if not antialiased:
        arguments.append(ctypes.c_void_p(0))
    kernels.launch(
        "project",
        blocks(n, 256),
        256,
        ctypes.c_int(n),
        *(s.means, s.quats, s.scales, s.opacities),
        torch.tensor(view.viewmat, dtype=torch.float32, device=device),
        torch.tensor(view.K, dtype=torch.float32, device=device),
        *(ctypes.c_int(view.width), ctypes.c_int(view.height)),
        *(ctypes.c_float(v) for v in (EPS_2D, view.near, view.far, radius_clip)),
        ctypes.c_int(MODELS.index(view.model)),
        *arguments,
    )
    return results
