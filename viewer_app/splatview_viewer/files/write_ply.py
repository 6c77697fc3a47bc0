"""Writes Gaussians as the .ply of 3D Gaussian splatting, in inria's order of properties, so that other programs read
it as well: `splatview_viewer.files.ply` says what stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from splatview_ipc.system.files import output_file
from splatview_viewer.errors import FileError
from splatview_viewer.files.common import silent

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.files.common import Progress
    from splatview_viewer.scene import GaussianScene

_ROWS = 1 << 16
"""Written in one go."""
_LEAST_SCALE, _NEAREST_OPACITY = 1e-37, 2.0 ** -24
"""What logarithms and logits of 0 and 1 are taken of, so that they are finite."""


def write_ply(scene: GaussianScene, path: Path, *, antialiased: bool = False, keep: np.ndarray | None = None,
              progress: Progress = silent) -> tuple[Path, int]:
    """Write an activated scene in host memory, or a part of it. Whoever opens the file finds all of it, or none.

    Args:
        scene: activated; Gaussians of opacity 0 are left out, since nothing of them is to be seen.
        path: where; if that exists, the same with a number behind it, so that nothing is lost.
        antialiased: whether the scene was trained so, which stands in a comment that other programs know.
        keep: (N,) bool, which Gaussians to write; None: all of them.
        progress: told how far it is.

    Returns the file's path and how many Gaussians are in it.

    Raises:
        FileError: none is left to be written, or the file cannot be written.
    """
    drawn = np.asarray(scene.opacities) > 0
    index = np.flatnonzero(drawn if keep is None else drawn & keep)
    if not len(index):
        raise FileError("PLY: none of the Gaussians is left to be written")
    try:
        with output_file(path, numbered=True) as out:
            _write(out.file, scene, index, antialiased, progress)
    except OSError as e:
        raise FileError(str(e)) from e
    return out.path, len(index)


def _write(f: BinaryIO, scene: GaussianScene, index: np.ndarray, antialiased: bool, progress: Progress) -> None:
    rest = 3 * scene.shN.shape[1]
    names = ["x", "y", "z", "nx", "ny", "nz", *(f"f_dc_{i}" for i in range(3)), *(f"f_rest_{i}" for i in range(rest)),
             "opacity", *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4))]
    wide = "double" if scene.means.dtype == np.float64 else "float"
    record = np.dtype([("means", "<f8" if wide == "double" else "<f4", 3), ("rest", "<f4", len(names) - 3)])
    comments = ["comment SplatRenderMode: mip"] if antialiased else []
    f.write("\n".join(["ply", "format binary_little_endian 1.0", *comments, f"element vertex {len(index)}",
                       *(f"property {wide if name in 'xyz' else 'float'} {name}" for name in names),
                       "end_header", ""]).encode())
    for start in range(0, len(index), _ROWS):
        rows = index[start: start + _ROWS]
        scales = np.maximum(np.asarray(scene.scales[rows], np.float64), _LEAST_SCALE)
        opacity = np.clip(np.asarray(scene.opacities[rows], np.float64), 1e-37, 1 - _NEAREST_OPACITY)
        records = np.zeros(len(rows), record)
        records["means"], block = scene.means[rows], records["rest"]
        block[:, 3:6] = scene.sh0[rows]
        # Channel by channel, while arrays go coefficient by coefficient.
        block[:, 6: 6 + rest] = np.asarray(scene.shN[rows]).transpose(0, 2, 1).reshape(len(rows), rest)
        block[:, 6 + rest] = np.log(opacity) - np.log1p(-opacity)
        block[:, 7 + rest: 10 + rest] = np.log(scales)
        block[:, 10 + rest:] = scene.quats[rows]
        f.write(records.data)
        progress("writing Gaussians", min(start + _ROWS, len(index)) / len(index))
