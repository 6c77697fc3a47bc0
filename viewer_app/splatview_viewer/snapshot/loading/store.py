"""Keeps a snapshot as aligned arrays: from the sandbox, or in a file of the user's cache.

A file of the cache, which is mapped, holds

    the arrays, each at a multiple of 64 bytes
    the description: `sandbox.Done` as JSON
    its length (uint64), then MAGIC

Both sources are untrusted: numbers that are used as indices are checked. A file in the
cache is named by the path, the size and the time of the snapshot that it was made of.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta

from splatview_ipc.system.files import cache_folder, make_private, output_file
from splatview_viewer.core.errors import FileError
from splatview_viewer.formats.sandbox import (
    Done,
    decode_answer,
    map_arrays,
    write_columns,
)
from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    SIZE_LIMIT,
    SPAN_LIMIT,
    Allocations,
    Annotation,
    BlockTable,
    Events,
    MemorySnapshot,
    Segments,
    Spans,
    Stacks,
    Texts,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAGIC = b"splatview.mem.5\n"
TAIL = struct.Struct("<Q16s")
TABLES = {
    "events": Events,
    "allocations": Allocations,
    "spans": Spans,
    "segments": Segments,
    "blocks": BlockTable,
}
"""The tables of each device."""


def _column_dtypes(table: type) -> dict[str, str]:
    """Return the dtypes of a dataclass's columns, from their annotations."""
    hints = get_type_hints(table, include_extras=True)
    return {column: hint.__metadata__[0] for column, hint in hints.items()}


DTYPES: dict[str, dict[str, str]] = {
    "texts": _column_dtypes(Texts),
    "stacks": _column_dtypes(Stacks),
    **{name: _column_dtypes(table) for name, table in TABLES.items()},
    "annotations": {"json": "u1"},
}
"""The arrays of a snapshot and their dtypes, little endian. Rows of the devices lie one
after the other."""
MAX_CACHE_BYTES = 8 << 30
"""Bytes of all files in the cache folder; those not used for longest are removed."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 2)]
Stream = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class DeviceEntry(msgspec.Struct, frozen=True):
    """One device of a snapshot, and how many rows of each of TABLES it has."""

    device: Annotated[int, Meta(ge=-(2**15), lt=2**15)]
    rows: tuple[Count, Count, Count, Count, Count]


class SnapshotAnswer(msgspec.Struct, frozen=True, tag="snapshot"):
    """The description of a snapshot; its arrays are those of DTYPES."""

    devices: list[DeviceEntry]
    streams: list[Stream]
    pools: list[tuple[int, int]]
    settings: dict[str, str]
    notes: list[str]
    file_bytes: Annotated[int, Meta(ge=0)]


def pack(snapshot: MemorySnapshot) -> tuple[SnapshotAnswer, list[np.ndarray]]:
    """Return a snapshot as its description and its arrays."""
    devices = []
    for trace in snapshot.traces:
        row_counts = tuple(len(getattr(trace, table)) for table in TABLES)
        devices.append(DeviceEntry(trace.device, row_counts))  # type: ignore[arg-type]
    answer = SnapshotAnswer(
        devices=devices,
        streams=list(snapshot.streams),
        pools=list(snapshot.pools),
        settings=snapshot.settings,
        notes=list(snapshot.notes),
        file_bytes=snapshot.file_bytes,
    )
    arrays = [
        _join_column(snapshot, table, column, dtype)
        for table, column, dtype in _all_columns()
    ]
    return answer, arrays


def _all_columns() -> Iterable[tuple[str, str, str]]:
    """Yield the table, the name and the dtype of each array of DTYPES."""
    for table, columns in DTYPES.items():
        for column, dtype in columns.items():
            yield table, column, "<" + dtype


def _join_column(
    snapshot: MemorySnapshot, table: str, column: str, dtype: str
) -> np.ndarray:
    """Return one array of DTYPES: the column of all devices."""
    if table == "annotations":
        return np.frombuffer(msgspec.json.encode(snapshot.annotations), np.uint8)
    if table not in TABLES:
        return getattr(getattr(snapshot, table), column).astype(dtype, copy=False)
    pieces = [getattr(getattr(trace, table), column) for trace in snapshot.traces]
    if len(pieces) == 1:
        return pieces[0].astype(dtype, copy=False)
    joined = np.concatenate([np.zeros(0, dtype), *pieces])
    return joined.astype(dtype, copy=False)


Columns = dict[str, dict[str, np.ndarray]]
"""Arrays by table and column."""


def unpack(
    answer: SnapshotAnswer, arrays: list[np.ndarray], name: str
) -> MemorySnapshot:
    """Return the snapshot of a description and its arrays.

    Raises:
        FileError: they do not fit together.
    """
    columns = _check_arrays(arrays)
    texts = Texts(**columns["texts"])
    stacks = Stacks(**columns["stacks"])
    _check(answer.pools[:1] == [(0, 0)], "pools")
    _check_stacks(texts, stacks)
    for i, table in enumerate(TABLES):
        row_count = sum(device.rows[i] for device in answer.devices)
        is_complete = all(len(a) == row_count for a in columns[table].values())
        _check(is_complete, f"rows of {table}")
    shared_limits = {
        "stream": len(answer.streams),
        "stack": len(stacks),
        "context": len(texts),
        "metadata": len(texts),
        "pool": len(answer.pools),
    }
    traces: list[Trace] = []
    offsets = dict.fromkeys(TABLES, 0)
    for device in answer.devices:
        device_columns = _slice_device(device, columns, offsets)
        traces.append(_checked_trace(device, device_columns, shared_limits))
    encoded_annotations = columns["annotations"]["json"].tobytes()
    return MemorySnapshot(
        name=name,
        traces=tuple(traces),
        texts=texts,
        stacks=stacks,
        streams=tuple(answer.streams),
        pools=tuple(answer.pools),
        annotations=decode_answer(encoded_annotations, tuple[Annotation, ...]),
        settings=answer.settings,
        notes=tuple(answer.notes),
        file_bytes=answer.file_bytes,
    )


def _check_arrays(arrays: list[np.ndarray]) -> Columns:
    """Return the arrays by table and column, read-only. Raises FileError."""
    expected = list(_all_columns())
    _check(len(arrays) == len(expected), "arrays")
    columns: Columns = {table: {} for table in DTYPES}
    for (table, column, dtype), array in zip(expected, arrays, strict=True):
        is_expected = array.ndim == 1 and array.dtype == np.dtype(dtype)
        _check(is_expected, f"{table}.{column}")
        array.flags.writeable = False
        columns[table][column] = array
    return columns


def _check_stacks(texts: Texts, stacks: Stacks) -> None:
    """Raise FileError unless offsets and indices of texts and stacks are legal."""
    for offsets, values in ((texts.start, texts.blob), (stacks.start, stacks.frames)):
        is_bounded = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(values)
        _check(is_bounded and (np.diff(offsets) >= 0).all(), "offsets")
    _check(len(stacks.line) == len(stacks.name) == len(stacks.file), "stacks")
    _check_within(stacks.file, 0, len(texts), "stacks")
    _check_within(stacks.name, 0, len(texts), "stacks")
    _check_within(stacks.frames, 0, len(stacks.file), "stacks")


def _slice_device(
    device: DeviceEntry, columns: Columns, offsets: dict[str, int]
) -> Columns:
    """Return one device's rows of all tables, and advance the offsets of the tables."""
    device_columns: Columns = {}
    for table, row_count in zip(TABLES, device.rows, strict=True):
        start = offsets[table]
        end = start + row_count
        device_columns[table] = {
            column: array[start:end] for column, array in columns[table].items()
        }
        offsets[table] = end
    return device_columns


_LOWEST = {
    "stack": -1,
    "context": -1,
    "metadata": -1,
    "allocation": -1,
    "pool": -1,
    "start": -1,
}
"""The lowest legal value of columns in which -1 stands for none; of others it is 0."""


def _checked_trace(
    device: DeviceEntry, columns: Columns, shared_limits: dict[str, int]
) -> Trace:
    """Return the trace of one device's columns.

    Args:
        shared_limits: lengths of the tables that all devices share, by the columns that
            hold indices into them.

    Raises:
        FileError: a value is not legal.
    """
    event_count, allocation_count, _, _, block_count = device.rows
    limits = {
        **shared_limits,
        "allocation": allocation_count,
        "start": event_count,
        "end": event_count + 1,
        "freed": event_count + 1,
        "action": len(ACTIONS),
        "state": len(BLOCK_STATES),
        "type": len(SEGMENT_TYPES),
        "blocks": block_count + 1,
        "expandable": 2,
    }
    for table, table_columns in columns.items():
        for name, array in table_columns.items():
            # Every number of this type is legal.
            if array.dtype == np.uint64:
                continue
            if array.dtype == bool:
                values = array.view(np.uint8)
            else:
                values = array
            limit = limits.get(name, SIZE_LIMIT)
            _check_within(values, _LOWEST.get(name, 0), limit, f"{table}.{name}")
    rows = columns["allocations"]
    is_ordered = (rows["end"] > rows["start"]).all()
    is_ordered = is_ordered and (rows["freed"] >= rows["end"]).all()
    _check(is_ordered and _float_sum(rows["size"]) < SIZE_LIMIT, "allocations")
    _check(_float_sum(columns["spans"]["size"]) < SPAN_LIMIT, "spans")
    segment_blocks = columns["segments"]["blocks"].sum(dtype=np.int64)
    _check(segment_blocks == block_count, "segments.blocks")
    tables = {name: table(**columns[name]) for name, table in TABLES.items()}
    return Trace(device.device, **tables)  # type: ignore[arg-type]


def _float_sum(values: np.ndarray) -> float:
    """Return the sum of values as a float, which cannot overflow."""
    return float(np.sum(values, dtype=np.float64))


def _check(is_valid: Any, name: str) -> None:
    """Raise FileError unless the content that `name` stands for is valid."""
    if not is_valid:
        raise FileError(f"damaged: {name}")


def _check_within(values: np.ndarray, low: int, end: int, name: str) -> None:
    """Raise FileError unless all values are in low to end - 1."""
    if not len(values):
        return
    _check(low <= int(values.min()) and int(values.max()) < end, name)


# -- the cache folder ------------------------------------------------------------------


def columns_folder() -> Path | None:
    """Return the folder for columns, made if needed.

    None if it cannot be used: it must be the user's own.
    """
    try:
        path = cache_folder() / "snapshots" / "columns-v1"
        # What others could write into a folder stays in it when it is made private.
        if path.exists() and path.stat().st_mode & 0o022:
            return None
        make_private(path)
        status = path.lstat()
    except (OSError, RuntimeError):
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_mode & 0o022 or not os.access(path, os.W_OK | os.X_OK):
        return None
    return path


def cache_key(path: Path) -> str:
    """Return the name of a snapshot's columns. Raises OSError."""
    status = path.stat()
    identity = f"{status.st_size} {status.st_mtime_ns} {path.resolve()}"
    encoded = identity.encode("utf-8", "surrogateescape")
    return blake2b(encoded, digest_size=16).hexdigest()


def load_cached(folder: Path, key: str, name: str) -> MemorySnapshot | None:
    """Return the snapshot whose columns are in the cache folder, mapped, or None.

    Damaged columns are removed.
    """
    path = folder / f"{key}.columns"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        snapshot = _map_columns(fd, name)
        # The time of the last use decides which files are removed first.
        os.utime(fd)
        return snapshot
    except (FileError, OSError):
        path.unlink(missing_ok=True)
        return None
    finally:
        os.close(fd)


def _map_columns(fd: int, name: str) -> MemorySnapshot:
    """Return the snapshot of an open file of columns. Raises FileError, OSError."""
    size = os.fstat(fd).st_size
    _check(size >= TAIL.size, "columns")
    mapping = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
    length, magic = TAIL.unpack_from(mapping, size - TAIL.size)
    offset = size - TAIL.size - length
    # Otherwise the file is of another version, or was not written to its end.
    _check(magic == MAGIC and offset >= 0, "columns")
    done = decode_answer(mapping[offset : offset + length], Done)
    answer = decode_answer(bytes(done.answer), SnapshotAnswer)
    return unpack(answer, map_arrays(done.columns, mapping), name)


def save(
    folder: Path, key: str, answer: SnapshotAnswer, arrays: list[np.ndarray]
) -> None:
    """Write columns to the cache folder, and remove old ones if it becomes too large.

    Does nothing where that fails.
    """
    path = folder / f"{key}.columns"
    with contextlib.suppress(OSError):
        # A link would be followed.
        path.unlink(missing_ok=True)
        with output_file(path, private=True) as out:
            columns = write_columns(out.file, arrays)
            done = Done(msgspec.Raw(msgspec.json.encode(answer)), columns)
            description = msgspec.json.encode(done)
            out.file.write(description + TAIL.pack(len(description), MAGIC))
        _remove_oldest(folder, path)


def _remove_oldest(folder: Path, keep: Path) -> None:
    """Remove the files not used for longest until the rest is small enough."""
    # Includes files that were left half written.
    statuses = {path: path.lstat() for path in folder.iterdir()}
    total = sum(status.st_size for status in statuses.values())
    for path in sorted(statuses, key=lambda path: statuses[path].st_mtime):
        if total > MAX_CACHE_BYTES and path != keep:
            path.unlink()
            total -= statuses[path].st_size
