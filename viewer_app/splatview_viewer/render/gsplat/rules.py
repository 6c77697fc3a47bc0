"""The rules in which versions of gsplat differ, as the installed one follows them.

The viewer's own kernels draw, and need nothing of gsplat's but two numbers. They are seen
in what gsplat's documented functions return, so that no version has to be known, where
gsplat was installed with its operators. Installed as source it would compile them first,
for minutes and with nvcc: there its version says which rules it follows.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import sys
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NamedTuple

import torch
from packaging.version import Version

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.base import EPS_2D, Rules

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

log = logging.getLogger("splatview")

_DIGITS = 6
"""Decimals of the constants: gsplat has them as float32, and returns them so."""
_SINCE_1_6 = Rules(alpha_max=0.99, least_compensation=0.005)
"""MAX_ALPHA and MIN_COMPENSATION in gsplat/cuda/include/Common.h of 1.6.0. Up to 1.5.3
csrc/RasterizeToPixels3DGSFwd.cu has 0.999, and there is no least compensation."""


class FollowedRules(NamedTuple):
    """The rules that pictures follow."""

    rules: Rules
    source: str
    """Whose rules they are, and how that is known."""


def defines(rules: Rules) -> tuple[str, str]:
    """Return alpha's limit and the least compensation for the kernels' preprocessor."""
    return (
        f"ALPHA_MAX={rules.alpha_max}f",
        f"LEAST_COMPENSATION={rules.least_compensation}f",
    )


def gsplat_rules(device: torch.device) -> Rules:
    """Return the rules of the installed gsplat; those of 1.5.3 where there is none."""
    return followed_rules(device).rules


@functools.cache
def followed_rules(device: torch.device) -> FollowedRules:
    """Return the rules of the installed gsplat, and how they are known.

    Where gsplat has its operators, the first call draws one Gaussian with it, on the
    current stream, and waits for that.
    """
    try:
        installed = version("gsplat")
    except PackageNotFoundError:
        installed = ""
    try:
        rules = _ask(device)
    except Exception as e:
        # gsplat loads its operators now, and that fails in many ways.
        log.info("gsplat is not asked for its rules: %s: %s", type(e).__name__, e)
        rules = None
    if rules is not None:
        return FollowedRules(rules, f"gsplat {installed}, which was asked".strip())
    if not installed:
        return FollowedRules(Rules(), "gsplat 1.5.3, for none is installed")
    return FollowedRules(rules_of(installed), f"gsplat {installed}, by its version")


def rules_of(installed: str) -> Rules:
    """Return the rules that a version of gsplat follows, by its number."""
    if Version(installed).release >= (1, 6):
        return _SINCE_1_6
    return Rules()


def _ask(device: torch.device) -> Rules | None:
    """Return the rules that gsplat's functions follow; None if it has no operators.

    Raises:
        RendererError: what it draws follows none that are known.
    """
    if not _load_installed():
        return None
    rules = _observe(device)
    if not 0.5 < rules.alpha_max <= 1 or not 0 <= rules.least_compensation < 0.1:
        raise RendererError(
            f"gsplat draws an opaque Gaussian with alpha {rules.alpha_max}, and a tiny one "
            f"antialiased with {rules.least_compensation} of its alpha; expected 0.5 to 1 "
            "and 0 to 0.1"
        )
    return rules


def _load_installed() -> bool:
    """Return True if gsplat was installed with operators; then load gsplat with them.

    Without them gsplat is not imported, for it would compile them: at its first use
    (1.5) or import (1.6), in a folder that all processes of a user share. It deletes that
    folder when it finds no finished build there, which may be that of a trainer.
    """
    package = importlib.util.find_spec("gsplat")
    if package is None:
        return False
    spec = PathFinder.find_spec("gsplat.csrc", package.submodule_search_locations)
    if spec is None:
        return False
    # A second load would register its types again, which fails. gsplat looks for its
    # operators there first.
    if "gsplat.csrc" not in sys.modules:
        sys.modules["gsplat.csrc"] = _load_module(spec)
    gsplat = importlib.import_module("gsplat")
    gsplat.csrc = sys.modules["gsplat.csrc"]  # type: ignore[attr-defined]
    return True


def _load_module(spec: ModuleSpec) -> ModuleType:
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
