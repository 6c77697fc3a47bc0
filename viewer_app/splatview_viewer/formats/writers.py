"""Writers of scenes, by the suffix of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from splatview_ipc.system.files import output_file
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import silent
from splatview_viewer.formats.ply import write_ply
from splatview_viewer.formats.sog_writing import write_planes
from splatview_viewer.formats.spz_writing import spz_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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
    keep: torch.Tensor | None = None
    """(N,) bool, which Gaussians are written; None: all."""
    gpu: torch.device | None = None
    """A GPU that may do what takes long; None: the CPU does it."""


class SceneWriter(NamedTuple):
    """A format in which scenes are written."""

    suffix: str
    title: str
    write: Callable[[WrittenScene, Path, bool, Progress], tuple[Path, int]]
    """As `write_scene`, with `numbered`."""


def write_scene(
    written: WrittenScene,
    path: Path,
    *,
    numbered: bool = False,
    writer: SceneWriter | None = None,
    progress: Progress = silent,
) -> tuple[Path, int]:
    """Write a scene in the format that the file's suffix names.

    The file appears whole or not at all. Gaussians of opacity 0 are left out, since they
    are invisible.

    Args:
        written: the scene.
        path: the file.
        numbered: replace nothing: if the file exists, a number is appended.
        writer: writes it; None: the one of `WRITERS` with the file's suffix.
        progress: called with how far it is.

    Returns:
        The path of the file, and how many Gaussians are in it.

    Raises:
        FileError: there is no such format, or the file cannot be written.
    """
    if writer is None:
        writer = writer_of(path)
    return writer.write(written, path, numbered, progress)


def writer_of(path: Path, others: Sequence[str] = ()) -> SceneWriter:
    """Return the writer of a file's suffix.

    Args:
        path: the file.
        others: suffixes that the caller writes by itself.

    Raises:
        FileError: it is another one.
    """
    name = path.name.lower()
    for writer in WRITERS:
        if name.endswith(writer.suffix):
            return writer
    suffixes = ", ".join([*(writer.suffix for writer in WRITERS), *others])
    raise FileError(f"{path}: no format is written by this name; end it in {suffixes}")


def chosen(written: WrittenScene) -> GaussianScene:
    """Return the Gaussians that are written. Raises FileError if there is none."""
    scene = written.scene
    is_chosen = scene.opacities > 0
    if written.keep is not None:
        is_chosen = is_chosen & written.keep
    if not is_chosen.any():
        raise FileError("none of the Gaussians is left to be written")
    if is_chosen.all():
        return scene
    return scene[is_chosen]


def _write_plain(
    written: WrittenScene, path: Path, numbered: bool, progress: Progress
) -> tuple[Path, int]:
    return write_ply(
        written.scene,
        path,
        antialiased=written.antialiased,
        up=written.up,
        keep=written.keep,
        progress=progress,
        numbered=numbered,
    )


def _write_compressed(
    written: WrittenScene, path: Path, numbered: bool, progress: Progress
) -> tuple[Path, int]:
    """Write SuperSplat's compressed PLY, by gsplat."""
    from gsplat.exporter import splat2ply_bytes_compressed

    scene = chosen(written)
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
    return write_bytes(content, path, numbered), len(scene)


def _rounded(coefficients: torch.Tensor) -> torch.Tensor:
    """Return coefficients that come to the nearest byte where they are cut off."""
    return coefficients + 8 / 256 / 2


def _write_spz(
    written: WrittenScene, path: Path, numbered: bool, progress: Progress
) -> tuple[Path, int]:
    """Write Niantic's SPZ."""
    scene = chosen(written)
    progress("compressing", 0.1)
    content = spz_bytes(scene, antialiased=written.antialiased)
    return write_bytes(content, path, numbered), len(scene)


def _write_sog(
    written: WrittenScene, path: Path, numbered: bool, progress: Progress
) -> tuple[Path, int]:
    """Write PlayCanvas's SOG."""
    scene = chosen(written)
    try:
        with output_file(path, numbered=numbered) as out:
            write_planes(
                out.file,
                scene,
                antialiased=written.antialiased,
                gpu=written.gpu,
                progress=progress,
            )
    except OSError as e:
        raise FileError(str(e)) from e
    return out.path, len(scene)


def write_bytes(content: bytes, path: Path, numbered: bool = False) -> Path:
    """Write a file, and return its path. Raises FileError."""
    try:
        with output_file(path, numbered=numbered) as out:
            out.file.write(content)
    except OSError as e:
        raise FileError(str(e)) from e
    return out.path


WRITERS = (
    SceneWriter(".compressed.ply", "SuperSplat's compressed PLY", _write_compressed),
    SceneWriter(".ply", "PLY, as inria's and gsplat's programs", _write_plain),
    SceneWriter(".spz", "Niantic SPZ, version 3", _write_spz),
    SceneWriter(".sog", "PlayCanvas SOG, version 2", _write_sog),
)
"""Longer suffixes come first."""
