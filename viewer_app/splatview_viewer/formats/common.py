"""The parts that readers share: formats, the decoded scene, bounds, decoding tables.

Each reader declares what it is about to decode, before it does. A scene has to fit the
file's size (`check_scene`): a file of a few hundred bytes is not one of millions of
Gaussians. And all has to fit the memory that is free (`check_memory`), which also holds
for files that are large in truth, or only on paper (sparse files).
"""

from __future__ import annotations

import errno
import io
import logging
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Meta

from splatview_ipc.kinds.gaussians import SH_REST_COUNTS
from splatview_ipc.system.free_memory import available_bytes
from splatview_viewer.core.errors import FileError, ViewerError
from splatview_viewer.scene.scene import FIELDS, UPS, GaussianScene

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path

log = logging.getLogger("splatview")

Progress = Callable[[str, float], None]
"""Called with what is going on and how far it is, 0 to 1."""

ZIP_MAGIC = b"PK\x03\x04"
GZIP_MAGIC = b"\x1f\x8b"
BOMB_BYTES = 64 << 20
"""Decoded bytes that any scene may have."""
BOMB_RATIO = 64
"""Decoded bytes that a scene may have per byte of a larger file. Measured, with float32
fields: .ply 1, .splat 1.8, compressed .ply 4, .spz 4 to 10, SOG 3 to 13: noise in
positions does not compress, and each Gaussian has 3 to 12 bytes of it in every format,
for at most 236 decoded bytes."""
UNPACKED_BYTES = 8 << 20
"""Bytes that are unpacked at a time."""
SHARE = 0.8
"""The part of the free memory that one file may take; the rest is for drawing it."""
JSON_GROWTH = 40
"""Bytes of Python objects per byte of JSON: `{"":0},` takes 7 bytes and becomes a
mapping of 240."""

SH_PROPERTIES = tuple(3 * k for k in SH_REST_COUNTS)
"""Numbers per Gaussian that the coefficients above degree 0 take, by the degree."""
MODES = {
    "mip": True,
    "antialiased": True,
    "true": True,
    "1": True,
    "": False,
    "default": False,
    "2dgs": False,
    "none": False,
    "false": False,
    "0": False,
}
"""Names in files for how a scene was trained: True for antialiased."""

_level = np.clip(np.arange(256, dtype=np.float64) / 255, 1e-6, 1 - 1e-6)
LOGIT_OF_BYTE = np.log(_level / (1 - _level)).astype(np.float32)
"""Logit opacity of an 8-bit alpha. 0 and 255 are moved in by a millionth so that every
entry is finite."""


@dataclass
class Start:
    """Evidence of the format of a file or folder."""

    path: Path
    """Opens it."""
    name: str
    """Its name for the user, which may be another than that of `path`."""
    head: bytes
    """The first bytes of a file; a folder has none."""

    @property
    def suffix(self) -> str:
        """The suffix of the name, in lower case, with the dot."""
        return os.path.splitext(self.name)[1].lower()

    @cached_property
    def plain_head(self) -> bytes:
        """The first bytes of the content, unpacked where the file is one of gzip."""
        if self.head[:2] != GZIP_MAGIC:
            return self.head
        try:
            return zlib.decompressobj(31).decompress(self.head, 4096)
        except zlib.error:
            return b""

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
    """Return True for content of this format."""
    read: Callable[[Path, Progress], Any]
    """Return the fields of a scene, a picture or a snapshot in a file or folder. Any
    exception is the file's fault."""
    by_suffix: bool = False
    """True if files with one of the suffixes are of this format where their content is
    of no other."""
    parts: Callable[[Path], list[Path]] = lambda path: [path]
    """Return the files that make the value of a file or folder; each that changes makes
    it another value."""


def silent(activity: str, fraction: float) -> None:
    """Report no progress."""


def fault_text(error: Exception) -> str:
    """Return the message for an exception of a reader.

    Readers name what they know to be wrong. For the rest there is this function: a
    damaged file can make zipfile, json, numpy, Pillow and torch raise nearly anything.
    """
    if isinstance(error, ViewerError):
        return str(error)
    if isinstance(error, OSError):
        if error.errno == errno.EFBIG:
            # Readers write into memory only, and to the kernel that is a file.
            return (
                "cannot be read: the limit on the size of files holds for the memory "
                "that this takes as well; raise it: ulimit -f unlimited"
            )
        return f"cannot be read: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "not enough memory to load it"
    log.debug("an exception that its reader does not name", exc_info=error)
    if isinstance(error, RecursionError):
        return "damaged: it is nested too deeply"
    cause = f"{type(error).__name__}: {str(error)[:200]}"
    return f"damaged, or not what its content claims ({cause})"


# -- the decoded scene -----------------------------------------------------------------


class SceneFileFacts(msgspec.Struct, frozen=True, tag="scene"):
    """A scene without its arrays, which are those of FIELDS."""

    sh_degree: Annotated[int, Meta(ge=0, le=4)] = 0
    antialiased: bool = False
    notes: Annotated[
        tuple[Annotated[str, Meta(max_length=2000)], ...], Meta(max_length=64)
    ] = ()
    up: tuple[float, float, float] | None = None
    customary_ups: Annotated[
        tuple[tuple[float, float, float], ...], Meta(max_length=6)
    ] = ()
    background: tuple[float, float, float] | None = None


@dataclass
class Fields:
    """A scene as a reader has decoded it, in NumPy arrays: readers import no torch."""

    means: np.ndarray
    quats: np.ndarray
    scales: np.ndarray
    opacities: np.ndarray
    sh0: np.ndarray
    shN: np.ndarray  # noqa: N815  (gsplat's own name for the field)
    _: KW_ONLY
    scene_facts: SceneFileFacts = field(default_factory=SceneFileFacts)

    @property
    def arrays(self) -> list[np.ndarray]:
        """The arrays in the order of `FIELDS`."""
        return [getattr(self, name) for name in FIELDS]

    def scene(self) -> GaussianScene:
        """Return checked fields as a scene, without copying the arrays."""
        return GaussianScene.of_arrays(
            *self.arrays, **msgspec.structs.asdict(self.scene_facts)
        )

    def checked(
        self,
        *,
        mode: object = "",
        up: str = "",
        customary_ups: Sequence[str] = (),
        sh_degree: int | None = None,
        notes: tuple[str, ...] = (),
    ) -> Fields:
        """Return the fields as contiguous float32, `means` also float64, checked.

        Args:
            mode: the file's name of how the scene was trained, see `MODES`; unknown
                names are reported in the notes.
            up: the file's name of the vertical, for `direction_of`; "" for none.
            customary_ups: names in `UPS` of what is upward in most files of its format.
            sh_degree: the degree in use; None for that of `shN`.
            notes: remarks of the reader on the file.

        Raises:
            FileError: the fields do not fit together.
        """
        self.scales = _three_scales(self.scales, len(self.means))
        coefficients = self.shN.shape[1] if self.shN.ndim == 3 else -1
        if coefficients not in SH_REST_COUNTS:
            raise FileError(
                f"shN has shape {tuple(self.shN.shape)}; expected (N, 0 | 3 | 8 | 15 "
                "| 24, 3)"
            )
        arrays = self._checked_arrays(coefficients)
        mode_name = str(mode).lower()
        if mode_name not in MODES:
            legal = ", ".join(filter(None, MODES))
            notes += (
                f"render mode {clipped(mode_name)!r} is unknown (known: {legal}); "
                "drawn as default",
            )
        upward = direction_of(up)
        if up and upward is None:
            notes += (
                f"vertical axis {clipped(up)!r} is unknown (known: {', '.join(UPS)}); "
                "up is guessed",
            )
        degree = SH_REST_COUNTS.index(coefficients)
        if sh_degree is not None:
            degree = max(0, min(sh_degree, degree))
        antialiased = MODES.get(mode_name, False)
        scene_facts = SceneFileFacts(
            sh_degree=degree,
            antialiased=antialiased,
            notes=notes,
            up=upward,
            customary_ups=tuple(UPS[name] for name in customary_ups),
        )
        return Fields(*arrays, scene_facts=scene_facts)

    def _checked_arrays(self, coefficients: int) -> list[np.ndarray]:
        """Return the arrays, contiguous and writable, in the order of `FIELDS`.

        Raises FileError where one has another shape than `means` asks for.
        """
        count = len(self.means)
        shapes: tuple[tuple[int, ...], ...] = (
            (count, 3),
            (count, 4),
            (count, 3),
            (count,),
            (count, 3),
            (count, coefficients, 3),
        )
        arrays: list[np.ndarray] = []
        for name, array, shape in zip(FIELDS, self.arrays, shapes, strict=True):
            if array.shape != shape:
                raise FileError(
                    f"{name} has shape {tuple(array.shape)}; {shape} is needed with "
                    f"{count} Gaussians"
                )
            if array.dtype.kind not in "fiu":
                raise FileError(f"{name} holds {array.dtype}, not numbers")
            is_wide = name == "means" and array.dtype == np.float64
            dtype = np.float64 if is_wide else np.float32
            arrays.append(np.require(array, dtype, ["C", "W"]))
        return arrays


def _three_scales(scales: np.ndarray, count: int) -> np.ndarray:
    """Return log scales (N, 3), of one for all axes (SplaTAM) or two of flat Gaussians.

    Others are returned as they are.
    """
    if scales.shape == (count, 1):
        return np.repeat(scales, 3, axis=1)
    if scales.shape == (count, 2):
        # The logarithm of a third scale of 0.
        flat = np.full((count, 1), -np.inf, np.float32)
        return np.concatenate([scales, flat], axis=1)
    return scales


def fields_of(scene_facts: SceneFileFacts, arrays: list[np.ndarray]) -> Fields:
    """Return a scene from the sandbox.

    Raises FileError where its arrays do not fit together.
    """
    if not _is_plausible(scene_facts, arrays):
        raise FileError("the program that read it described something that is no scene")
    fields = Fields(*arrays).checked(sh_degree=scene_facts.sh_degree)
    checked_facts = msgspec.structs.replace(
        scene_facts, sh_degree=fields.scene_facts.sh_degree
    )
    return Fields(*fields.arrays, scene_facts=checked_facts)


def _is_plausible(scene_facts: SceneFileFacts, arrays: list[np.ndarray]) -> bool:
    """Return whether an answer of the sandbox can be a scene."""
    if len(arrays) != len(FIELDS) or not arrays[0].ndim:
        return False
    if any(array.dtype.kind != "f" for array in arrays):
        return False
    ups = [*scene_facts.customary_ups]
    if scene_facts.up is not None:
        ups.append(scene_facts.up)
    if any(abs(math.hypot(*up) - 1) >= 1e-6 for up in ups):
        return False
    return all(0 <= value <= 1 for value in scene_facts.background or ())


def direction_of(text: str) -> tuple[float, float, float] | None:
    """Return the unit vector that a text names; None for other texts.

    Such a text is an axis, as "z", "+y" or "-y up", or three numbers.
    """
    axis = re.match(r"([+-]?) ?([xyz])\b", text)
    if axis is not None:
        return UPS[f"{axis[1] or '+'}{axis[2]}"]
    components = re.findall(r"[-+.\w]+", text[:200])
    try:
        x, y, z = map(float, components)
    except ValueError:
        return None
    length = math.hypot(x, y, z)
    if not 1e-6 < length < math.inf:
        return None
    return x / length, y / length, z / length


def quats_from_smallest_three(
    largest: np.ndarray, components: np.ndarray
) -> np.ndarray:
    """Return quaternions (N, 4) whose largest component was left out.

    Args:
        largest: (N,), the index of the component that unit length gives; it is taken
            as positive.
        components: (N, 3), the other components in order.
    """
    quats = np.empty((len(components), 4), np.float32)
    squares = np.einsum("ij,ij->i", components, components)
    missing = np.sqrt(np.maximum(0, 1 - squares))
    for i in range(4):
        rows = np.flatnonzero(largest == i)
        columns = [c for c in range(4) if c != i]
        quats[rows, i] = missing[rows]
        quats[rows[:, None], columns] = components[rows]
    return quats


# -- bounds ----------------------------------------------------------------------------


def scene_bytes(count: int, coefficients: int) -> int:
    """Return the bytes of `count` Gaussians as float32.

    Args:
        coefficients: per channel above degree 0.
    """
    return count * (14 + 3 * coefficients) * 4


def check_scene(
    count: int, coefficients: int, packed: int, *, growth: float = 2.4
) -> None:
    """Check a count of Gaussians against the file's size and the free memory.

    Args:
        count: what the file claims.
        coefficients: per channel above degree 0: 0, 3, 8, 15 or 24.
        packed: bytes of the file, or of all files of the scene.
        growth: the most memory that decoding takes, as a multiple of the finished
            scene's.

    Raises:
        FileError: more than a file of this size, or this machine, can hold.
    """
    size = scene_bytes(count, coefficients)
    if size > max(BOMB_BYTES, BOMB_RATIO * packed):
        raise FileError(
            f"truncated, or made to exhaust memory: {count:,} Gaussians take {size:,} "
            f"bytes, which {packed:,} packed bytes do not hold"
        )
    check_memory(int(size * growth), f"{count:,} Gaussians")


def check_memory(needed: int, subject: str) -> None:
    """Check bytes that are about to be taken against the free memory.

    Raises:
        FileError: names what is needed, what is free and the next step.
    """
    free = available_bytes()
    if free is None or needed <= SHARE * free:
        return
    raise FileError(
        f"{subject} need {_size_text(needed)} of memory, {_size_text(free)} are free: "
        "end other programs, raise the memory limit of this one, or make the file "
        "smaller"
    )


def _size_text(size: int) -> str:
    if size >= 1e9:
        return f"{size / 1e9:,.1f} GB"
    return f"{size / 1e6:,.0f} MB"


def check_json(length: int, subject: str) -> None:
    """Check a JSON text of `length` bytes before it is parsed. Raises FileError."""
    check_memory(JSON_GROWTH * length, subject)


def clipped(text: str) -> str:
    """Return the beginning of a text from a file, for a message."""
    if len(text) <= 40:
        return text
    return f"{text[:40]}..."


def remaining(f: BinaryIO) -> int:
    """Return the bytes from the file's position to its end."""
    position = f.tell()
    end = f.seek(0, os.SEEK_END)
    f.seek(position)
    return end - position


def read_exact(f: BinaryIO, size: int, subject: str) -> bytes:
    """Read the next `size` bytes of a file, checked before anything is allocated.

    Raises:
        FileError: the file ends earlier, or the memory that is free does not hold so
            many.
    """
    left = remaining(f)
    if size > left:
        raise FileError(
            f"truncated: {subject} takes {size:,} bytes, the file has {left:,} left"
        )
    check_memory(size, f"{size:,} bytes of {subject}")
    return f.read(size)


@contextmanager
def open_plain(path: Path, progress: Progress) -> Iterator[tuple[BinaryIO, int]]:
    """Open a file that may be in gzip; yield its content and its size.

    The content is seekable; the size is that of the file itself, in bytes.

    Raises:
        FileError: a damaged gzip file, or one that unpacks to more than any scene of
            its size.
    """
    with open(path, "rb") as f:
        packed = remaining(f)
        is_gzip = f.read(2) == GZIP_MAGIC
        f.seek(0)
        if is_gzip:
            yield _unpack(f, packed, progress), packed
        else:
            yield f, packed


def _unpack(f: BinaryIO, packed: int, progress: Progress) -> BinaryIO:
    """Unpack a gzip file of `packed` bytes into memory, in pieces. Raises FileError."""
    import gzip

    max_bytes = max(BOMB_BYTES, BOMB_RATIO * packed)
    content = io.BytesIO()
    try:
        with gzip.GzipFile(fileobj=f) as unpacker:
            while chunk := unpacker.read(UNPACKED_BYTES):
                size = content.tell() + len(chunk)
                if size > max_bytes:
                    raise FileError(
                        f"gzip: made to exhaust memory: {packed:,} bytes unpack to "
                        f"more than {max_bytes:,}"
                    )
                check_memory(len(chunk), f"{size:,} unpacked bytes")
                content.write(chunk)
                progress("unpacking", 0.0)
    except (OSError, EOFError, zlib.error) as e:
        raise FileError(f"gzip: damaged or truncated: {e}") from None
    content.seek(0)
    return content


def open_zip(path: Path) -> zipfile.ZipFile:
    """Open a zip. Raises FileError for a damaged one."""
    # With its codecs this takes 15 ms, which a PLY need not wait for.
    import zipfile

    try:
        return zipfile.ZipFile(path)
    except OSError:
        raise
    except Exception as e:
        # A damaged directory raises nearly anything.
        raise FileError(f"damaged or truncated zip: {e}") from None
