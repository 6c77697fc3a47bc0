"""Pictures and folders that people keep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from splatview_ipc.system.files import PICTURES, OutputError, check_output, output_error, output_file, take_free_name
from splatview_viewer.core.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable


def save_picture(pixels: np.ndarray, path: Path, numbered: bool = False) -> Path:
    """Write (H, W, 3) uint8, or (H, W, 4) with alpha, in the format of the suffix, or as a PNG. Readers see the old
    picture or the new one, never a part.

    `numbered` as for `output_file`. Returns the file's path. Raises FileError when it cannot be written.
    """
    try:
        from PIL import Image  # the first time from files, of which there may be no more

        with output_file(path, numbered=numbered) as out:
            Image.fromarray(np.ascontiguousarray(pixels)).save(
                out.file, PICTURES.get(path.suffix.lower(), "PNG"), compress_level=4, quality=95, subsampling=0)
        return out.path
    except ValueError as e:  # a WebP of more than 16383 pixels
        raise FileError(str(OutputError(path, str(e)))) from e
    except OSError as e:
        raise FileError(str(e)) from e


def check_writable(path: Path, check: Callable[..., None] = check_output, *args: object) -> None:
    """Raise FileError unless a file can be written at `path`, as `check` finds: before long work."""
    try:
        check(path, *args)
    except OSError as e:
        raise FileError(str(e)) from e


def output_path(name: str, suffix: str = ".png", folder: Path | None = None) -> Path:
    """Return the path of a new file in a folder, by default the current one, named after a stream or a file."""
    try:
        folder = folder or Path.cwd()
    except OSError:  # the working folder was removed, which writing reports
        folder = Path()
    return folder / f"{safe_name(name)}{suffix}"


def safe_name(text: str, default: str = "splatview") -> str:
    """Return `text` as the stem of a file name of at most 200 bytes: letters, digits, and "-_. " within.

    Streams and runs are named by other processes: a name never leads to another folder or begins an option.
    """
    clean = "".join(c if c.isalnum() or c in "-_. " else "-" for c in text).encode()[:200].decode(errors="ignore")
    return clean.strip(" .").lstrip("-. ") or default


def make_output_folder(path: str | os.PathLike[str]) -> list[Path]:
    """Make a folder for output, and missing ones above it. Return those made, the deepest first.

    Raises OutputError where it cannot be made or written.
    """
    folder = Path(os.path.realpath(path))
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise output_error(path, e) from e
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(Path(path), "permission denied; choose a folder that you can write")
    return made


def make_new_folder(path: Path) -> Path:
    """Make a folder for output that did not exist: `path`, or the next free numbered name. Raises OutputError."""
    return take_free_name(path, Path.mkdir)
