"""Scenes and pictures from files.

Scenes come in one convention: OpenCV axes, log scales, logit opacities.

    value = open_file("point_cloud.ply")  # the format is found by the content

Everything wrong with a file ends in a FileError, and only what the free memory allows
is allocated.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import Cancelled
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats.checkpoint import CHECKPOINT, read_tensors
from splatview_viewer.formats.common import (
    ZIP_MAGIC,
    Fields,
    Format,
    Progress,
    SceneFileFacts,
    Start,
    check_memory,
    fault_text,
    fields_of,
    scene_bytes,
    silent,
)
from splatview_viewer.formats.inria_output import INRIA
from splatview_viewer.formats.npz import NPZ
from splatview_viewer.formats.pictures import NPY, PICTURE
from splatview_viewer.formats.ply import PLY
from splatview_viewer.formats.sog import SOG
from splatview_viewer.formats.spz import SPLAT, SPZ

if TYPE_CHECKING:
    from splatview_viewer.scene.scene import GaussianScene

__all__ = [
    "FORMATS",
    "Format",
    "PictureAnswer",
    "Progress",
    "check_memory",
    "fault_text",
    "find_format",
    "open_file",
    "read_as",
    "scene_bytes",
    "silent",
    "value_of",
]

FORMATS: tuple[Format, ...] = (
    PLY,
    SPLAT,
    SPZ,
    SOG,
    INRIA,
    CHECKPOINT,
    NPZ,
    PICTURE,
    NPY,
)
"""Formats of scenes and pictures, in the order in which a file's content is tried;
`kinds.files` has all formats."""


def open_file(
    path: str | Path, progress: Progress = silent, formats: tuple[Format, ...] = FORMATS
) -> Any:
    """Read a file or folder: a scene, a picture (H, W, C), or another format's value.

    Args:
        path: a file, or a folder (planes of SOG or gsplat, output of inria's trainer,
            the ranks of a checkpoint).
        progress: called with the present activity and how far it is (0 to 1); Cancelled
            ends the reading.
        formats: those that can be opened.

    Raises:
        FileError: missing, damaged, of no known format; the message starts with the
            path.
    """
    path = Path(path)
    try:
        # Values that overflow or are no numbers stay as they are: the scene says how
        # many, the renderer skips them.
        with np.errstate(all="ignore"):
            value = find_format(path, formats=formats).read(path, progress)
            if isinstance(value, Fields):
                return value.scene()
            return value
    except Cancelled:
        raise
    except FileError as e:
        raise FileError(f"{path}: {e}") from e.__cause__
    except Exception as e:
        raise FileError(f"{path}: {fault_text(e)}") from e


def find_format(
    path: Path, name: str = "", formats: tuple[Format, ...] = FORMATS
) -> Format:
    """Return the format of an existing file or folder, by its content or its suffix.

    Args:
        path: opens it.
        name: its name for the user; "": the same.
        formats: those that are tried, in this order.

    Raises:
        FileError: missing, empty or of no known format; the message lists the formats.
    """
    head = b""
    if not path.is_dir():
        head = _read_head(path)
    start = Start(path, name or str(path), head)
    for candidate in formats:
        if candidate.sniff(start):
            return candidate
    if path.is_dir():
        raise FileError(
            "a folder without meta.json (SOG), without "
            "point_cloud/iteration_N/point_cloud.ply (inria), "
            "without checkpoints named *_rank*.pt, and without memory snapshots "
            "(*.pickle)"
        )
    if head[:4] == ZIP_MAGIC:
        entries = ", ".join(sorted(start.zip_names)[:8]) or "nothing"
        raise FileError(
            "a zip with neither meta.json (SOG) nor data.pkl (checkpoint); it holds "
            f"{entries}"
        )
    for candidate in formats:
        if start.suffix not in candidate.suffixes:
            continue
        if candidate.by_suffix:
            return candidate
        raise FileError(
            f"named {start.suffix} but its content is none: the file is damaged or "
            "misnamed"
        )
    lines = [f"  {' '.join(each.suffixes):24} {each.description}" for each in formats]
    listing = "\n".join(lines)
    raise FileError(f"of no known format. These can be opened:\n{listing}")


def _read_head(path: Path) -> bytes:
    """Read the first bytes of a file. Raises FileError for a missing or empty one."""
    try:
        with open_regular(path) as f:
            head = f.read(4096)
    except FileNotFoundError:
        raise FileError("no such file or folder") from None
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or e
        raise FileError(f"cannot be read: {reason}") from None
    if not head:
        raise FileError("the file is empty")
    return head


# -- in the sandbox: files of browser pages --------------------------------------------


class PictureAnswer(msgspec.Struct, frozen=True, tag="picture"):
    """A picture (H, W, C), one array."""


def read_as(
    file_format: Format, path: Path, progress: Progress
) -> tuple[SceneFileFacts | PictureAnswer, list[np.ndarray]]:
    """Read a scene or a picture of a known format. Raises FileError."""
    with open(path, "rb") as f:
        if file_format is SOG and f.read(2) != b"PK":
            raise FileError(
                "SOG: meta.json alone is no scene, and a page sends no folders: send "
                "the scene as one .sog file, or open the folder on the machine of the "
                "viewer"
            )
    if file_format is CHECKPOINT:
        # The caller is in the sandbox already, which the format's own reader starts.
        value = read_tensors([path], progress)
    else:
        value = file_format.read(path, progress)
    if isinstance(value, Fields):
        return value.scene_facts, value.arrays
    kind = f"{value.dtype.kind}{value.dtype.itemsize}"
    if kind not in ("u1", "u2", "f4"):
        value = value.astype(np.float32)
    return PictureAnswer(), [value]


def value_of(
    answer: SceneFileFacts | PictureAnswer, arrays: list[np.ndarray]
) -> GaussianScene | np.ndarray:
    """Return a scene or a picture from the sandbox.

    Raises FileError where it is none.
    """
    if isinstance(answer, SceneFileFacts):
        return fields_of(answer, arrays).scene()
    if len(arrays) == 1:
        picture = arrays[0]
    else:
        picture = np.zeros((0, 0, 0))
    has_shape = picture.ndim == 3 and 1 <= picture.shape[2] <= 4 and picture.size > 0
    if not has_shape or picture.dtype == np.float64:
        raise FileError(
            f"the program that read it described a picture of shape {picture.shape}, "
            f"{picture.dtype}"
        )
    return picture
