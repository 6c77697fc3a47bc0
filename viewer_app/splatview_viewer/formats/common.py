"""What the readers share: formats, the finished scene, bounds on what a file may claim, decoding tables."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Meta

from splatview_ipc.kinds.gaussians import SH_REST
from splatview_viewer.core.errors import FileError, ViewerError
from splatview_viewer.formats.bounds import check_memory, clipped
from splatview_viewer.scene.scene import FIELDS, UPS, GaussianScene, sh0_of_rgb

if TYPE_CHECKING:
    import zipfile
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger("splatview")

Progress = Callable[[str, float], None]
"""Told what is going on and how far it is, 0 to 1."""


@dataclass
class Start:
    """What tells the format of a file or folder."""

    path: Path
    """Opens it."""
    name: str
    """What the user calls it, which may be another name than that of `path`."""
    head: bytes
    """The first bytes of a file; a folder has none."""

    @property
    def suffix(self) -> str:
        """In lower case, with the dot."""
        return os.path.splitext(self.name)[1].lower()

    @cached_property
    def zip_names(self) -> set[str]:
        """Names in a zip, without their folders; empty for other files."""
        if self.head[:4] != ZIP_MAGIC:
            return set()
        with open_zip(self.path) as archive:
            return {n.rpartition("/")[2] for n in archive.namelist()}


@dataclass(frozen=True)
class Format:
    """A format of files that can be opened."""

    name: str
    suffixes: tuple[str, ...]
    description: str
    sniff: Callable[[Start], bool]
    """Whether the content is of this format."""
    read: Callable[[Path, Progress], Any]
    """Return the fields of a scene, a picture or a snapshot in a file or folder. Raises FileError."""
    by_suffix: bool = False
    """Whether files with one of the suffixes are of this format where their content is of no other."""


ZIP_MAGIC = b"PK\x03\x04"
SH_PROPERTIES = tuple(3 * k for k in SH_REST)
"""Numbers per Gaussian that the degrees above 0 take in a file."""
MODES = {"mip": True, "antialiased": True, "true": True, "1": True,
         "": False, "default": False, "none": False, "false": False, "0": False}
"""Words of files for how a scene was trained: antialiased or not."""

ZIP_ENTRIES = 20_000
"""Entries of a zip that are read; a SOG has ten, a checkpoint one for each tensor."""
ZIP_DIRECTORY = 4 << 20
"""Bytes of a zip's directory that are read: 200 for each entry."""

_level = np.clip(np.arange(256, dtype=np.float64) / 255, 1e-6, 1 - 1e-6)
LOGIT_OF_BYTE = np.log(_level / (1 - _level)).astype(np.float32)
"""Logit opacity of an 8-bit alpha. 0 and 255 are moved in by a millionth so that every entry is finite."""
SH0_OF_BYTE = sh0_of_rgb(np.arange(256) / 255).astype(np.float32)
"""Degree 0 coefficient of an 8-bit colour."""


def silent(what: str, fraction: float) -> None:
    """The progress report of a caller who wants none."""


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


@dataclass
class Fields:
    """A scene as a reader has decoded it: NumPy arrays, so that a reader does not import torch."""

    means: np.ndarray
    quats: np.ndarray
    scales: np.ndarray
    opacities: np.ndarray
    sh0: np.ndarray
    shN: np.ndarray  # noqa: N815  (gsplat's own name for the field)
    _: KW_ONLY
    sh_degree: int = 0
    antialiased: bool = False
    notes: tuple[str, ...] = ()
    up: tuple[float, float, float] | None = None

    @property
    def arrays(self) -> list[np.ndarray]:
        """In the order of `FIELDS`."""
        return [getattr(self, name) for name in FIELDS]

    def scene(self) -> GaussianScene:
        """Return checked fields as a scene, without a copy."""
        return GaussianScene.of_arrays(*self.arrays, sh_degree=self.sh_degree, antialiased=self.antialiased,
                                       notes=self.notes, up=self.up)

    def checked(self, *, mode: object = "", up: str = "", sh_degree: int | None = None,
              notes: tuple[str, ...] = ()) -> Fields:
        """Return the fields as contiguous float32, `means` also float64, with what the file says of the scene.

        Args:
            mode: what the file says of how the scene was trained, see `MODES`; other words are named in `notes`.
            up: the axis that it calls vertical, as "y", "+y" or "-y"; "" where it names none.

        Raises:
            FileError: the fields do not fit together.
        """
        n = len(self.means)
        if self.scales.shape == (n, 1):  # as large along every axis (SplaTAM)
            self.scales = np.repeat(self.scales, 3, axis=1)
        k = self.shN.shape[1] if self.shN.ndim == 3 else -1
        if k not in SH_REST:
            raise FileError(f"shN has shape {tuple(self.shN.shape)}; legal are (N, 0 | 3 | 8 | 15 | 24, 3)")
        legal = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 3),
                 "shN": (n, k, 3)}
        arrays: dict[str, np.ndarray] = {}
        for name, shape in legal.items():
            a = getattr(self, name)
            if a.shape != shape:
                raise FileError(f"{name} has shape {tuple(a.shape)}; {shape} is needed with {n} Gaussians")
            if a.dtype.kind not in "fiu":
                raise FileError(f"{name} holds {a.dtype}, not numbers")
            wide = name == "means" and a.dtype == np.float64
            arrays[name] = np.require(a, np.float64 if wide else np.float32, ["C", "W"])
        word = str(mode).lower()
        if word not in MODES:
            known = ", ".join(filter(None, MODES))
            notes += (f"render mode {clipped(word)!r} is unknown (known: {known}); drawn as default",)
        upward = UPS.get(up if up[:1] in ("+", "-") else f"+{up}")
        if up and upward is None:
            notes += (f"vertical axis {clipped(up)!r} is unknown (known: {', '.join(UPS)}); up is guessed",)
        stored = SH_REST.index(k)
        degree = stored if sh_degree is None else max(0, min(sh_degree, stored))
        return Fields(**arrays, sh_degree=degree, antialiased=MODES.get(word, False), notes=notes, up=upward)


def read_exact(f: BinaryIO, size: int, what: str) -> bytes:
    """`size` bytes from where `f` stands, after a look at what is left: a lying header allocates nothing.

    Raises:
        FileError: the file ends earlier, or the memory that is free does not hold so many.
    """
    left = remaining(f)
    if size > left:
        raise FileError(f"truncated: {what} takes {size:,} bytes, the file has {left:,} left")
    check_memory(size, f"{size:,} bytes of {what}")
    data = f.read(size)
    if len(data) != size:
        raise FileError(f"truncated while it was read: {what} takes {size:,} bytes, {len(data):,} came")
    return data


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose directory is small.

    Raises:
        FileError: damaged, or with more entries than a scene has.
    """
    import zipfile  # with its codecs 15 ms, which a PLY need not wait for

    with open(path, "rb") as file:
        bounded = _Directory(file)
        try:
            archive = zipfile.ZipFile(bounded)  # type: ignore[arg-type]
        except (OSError, FileError):
            raise
        # A damaged directory: bad numbers and texts, versions and encryptions that do not exist.
        except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, OverflowError, EOFError,
                struct.error, IndexError) as e:
            raise FileError(f"damaged or truncated zip: {e}") from None
        bounded.most = None
        with archive:
            if len(archive.infolist()) > ZIP_ENTRIES:
                raise FileError(f"a zip of {len(archive.infolist()):,} entries; at most {ZIP_ENTRIES:,} are read")
            yield archive


class _Directory:
    """A file that refuses to be read in large pieces while zipfile reads the directory, which it reads as one.

    zipfile makes an object of 500 bytes for each 46 bytes of the directory, and takes 10 us for it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.most: int | None = ZIP_DIRECTORY
        self.seek, self.tell, self.close, self.seekable = file.seek, file.tell, file.close, file.seekable

    def read(self, size: int = -1) -> bytes:
        if self.most is not None and size > self.most:
            raise FileError(f"a zip with a directory of {size:,} bytes; at most {self.most:,} are read")
        return self._file.read(size)


def remaining(f: BinaryIO) -> int:
    """Bytes from where the file stands to its end."""
    here = f.tell()
    end = f.seek(0, os.SEEK_END)
    f.seek(here)
    return end - here


def quats_from_smallest_three(largest: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Quaternions (N, 4) whose component `largest` (N,) was left out because unit length gives it.

    `rest` (N, 3) are the other components in order; what is left out is taken as positive.
    """
    out = np.empty((len(rest), 4), np.float32)
    missing = np.sqrt(np.maximum(0, 1 - np.einsum("ij,ij->i", rest, rest)))
    for i in range(4):
        rows = np.flatnonzero(largest == i)
        others = [c for c in range(4) if c != i]
        out[rows, i] = missing[rows]
        out[rows[:, None], others] = rest[rows]
    return out


class SceneAnswer(msgspec.Struct, frozen=True, tag="scene"):
    """A scene from the sandbox; its arrays are those of FIELDS."""

    sh_degree: Annotated[int, Meta(ge=0, le=4)]
    antialiased: bool
    notes: Annotated[list[Annotated[str, Meta(max_length=2000)]], Meta(max_length=64)]
    up: tuple[float, float, float] | None = None


def answer_of(fields: Fields) -> tuple[SceneAnswer, list[np.ndarray]]:
    """Return a scene as the sandbox hands it over."""
    notes = [note[:2000] for note in fields.notes[:64]]
    return SceneAnswer(fields.sh_degree, fields.antialiased, notes, fields.up), fields.arrays


def fields_of(answer: SceneAnswer, arrays: list[np.ndarray]) -> Fields:
    """Return a scene from the sandbox. Raises FileError where its arrays do not fit together."""
    n = len(arrays[0]) if len(arrays) == len(FIELDS) and arrays[0].ndim else -1
    k = arrays[5].shape[1] if n >= 0 and arrays[5].ndim == 3 else -1
    shapes = (n, 3), (n, 4), (n, 3), (n,), (n, 3), (n, k, 3)
    if answer.up not in (None, *UPS.values()):
        raise FileError(f"the program that read it described {answer.up} as up; legal are directions of one axis")
    if k not in SH_REST or answer.sh_degree > SH_REST.index(k) or any(
            a.shape != shape or (a.dtype != np.float32 and (a.dtype != np.float64 or a is not arrays[0]))
            for a, shape in zip(arrays, shapes, strict=True)):
        raise FileError("the program that read it described a scene whose arrays do not fit together")
    return Fields(*arrays, sh_degree=answer.sh_degree, antialiased=answer.antialiased, notes=tuple(answer.notes),
                  up=answer.up)
