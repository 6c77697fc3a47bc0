"""Pictures as files that people keep."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.permissions import share


def save_png(pixels: np.ndarray, path: Path) -> None:
    """Write (H, W, 3) uint8, or (H, W, 4) with alpha, as a PNG. Whoever opens the file sees the old picture or the new
    one, never a part.

    Raises FileError when it cannot be written.
    """
    temporary = ""
    try:
        from PIL import Image  # the first time from files, of which there may be no more

        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.absolute().parent)
        with os.fdopen(fd, "wb") as f:
            Image.fromarray(np.ascontiguousarray(pixels)).save(f, "PNG", compress_level=4)
        share(temporary)
        os.replace(temporary, path)
    except OSError as e:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise FileError(f"{path}: cannot be written: {e.strerror or e}") from e


def free_path(name: str, folder: Path | None = None, suffix: str = ".png") -> Path:
    """`name`.png in a folder (by default the current one), or `name`-2.png and so on: nothing is overwritten."""
    folder = folder or Path.cwd()
    clean = "".join(c if c.isalnum() or c in "-_. " else "-" for c in name).strip(" .") or "splatview"
    number = 1
    while True:
        path = folder / (f"{clean}{suffix}" if number == 1 else f"{clean}-{number}{suffix}")
        if not path.exists():
            return path
        number += 1
