"""Hints that a scene's numbers are in another form than their publisher says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.ui.hints import Hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.scene.scene import GaussianScene

_SAMPLE_SIZE = 10_000
_MIN_COUNT = 10
"""Gaussians below which nothing is guessed."""
_LOGARITHM_SHARE = 0.1
"""Share of negative scales from which on they are no lengths."""
_MIN_SPREAD = 0.05
"""Range of logits: those of a new scene are all the same."""


def detect_form(
    scene: GaussianScene, ready: Callable[[int], None] | None
) -> Hint | None:
    """Return the form that a scene's numbers seem to have, if it is another one.

    Waits for the GPU.

    Args:
        ready: as for `GaussianScene.to_host`.
    """
    step = max(len(scene) // _SAMPLE_SIZE, 1)
    # Harmonics, most of what there is, tell nothing.
    sample = replace(scene, shN=scene.shN[:, :0])[::step].to_host(ready)
    if len(sample) < _MIN_COUNT:
        return None
    scales = sample.scales.double().numpy()
    opacities = sample.opacities.double().numpy()
    if sample.activation.scales and (scales < 0).mean() > _LOGARITHM_SHARE:
        return Hint("activated", "scales look like logarithms", "Show as logarithms")
    # The third scales of flat Gaussians tell nothing.
    sizes = scales[~np.isneginf(scales)]
    size_share = np.count_nonzero(sizes > 0) / max(len(sizes), 1)
    opacity_share = ((opacities >= 0) & (opacities <= 1)).mean()
    is_raw = not any(sample.activation)
    looks_activated = min(size_share, opacity_share) > 0.99 and (opacities > 0.02).any()
    if is_raw and looks_activated:
        return Hint(
            "activated", "scales and opacities look activated", "Show as activated"
        )
    # Logits of a trained scene are of both signs and beyond 1.
    is_spread = np.ptp(opacities) > _MIN_SPREAD
    if not sample.activation.opacities and opacity_share > 0.999 and is_spread:
        return Hint("opacities", "opacities look activated", "Show as opacities")
    if _looks_xyzw(sample.quats.double().numpy()):
        return Hint("quats", "quaternions look like x y z w", "Show as x y z w")
    return None


def _looks_xyzw(quats: np.ndarray) -> bool:
    """Return whether the last component of quaternions (N, 4) is the largest by far."""
    is_usable = np.isfinite(quats).all(axis=1) & quats.any(axis=1)
    usable = np.abs(quats[is_usable])
    unit = usable / np.linalg.norm(usable, axis=1, keepdims=True)
    first, _, _, last = unit.sum(axis=0) / max(len(usable), 1)
    return bool(last > max(0.6, 2 * first))
