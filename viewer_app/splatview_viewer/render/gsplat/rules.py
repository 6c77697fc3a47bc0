"""The rules in which versions of gsplat differ, as the installed one follows them.

They are seen in what gsplat's documented functions return, so that no version has to be
known here.
"""

from __future__ import annotations

import functools

import torch

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import EPS_2D, Rules

_DIGITS = 6
"""Decimals of the constants: gsplat has them as float32, and returns them so."""


def defines(rules: Rules) -> tuple[str, str]:
    """Return alpha's limit and the least compensation for the kernels' preprocessor."""
    return (
        f"ALPHA_MAX={rules.alpha_max}f",
        f"LEAST_COMPENSATION={rules.least_compensation}f",
    )


@functools.cache
def gsplat_rules(device: torch.device) -> Rules:
    """Return the rules of the installed gsplat.

    The first call draws one Gaussian with it, on the current stream, and waits for that.

    Raises:
        RendererError: gsplat does not draw here.
    """
    try:
        rules = _observe(device)
    except Exception as e:
        # gsplat loads, or even compiles, its kernels now, and that fails in many ways.
        raise RendererError(f"gsplat does not draw here: {e}") from e
    if not 0.5 < rules.alpha_max <= 1 or not 0 <= rules.least_compensation < 0.1:
        raise RendererError(
            f"gsplat draws an opaque Gaussian with alpha {rules.alpha_max}, and a tiny one "
            f"antialiased with {rules.least_compensation} of its alpha; expected 0.5 to 1 "
            "and 0 to 0.1"
        )
    return rules


def _observe(device: torch.device) -> Rules:
    """Draw an opaque white Gaussian, and project one without any size.

    Both lie where the line of sight meets the middle pixel's centre.
    """
    from gsplat import fully_fused_projection, rasterization

    size = 16
    center = size / 2 + 0.5
    viewmats = torch.eye(4, device=device)[None]
    intrinsics = [[size, 0.0, center], [0.0, size, center], [0.0, 0.0, 1.0]]
    Ks = torch.tensor([intrinsics], device=device)
    means = torch.tensor([[0.0, 0.0, 1.0]], device=device)
    quats = torch.tensor([[1.0, 0.0, 0.0, 0.0]], device=device)
    white = torch.ones(1, 3, device=device)
    opacities = torch.ones(1, device=device)
    with torch.no_grad():
        picture, _, _ = rasterization(
            means,
            quats,
            white,
            opacities,
            white,
            viewmats,
            Ks,
            size,
            size,
            packed=False,
        )
        projection = fully_fused_projection(
            means,
            None,
            quats,
            torch.zeros(1, 3, device=device),
            viewmats,
            Ks,
            size,
            size,
            eps2d=EPS_2D,
            calc_compensations=True,
        )
    # The colour is alpha exactly; the alpha of the picture was a difference to 1.
    middle = picture[0, size // 2, size // 2, 0]
    compensation = projection[-1].flatten()[0]
    return Rules(
        alpha_max=round(float(middle), _DIGITS),
        least_compensation=round(float(compensation), _DIGITS),
    )
