"""antimatter15's .splat: 32 bytes per Gaussian and no header.

Position 3 float32, linear scale 3 float32, RGBA 4 bytes, quaternion w x y z 4 bytes as q*128+128; colour and
alpha are final (no spherical harmonics). Layout of antimatter15/splat, `convert.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    LOGIT_OF_BYTE,
    SH0_OF_BYTE,
    Fields,
    Format,
    Progress,
    check_scene,
    read_exact,
    remaining,
)

if TYPE_CHECKING:
    from pathlib import Path

RECORD = np.dtype([("position", "<f4", 3), ("scale", "<f4", 3), ("rgba", "u1", 4), ("rotation", "u1", 4)])


def read(path: Path, progress: Progress) -> Fields:
    """Return the Gaussians of a .splat file."""
    with open(path, "rb") as f:
        size = remaining(f)
        if size == 0 or size % RECORD.itemsize:
            raise FileError(f".splat: {size:,} bytes are not a multiple of {RECORD.itemsize}, "
                            "which a Gaussian takes")
        check_scene(size // RECORD.itemsize, 0, size)
        records = np.frombuffer(read_exact(f, size, "the Gaussians"), RECORD)
    progress("unpacking Gaussians", 0.5)
    # A scale of 0 is legal (a flat Gaussian): the smallest normal number keeps its logarithm finite.
    scales = records["scale"]
    scales = np.log(np.where(scales == 0, np.finfo(np.float32).tiny, scales))
    fields = Fields(
        means=records["position"], quats=(records["rotation"].astype(np.float32) - 128) / 128, scales=scales,
        opacities=LOGIT_OF_BYTE[records["rgba"][:, 3]], sh0=SH0_OF_BYTE[records["rgba"][:, :3]],
        shN=np.zeros((len(records), 0, 3), np.float32))
    progress("unpacking Gaussians", 1.0)
    return fields.checked()


SPLAT = Format("splat", (".splat",), "antimatter15's 32-byte records", lambda start: False, read, by_suffix=True)
