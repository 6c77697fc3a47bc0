"""Gaussians in NumPy's .npz, one array for each field (SplaTAM's params.npz).

Only the arrays that a scene needs are read, each checked against the size that its zip
entry claims and the memory that is free. Arrays of Python objects are refused: nothing
is unpickled.
"""

from __future__ import annotations

import itertools
import math
from typing import IO, TYPE_CHECKING

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.common import (
    BOMB_BYTES,
    BOMB_RATIO,
    Fields,
    Format,
    Progress,
    Start,
    check_memory,
    clipped,
    open_zip,
)
from splatview_viewer.formats.trainer_names import ALIASES, fields_from, find_tensors

if TYPE_CHECKING:
    import zipfile
    from pathlib import Path

_SUFFIX = ".npy"
_ALIASES = set(itertools.chain.from_iterable(ALIASES.values()))
"""Names of all fields."""
_MAX_HEADER = 10_000
"""Bytes of an array's description."""


def read_npz(path: Path, progress: Progress) -> Fields:
    """Read the Gaussians of an .npz."""
    arrays: dict[str, np.ndarray] = {}
    with open_zip(path) as archive:
        entries = {
            entry.filename.removesuffix(_SUFFIX): entry for entry in archive.infolist()
        }
        needed = {name: entries[name] for name in entries if name in _ALIASES}
        size = sum(entry.file_size for entry in needed.values())
        if size > max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size):
            raise FileError(
                f".npz: truncated, or made to exhaust memory: {size:,} bytes in it"
            )
        check_memory(3 * size, f"{size:,} bytes of arrays")
        for i, (name, entry) in enumerate(needed.items()):
            progress("reading arrays", i / len(needed))
            arrays[name] = _read_array(archive, entry, name)
    progress("reading arrays", 1.0)
    # Names of other entries are listed where the scene is incomplete.
    entry_names = dict.fromkeys(list(entries)[:16])
    saved = find_tensors({**entry_names, **arrays}, _is_array)
    return fields_from(saved.tensors, saved).checked()


def _read_array(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str
) -> np.ndarray:
    """Read one array of numbers as float32, or float64 where it is that.

    Raises FileError.
    """
    with archive.open(entry) as file:
        shape, is_fortran, dtype = _read_header(file, name)
        if dtype.hasobject or dtype.kind not in "fiu":
            raise FileError(f".npz: {clipped(name)} holds {dtype}, not numbers")
        size = math.prod(shape) * dtype.itemsize
        if size > entry.file_size:
            raise FileError(
                f".npz: {clipped(name)} of shape {shape} takes {size:,} bytes, its "
                f"entry has {entry.file_size:,}"
            )
        data = file.read(size)
    if len(data) != size:
        raise FileError(f".npz: truncated: {clipped(name)} has {len(data):,} bytes")
    order = "F" if is_fortran else "C"
    array = np.frombuffer(data, dtype).reshape(shape, order=order)
    if dtype == np.float64:
        return array.astype(np.float64)
    return array.astype(np.float32)


def _read_header(
    file: IO[bytes], name: str
) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Read shape, order and dtype of an array. Raises FileError."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            read = np.lib.format.read_array_header_1_0
        else:
            read = np.lib.format.read_array_header_2_0
        return read(file, max_header_size=_MAX_HEADER)
    except (ValueError, OSError, EOFError) as e:
        raise FileError(f".npz: {clipped(name)} is damaged: {str(e)[:200]}") from None


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _is_npz(start: Start) -> bool:
    means = {alias + _SUFFIX for alias in ALIASES["means"]}
    return not means.isdisjoint(start.zip_names)


NPZ = Format(
    "npz",
    (".npz",),
    "arrays of Gaussians under the names of trainers (SplaTAM's params.npz)",
    _is_npz,
    read_npz,
)
