"""Scenes and pictures from files; scenes in one convention: OpenCV axes, log scales, logit opacities.

    scene = load_scene("point_cloud.ply")
    either = open_file(path)          # tells the format from the content

Every reader raises FileError for anything wrong with a file, and allocates only what the file's size and the free
memory allow (`bounds`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.bounds import BOMB_BYTES, BOMB_RATIO, check_json, check_memory, scene_bytes
from splatview_viewer.formats.checkpoint import CHECKPOINT
from splatview_viewer.formats.common import ZIP_MAGIC, Fields, Format, Progress, Start, fault_text, silent
from splatview_viewer.formats.image import NPY, PICTURE
from splatview_viewer.formats.ply import PLY
from splatview_viewer.formats.sog import SOG
from splatview_viewer.formats.splat import SPLAT
from splatview_viewer.formats.spz import SPZ
from splatview_viewer.scene.scene import GaussianScene

__all__ = ["BOMB_BYTES", "BOMB_RATIO", "FORMATS", "Format", "Progress", "check_json", "check_memory", "fault_text",
           "find_format", "load_scene", "open_file", "scene_bytes", "silent"]

FORMATS: tuple[Format, ...] = (PLY, SPLAT, SPZ, SOG, CHECKPOINT, PICTURE, NPY)
"""Formats of scenes and pictures, in the order in which a file's content is tried; `kinds.files` has all formats."""


def open_file(path: str | Path, progress: Progress | None = None, formats: tuple[Format, ...] = FORMATS) -> Any:
    """Return what a file or folder holds: a scene, a picture (H, W, C), or a value of another of the formats.

    Args:
        path: a file, or a folder (SOG, or the ranks of a gsplat checkpoint).
        progress: called with what is going on and how far it is (0 to 1); what it raises ends the reading.
        formats: those that can be opened.

    Raises:
        FileError: missing, damaged, of no known format; the message starts with the path.
    """
    path = Path(path)
    reported = _Reported(progress or silent)
    try:
        # Values that overflow or are no numbers stay as they are: the scene says how many, the renderer skips them.
        with np.errstate(all="ignore"):
            value = find_format(path, formats=formats).read(path, reported)
            return value.scene() if isinstance(value, Fields) else value
    except Exception as e:
        if reported.raised is not None:
            raise reported.raised from None
        raise FileError(f"{path}: {fault_text(e)}") from (e.__cause__ if isinstance(e, FileError) else e)


def find_format(path: Path, name: str = "", formats: tuple[Format, ...] = FORMATS) -> Format:
    """Return the format of an existing file or folder: by its content, or else by its suffix.

    Args:
        path: opens it.
        name: what the user calls it; "": the same.
        formats: those that are tried, in this order.

    Raises:
        FileError: missing, empty or of no known format; the message lists the formats.
    """
    start = Start(path, name or str(path), b"" if path.is_dir() else _head(path))
    if found := next((f for f in formats if f.sniff(start)), None):
        return found
    if path.is_dir():
        raise FileError("a folder without meta.json (SOG) and without checkpoints named *_rank*.pt")
    if start.head[:4] == ZIP_MAGIC:
        raise FileError(f"a zip with neither meta.json (SOG) nor data.pkl (checkpoint); it holds "
                        f"{', '.join(sorted(start.zip_names)[:8]) or 'nothing'}")
    named = next((f for f in formats if start.suffix in f.suffixes), None)
    if named is None:
        lines = "\n".join(f"  {' '.join(f.suffixes):24} {f.description}" for f in formats)
        raise FileError(f"of no known format. These can be opened:\n{lines}")
    if not named.by_suffix:
        raise FileError(f"named {start.suffix} but its content is none: the file is damaged or misnamed")
    return named


def _head(path: Path) -> bytes:
    try:
        with open_regular(path) as f:
            head = f.read(4096)
    except FileNotFoundError:
        raise FileError("no such file or folder") from None
    except (OSError, ValueError) as e:
        raise FileError(f"cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if not head:
        raise FileError("the file is empty")
    return head


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


def load_scene(path: str | Path, progress: Progress | None = None) -> GaussianScene:
    """The Gaussians of a file or folder in any scene format; arguments and errors as in `open_file`."""
    value = open_file(path, progress)
    if not isinstance(value, GaussianScene):
        raise FileError(f"{path}: a picture, not a scene of Gaussians")
    return value
