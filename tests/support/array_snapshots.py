"""Snapshots of recordings as splatview wrote them before they were blocks.

`splatview_viewer.recording.array_form` describes and reads them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from splatview_viewer.recording.array_form import ArrayHeader

if TYPE_CHECKING:
    from splatview_viewer.scene.scene import GaussianScene

_MAX_HALF = 65504.0


def array_snapshot(
    scene: GaussianScene, background: tuple[float, float, float] | None = None
) -> bytes:
    """Return the file of a scene on the CPU."""
    coefficients = scene.shN.shape[1]
    header = ArrayHeader(
        count=len(scene),
        sh_degree=scene.sh_degree,
        antialiased=scene.antialiased,
        coefficients=coefficients,  # type: ignore[arg-type]
        activated=scene.activated,
        background=background,
        wide=scene.means.dtype.itemsize == 8,
    )
    higher = scene.shN.numpy().reshape(len(scene), -1)
    units = _halves(np.abs(higher).max(1, initial=0) / 127)
    divisors = np.where(units > 0, units.astype(np.float32), np.inf)
    quats = scene.quats.double().numpy()
    arrays = {
        "means": scene.means.numpy(),
        "quats": np.round(quats / np.linalg.norm(quats, axis=1, keepdims=True) * 32767),
        "scales": scene.scales.numpy(),
        "opacities": _halves(scene.opacities.numpy()),
        "sh0": _halves(scene.sh0.numpy()),
        "shN": np.clip(np.round(higher / divisors[:, None]), -127, 127),
        "sh_unit": units,
    }
    text = msgspec.json.encode(header)
    body = b""
    for name, (shape, dtype) in header.layout.items():
        if np.prod(shape):
            body += arrays[name].astype(dtype).tobytes()
    return ArrayHeader.magic + struct.pack("<I", len(text)) + text + body


def _halves(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -_MAX_HALF, _MAX_HALF).astype(np.float16)
