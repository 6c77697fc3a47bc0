"""Writers of scenes, by the suffix of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import silent
from splatview_viewer.formats.ply import write_ply
from splatview_viewer.formats.spz_writing import spz_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from splatview_viewer.formats.common import Progress
    from splatview_viewer.scene.scene import GaussianScene

_LOG_SCALE_MIN = -20.0
"""SuperSplat's compressed PLY holds no smaller ones."""
_LOGIT_MAX = 16.0


class WrittenScene(NamedTuple):
    """A scene that is written, and what is noted with it."""

    scene: GaussianScene
    """Activated, on the CPU."""
    antialiased: bool = False
    up: tuple[float, float, float] | None = None
    """The direction upward; None if it is not known."""


class SceneWriter(NamedTuple):
    """A format in which scenes are written."""

    suffix: str
    title: str
    write: Callable[[WrittenScene, Path, Progress], int]
    """Writes a file, which appears whole or not at all; returns how many Gaussians are
    in it."""


def write_scene(written: WrittenScene, path: Path, progress: Progress = silent) -> int:
    """Write a scene in the format that the file's suffix names.

    Gaussians of opacity 0 are left out, since they are invisible.

    Returns:
        How many Gaussians are in the file.

    Raises:
        FileError: there is no such format, or the file cannot be written.
    """
    return writer_of(path).write(written, path, progress)


def writer_of(path: Path) -> SceneWriter:
    """Return the writer of a file's suffix. Raises FileError for another one."""
    name = path.name.lower()
    for writer in WRITERS:
        if name.endswith(writer.suffix):
            return writer
    suffixes = ", ".join(writer.suffix for writer in WRITERS)
    raise FileError(f"{path}: no format is written by this name; end it in {suffixes}")


def visible(scene: GaussianScene) -> GaussianScene:
    """Return the Gaussians of an activated scene that can be seen.

    Raises FileError if there is none.
    """
    is_visible = scene.opacities > 0
    if not is_visible.any():
        raise FileError("none of the Gaussians is visible: there is nothing to write")
    if is_visible.all():
        return scene
    return scene[is_visible]


def _write_plain(written: WrittenScene, path: Path, progress: Progress) -> int:
    _, count = write_ply(
        written.scene,
        path,
        antialiased=written.antialiased,
        up=written.up,
        progress=progress,
        numbered=False,
    )
    return count


def _write_compressed(written: WrittenScene, path: Path, progress: Progress) -> int:
    """Write SuperSplat's compressed PLY, by gsplat."""
    from gsplat.exporter import splat2ply_bytes_compressed

    scene = visible(written.scene)
    progress("compressing", 0.1)
    opacities = scene.opacities.double().logit().clamp(-_LOGIT_MAX, _LOGIT_MAX)
    content = splat2ply_bytes_compressed(
        scene.means.float(),
        scene.scales.log().clamp(_LOG_SCALE_MIN, None),
        scene.quats,
        opacities.float(),
        scene.sh0,
        _rounded(scene.shN.transpose(1, 2).flatten(1)),
        opacity_threshold=0.0,
    )
    _write_bytes(content, path)
    return len(scene)


def _rounded(coefficients: torch.Tensor) -> torch.Tensor:
    """Return coefficients that come to the nearest byte where they are cut off."""
    return coefficients + 8 / 256 / 2


def _write_spz(written: WrittenScene, path: Path, progress: Progress) -> int:
    """Write Niantic's SPZ."""
    scene = visible(written.scene)
    progress("compressing", 0.1)
    content = spz_bytes(scene, antialiased=written.antialiased)
    _write_bytes(content, path)
    return len(scene)


def _write_bytes(content: bytes, path: Path) -> None:
    """Write a file, which appears whole or not at all. Raises FileError."""
    try:
        with output_file(path) as out:
            out.file.write(content)
    except OSError as e:
        raise FileError(str(e)) from e


WRITERS = (
    SceneWriter(".compressed.ply", "SuperSplat's compressed PLY", _write_compressed),
    SceneWriter(".ply", "PLY, as inria's and gsplat's programs", _write_plain),
    SceneWriter(".spz", "Niantic SPZ, version 3", _write_spz),
)
"""Longer suffixes come first."""
