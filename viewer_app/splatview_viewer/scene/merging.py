"""Several scenes as one, so that one sort puts all their Gaussians in order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from splatview_viewer.scene.scene import FIELDS, GaussianScene, as_floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def merged(scenes: Sequence[GaussianScene], smooth: Sequence[bool], device: torch.device | str = "cpu"
           ) -> GaussianScene:
    """Return one scene of all Gaussians, one scene's behind the other's, as tensors of its own on `device`: on torch's
    current stream, if that is a GPU.

    What a scene does not show, since a higher degree of spherical harmonics is not in use, it does not show here. The
    whole is antialiased if all are, as `smooth` says (renderers do not tell); a note says so if only some are. Raises
    ValueError for no scenes at all.
    """
    import torch

    if not scenes:
        raise ValueError("together: there is nothing to put together; at least one scene is needed")
    degree = max(min(s.sh_degree, s.stored_sh_degree) for s in scenes)
    with torch.no_grad():
        activated = [_activated(s, degree) for s in scenes]
        joined = [torch.cat([getattr(s, name).to(device) for s in activated]) for name in FIELDS]
    notes = ("not all were trained antialiased: drawn without",) if any(smooth) and not all(smooth) else ()
    return GaussianScene(*joined, activated=True, sh_degree=degree, antialiased=all(smooth), notes=notes)


def _activated(scene: GaussianScene, degree: int) -> GaussianScene:
    """Activated, as float32 or float64, with coefficients up to `degree`: zeros for those not in use."""
    import torch

    means, quats, scales, opacities, sh0, higher = (as_floats(getattr(scene, name)) for name in FIELDS)
    if not scene.activated:
        scales, opacities = scales.exp(), opacities.sigmoid()
    used, wanted = (min(scene.sh_degree, scene.stored_sh_degree) + 1) ** 2 - 1, (degree + 1) ** 2 - 1
    rest = higher[:, :used]
    if used < wanted:
        rest = torch.cat([rest, rest.new_zeros(len(scene), wanted - used, 3)], 1)
    return replace(scene, means=means, quats=quats, scales=scales, opacities=opacities.reshape(len(scene)), sh0=sh0,
                   shN=rest, activated=True)
