"""Scenes, pictures and memory snapshots from files; scenes in one convention: OpenCV axes, log scales, logit opacities.

    scene = load_scene("point_cloud.ply")
    picture = load_image("render.png")
    either = open_file(path)          # tells the format from the content

Every reader raises FileError for anything wrong with a file, and allocates only what the file's size and the free
memory allow (`bounds`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.errors import FileError, ViewerError
from splatview_viewer.files.bounds import BOMB_BYTES, BOMB_RATIO, check_json, check_memory, scene_bytes
from splatview_viewer.files.common import Progress, silent
from splatview_viewer.files.formats import FORMATS, Format, formats_text, recognise
from splatview_viewer.scene import GaussianScene

if TYPE_CHECKING:
    from splatview_viewer.memory.model import Snapshot

log = logging.getLogger("splatview")

__all__ = ["BOMB_BYTES", "BOMB_RATIO", "FORMATS", "Format", "Progress", "check_json", "check_memory", "fault_text",
           "formats_text", "load_image", "load_scene", "open_file", "recognise", "scene_bytes", "silent"]


def open_file(path: str | Path, progress: Progress | None = None) -> GaussianScene | np.ndarray | Snapshot:
    """Whatever a file or folder holds: a scene, a picture (H, W, C), or a snapshot of memory.

    Args:
        path: a file, or a folder (SOG, or the ranks of a gsplat checkpoint).
        progress: called with what is going on and how far it is (0 to 1); what it raises ends the reading.

    Raises:
        FileError: missing, damaged, of no known format; the message starts with the path.
    """
    path = Path(path)
    reported = _Reported(progress or silent)
    try:
        # Values that overflow or are no numbers stay as they are: the scene says how many, the renderer skips them.
        with np.errstate(all="ignore"):
            return _read(path, recognise(path), reported)
    except Exception as e:
        if reported.raised is not None:
            raise reported.raised from None
        raise FileError(f"{path}: {fault_text(e)}") from (e.__cause__ if isinstance(e, FileError) else e)


class _Reported:
    """The caller's progress report. What it raises ends the reading and is not taken for a fault of the file."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.raised: Exception | None = None

    def __call__(self, what: str, fraction: float) -> None:
        try:
            self._progress(what, fraction)
        except Exception as e:
            self.raised = e
            raise


def fault_text(error: Exception) -> str:
    """Return what a reader's fault is reported as: no exception but FileError leaves a reader.

    Readers name what they know to be wrong. This is the net below them: a damaged file can make zipfile, json, numpy,
    Pillow and torch raise nearly anything.
    """
    if isinstance(error, ViewerError):
        return str(error)
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "not enough memory to load it"
    log.debug("an exception that its reader does not name", exc_info=error)
    if isinstance(error, RecursionError):
        return "damaged: it is nested too deeply"
    return f"damaged, or not what its content claims ({type(error).__name__}: {str(error)[:200]})"


def load_scene(path: str | Path, progress: Progress | None = None) -> GaussianScene:
    """The Gaussians of a file or folder in any scene format; arguments and errors as in `open_file`."""
    value = open_file(path, progress)
    if not isinstance(value, GaussianScene):
        raise FileError(f"{path}: {_words(value)}, not a scene of Gaussians")
    return value


def load_image(path: str | Path) -> np.ndarray:
    """A picture (H, W, C) of uint8, uint16 or float32 (0 to 1), C from 1 to 4; errors as in `open_file`."""
    value = open_file(path)
    if not isinstance(value, np.ndarray):
        raise FileError(f"{path}: {_words(value)}, not a picture")
    return value


def _words(value: GaussianScene | np.ndarray | Snapshot) -> str:
    if isinstance(value, np.ndarray):
        return "a picture"
    return "a scene of Gaussians" if isinstance(value, GaussianScene) else "a snapshot of memory"


def _read(path: Path, name: str, progress: Progress) -> GaussianScene | np.ndarray | Snapshot:
    # Readers are imported when needed: Pillow and zipfile take their time.
    if name == "picture":
        from splatview_viewer.files.image import read_picture

        return read_picture(path)
    if name == "npy":
        from splatview_viewer.files.image import read_npy

        return read_npy(path)
    if name == "sog":
        from splatview_viewer.files.sog import read_sog

        return read_sog(path, progress)
    if name == "snapshot":
        from splatview_viewer.memory.loading import load_snapshot

        return load_snapshot(path, progress)
    if name == "checkpoint":
        from splatview_viewer.files.checkpoint import read_checkpoint

        return read_checkpoint(path, progress)
    with open(path, "rb") as f:
        if name == "splat":
            from splatview_viewer.files.splat import read_splat

            return read_splat(f, progress)
        if name == "spz":
            from splatview_viewer.files.spz import read_spz

            return read_spz(f, progress)
        from splatview_viewer.files.compressed_ply import is_compressed, read_compressed_ply
        from splatview_viewer.files.ply import read_header, read_ply

        header = read_header(f)
        return (read_compressed_ply if is_compressed(header) else read_ply)(f, header, progress)
