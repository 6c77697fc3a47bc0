"""The program that decodes files for the viewer: `python -m splatview_viewer.files.reading JOB`. See `apart`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from splatview_viewer.errors import CameraError, FileError
from splatview_viewer.files import apart, fault_text, find_format
from splatview_viewer.files.checkpoint import CHECKPOINT
from splatview_viewer.files.program_limits import Out, bound_for_good, end_with_viewer
from splatview_viewer.files.snapshot import SNAPSHOT
from splatview_viewer.files.sog import SOG
from splatview_viewer.scene import FIELDS, GaussianScene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview_viewer.paths.nerfstudio import Film

_NOWHERE = "/proc/self/fdinfo/nowhere"
"""A folder that does not exist."""


class _Beside(type(Path())):
    """The folder of an inherited file, which seems to hold that file alone."""

    file: Inherited | None = None

    def iterdir(self) -> Iterator[Path]:  # type: ignore[override]
        if self.file is not None:
            yield self.file


class Inherited(type(Path())):
    """An open file under the name that it had: is opened by its descriptor, and has no neighbours."""

    fd = -1

    @classmethod
    def of(cls, fd: int, name: str) -> Inherited:
        """Return the file of a descriptor."""
        path = cls(name)
        path.fd = fd
        return path

    def __fspath__(self) -> str:
        return f"/proc/self/fd/{self.fd}" if self.fd >= 0 else super().__fspath__()

    @property
    def parent(self) -> Path:  # type: ignore[override]
        folder = _Beside(_NOWHERE)
        folder.file = self
        return folder


def main() -> int:
    job: dict[str, Any] = json.loads(sys.argv[1])
    end_with_viewer()
    out = Out()
    try:
        files = [Inherited.of(fd, job["name"]) for fd in job["files"]]
        limits = int(job["memory"]), int(job["seconds"]), len(files)
        if job["kind"] == "film":
            from splatview_viewer.paths import nerfstudio

            bound_for_good(*limits)
            header: apart.Header = _film(nerfstudio.read_path(files[0]), job["out"])
        else:
            _import_all(files[0])
            bound_for_good(*limits)
            header = _tensors(files, job["out"], out) if job["kind"] == "tensors" else _any(files[0], job["out"], out)
    except Exception as e:
        out.say("error", fault_text(e))
    else:
        out.say("done", msgspec.to_builtins(header))
    sys.stdout.flush()
    os._exit(0)  # taking everything apart would take longer than reading it


def _import_all(path: Path) -> None:
    """Import what the readers import when they are needed: later there are bounds on memory."""
    import zipfile  # noqa: F401

    import PIL.Image
    import PIL.ImageOps

    from splatview_viewer.memory import loading  # noqa: F401

    PIL.Image.init()
    try:
        import zstandard  # noqa: F401
    except ImportError:  # said by the reader that needs it
        pass
    with open(path, "rb") as f:
        if f.read(4) == b"PK\x03\x04" and path.suffix.lower() not in (".sog", ".zip"):  # perhaps a checkpoint
            import torch  # noqa: F401


def _any(path: Inherited, fd: int, out: Out) -> apart.Header:
    """Read a file of any format. Raises FileError."""
    found = find_format(path)
    if found is SNAPSHOT:
        return apart.SnapshotHeader()
    with open(path, "rb") as f:
        if found is SOG and f.read(2) != b"PK":
            raise FileError("SOG: meta.json alone is no scene, and a page sends no folders: send the scene as one "
                            ".sog file, or open the folder on the machine of the viewer")
    if found is CHECKPOINT:
        return _tensors([path], fd, out)
    with np.errstate(all="ignore"):  # as open_file
        value = found.read(path, lambda what, fraction: out.told(what, 0.95 * fraction))
    if isinstance(value, np.ndarray):
        out.told("writing arrays", 0.95)
        kind = f"{value.dtype.kind}{value.dtype.itemsize}"
        return apart.PictureHeader(apart.write_columns(fd, [value if kind in ("u1", "u2", "f4") else
                                                            value.astype(np.float32)])[0])
    if not isinstance(value, GaussianScene):
        raise FileError(f"recognised as {found.name!r} and read as {type(value).__name__}")
    return _scene(value, fd, out)


def _tensors(files: list[Inherited], fd: int, out: Out) -> apart.Header:
    from splatview_viewer.files.checkpoint import read_tensors

    with np.errstate(all="ignore"):
        return _scene(read_tensors(files, lambda what, fraction: out.told(what, 0.95 * fraction)), fd, out)


def _scene(scene: GaussianScene, fd: int, out: Out) -> apart.Header:
    out.told("writing arrays", 0.95)
    columns = apart.write_columns(fd, [np.asarray(getattr(scene, field)) for field in FIELDS])
    return apart.SceneHeader(columns, scene.sh_degree, scene.antialiased, [note[:2000] for note in scene.notes[:64]],
                             scene.up)


def _film(film: Film, fd: int) -> apart.FilmHeader:
    keys, path = film.path.keys, film.path
    if len(keys) > apart.MOST_FRAMES:
        raise CameraError(f"path: {len(keys):,} cameras; a page can send 1 to {apart.MOST_FRAMES:,}; open it "
                          "on the machine of the viewer")
    columns = apart.write_columns(fd, [
        np.array([k.position for k in keys], np.float64).reshape(-1, 3),
        np.array([k.rotation for k in keys], np.float64).reshape(-1, 4),
        np.array([k.fov for k in keys], np.float64), np.array([k.seconds for k in keys], np.float64)])
    return apart.FilmHeader(columns, path.loop, path.smooth, path.model, film.width, film.height,  # type: ignore[arg-type]
                            film.fps, path.held)


if __name__ == "__main__":
    sys.exit(main())
