"""Scenes, pictures and camera paths that come from browser pages, decoded in the sandbox rather than in the viewer.

    film = read_untrusted_film(path)      # as read_path(path)

Other files that the user names on this machine, but for checkpoints, are read in the viewer, which is faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from splatview_viewer.core.errors import CameraError, FileError
from splatview_viewer.formats.checkpoint import CHECKPOINT, read_tensors
from splatview_viewer.formats.common import Fields, SceneFacts, fields_of, silent
from splatview_viewer.formats.sandbox import limits_for, run
from splatview_viewer.formats.sog import SOG

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.formats.camera_paths import Film
    from splatview_viewer.formats.common import Format, Progress
    from splatview_viewer.formats.sandbox import File
    from splatview_viewer.scene.scene import GaussianScene

MOST_CAMERAS = 20_000
"""Cameras of a path: each costs the loop that draws some time."""


class PictureAnswer(msgspec.Struct, frozen=True, tag="picture"):
    """A picture (H, W, C), one array."""


class FilmAnswer(msgspec.Struct, frozen=True, tag="film"):
    """A camera path; its array (N, 9): of each key frame position, rotation, field of view and seconds."""

    loop: bool
    smooth: bool
    model: Literal["pinhole", "fisheye"]
    held: bool
    width: Annotated[int, Meta(ge=1, le=16384)]
    height: Annotated[int, Meta(ge=1, le=16384)]
    fps: Annotated[float, Meta(ge=0.01, le=1000)]


# -- in the viewer -----------------------------------------------------------------------------------------------------


def value_of(answer: SceneFacts | PictureAnswer, arrays: list[np.ndarray]) -> GaussianScene | np.ndarray:
    """Return a scene or a picture from the sandbox. Raises FileError where it is none."""
    if isinstance(answer, SceneFacts):
        return fields_of(answer, arrays).scene()
    picture = arrays[0] if len(arrays) == 1 else np.zeros((0, 0, 0))
    if picture.ndim != 3 or picture.dtype == np.float64 or not 1 <= picture.shape[2] <= 4 or not picture.size:
        raise FileError(f"the program that read it described a picture of shape {picture.shape}, {picture.dtype}")
    return picture


def read_untrusted_film(path: Path, progress: Progress = silent) -> Film:
    """Return the camera path in a file; for a thread that may wait.

    Raises CameraError, which names the file, when it holds none.
    """
    try:
        return film_of(*run(read_film, [path], limits_for(path.stat().st_size), FilmAnswer, progress=progress))
    except FileError as e:
        raise CameraError(str(e) if str(e).startswith((str(path), "path: ")) else f"{path}: {e}") from None
    except OSError as e:
        raise CameraError(f"path: {path} cannot be read: {e.strerror or e}") from None


def film_of(answer: FilmAnswer, arrays: list[np.ndarray]) -> Film:
    """Return a camera path from the sandbox. Raises FileError where it is none."""
    from splatview_viewer.formats.camera_paths import Film
    from splatview_viewer.geometry.path import CameraPath, Key

    keys: np.ndarray = arrays[0] if len(arrays) == 1 else np.zeros(0)
    if keys.ndim != 2 or keys.shape[1] != 9 or not 0 < len(keys) <= MOST_CAMERAS or keys.dtype != np.float64 or not (
            np.isfinite(keys).all() and (keys[:, 7:] > 0).all() and (keys[:, 7] < 180).all()
            and np.allclose(np.linalg.norm(keys[:, 3:7], axis=1), 1, atol=1e-3)):
        raise FileError(f"the program that read it described something that is no camera path, {keys.shape}")
    path = CameraPath([Key(k[:3].copy(), k[3:7].copy(), *k[7:].tolist()) for k in keys], answer.loop, answer.smooth,
                      answer.model, answer.held)
    return Film(path, answer.width, answer.height, answer.fps)


# -- in the sandbox ----------------------------------------------------------------------------------------------------


def read_as(found: Format, path: Path, progress: Progress) -> tuple[SceneFacts | PictureAnswer, list[np.ndarray]]:
    """Read a scene or a picture. Raises FileError."""
    with open(path, "rb") as f:
        if found is SOG and f.read(2) != b"PK":
            raise FileError("SOG: meta.json alone is no scene, and a page sends no folders: send the scene as one "
                            ".sog file, or open the folder on the machine of the viewer")
    value = read_tensors([path], progress) if found is CHECKPOINT else found.read(path, progress)
    if isinstance(value, Fields):
        return value.facts, value.arrays
    kind = f"{value.dtype.kind}{value.dtype.itemsize}"
    return PictureAnswer(), [value if kind in ("u1", "u2", "f4") else value.astype(np.float32)]


def read_film(files: list[File], progress: Progress) -> tuple[FilmAnswer, list[np.ndarray]]:
    """Read a camera path. Raises CameraError."""
    from splatview_viewer.formats import camera_paths

    file, name = files[0]
    try:
        film = camera_paths.read_path(file)
    except CameraError as e:
        raise CameraError(str(e).replace(str(file), name)) from None
    path = film.path
    if len(path.keys) > MOST_CAMERAS:
        raise CameraError(f"path: {len(path.keys):,} cameras; a page can send 1 to {MOST_CAMERAS:,}; open it "
                          "on the machine of the viewer")
    keys = np.array([[*k.position, *k.rotation, k.fov, k.seconds] for k in path.keys], np.float64)
    return FilmAnswer(path.loop, path.smooth, path.model, path.held,  # type: ignore[arg-type]
                      film.width, film.height, film.fps), [keys]
