"""Several scenes as one, so that one sort puts all their Gaussians in order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.scene.scene import FIELDS, GaussianScene, as_floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def merged(scenes: Sequence[GaussianScene], smooth: Sequence[bool],
           device: torch.device | None = None) -> GaussianScene:
    """One scene of all Gaussians, one scene's behind the other's, as arrays of its own: on `device`, a GPU, on torch's
    current stream, or in host memory with None.

    What a scene does not show, since a higher degree of spherical harmonics is not in use, it does not show here. The
    whole is antialiased if all are, as `smooth` says (renderers do not tell); a note says so if only some are. Raises
    ValueError for no scenes at all.
    """
    if not scenes:
        raise ValueError("together: there is nothing to put together; at least one scene is needed")
    degree = max(min(s.sh_degree, s.stored_sh_degree) for s in scenes)
    activated = [_activated(s, degree) for s in scenes]
    join = _host_join if device is None else _device_join(device)
    arrays: dict[str, Any] = {name: join([getattr(s, name) for s in activated]) for name in FIELDS}
    notes = ("not all were trained antialiased: drawn without",) if any(smooth) and not all(smooth) else ()
    return GaussianScene(**arrays, activated=True, sh_degree=degree, antialiased=all(smooth), notes=notes)


def _activated(scene: GaussianScene, degree: int) -> GaussianScene:
    """Activated, with coefficients up to `degree`: zeros for those not in use."""
    scales: Any = scene.scales
    opacities: Any = scene.opacities
    if not scene.activated:
        if scene.on_gpu:
            scales, opacities = scales.detach().float().exp(), opacities.detach().float().sigmoid()
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # a renderer leaves out what is not finite
                scales, opacities = np.exp(scales), 1 / (1 + np.exp(-opacities))
    used, wanted = (min(scene.sh_degree, scene.stored_sh_degree) + 1) ** 2 - 1, (degree + 1) ** 2 - 1
    shN: Any = scene.shN[:, :used]
    if used < wanted:
        rest = len(scene), wanted - used, 3
        if scene.on_gpu:
            import torch

            shN = torch.cat([shN.detach().float(), torch.zeros(rest, device=scene.gpu)], 1)
        else:
            shN = np.concatenate([shN, np.zeros(rest, np.float32)], 1)
    return replace(scene, scales=scales, opacities=opacities.reshape(len(scene)), shN=shN, activated=True)


def _host_join(arrays: Sequence[Any]) -> np.ndarray:
    return np.concatenate([a if isinstance(a, np.ndarray) else as_floats(a).cpu().numpy() for a in arrays])


def _device_join(device: torch.device) -> Any:
    import torch

    def join(arrays: Sequence[Any]) -> torch.Tensor:
        with torch.no_grad():
            there = [torch.from_numpy(np.ascontiguousarray(a)) if isinstance(a, np.ndarray) else a for a in arrays]
            return torch.cat([as_floats(a).to(device) for a in there])

    return join
