"""A snapshot as aligned arrays, from the sandbox or from a file in the user's cache folder, which is mapped.

    the arrays, each at a multiple of 64 bytes
    the description: `sandbox.Done` as JSON
    its length (uint64), then MAGIC

Both come from outside: numbers that are used as places in arrays must be places there. A file in the cache is named by
the path, the size and the time of the snapshot that it was made of.
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
from splatview_viewer.formats.sandbox import Done, arrays_of, decoded, write_columns
from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    SIZE_LIMIT,
    SPAN_LIMIT,
    Allocations,
    Annotation,
    Blocks,
    Events,
    MemorySnapshot,
    Segments,
    Spans,
    Stacks,
    Texts,
    Trace,
)

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"splatview.mem.5\n"
TAIL = struct.Struct("<Q16s")
TABLES = {
    "events": Events,
    "allocations": Allocations,
    "spans": Spans,
    "segments": Segments,
    "blocks": Blocks,
}
DTYPES: dict[str, dict[str, str]] = {
    name: {
        column: hint.__metadata__[0]
        for column, hint in get_type_hints(kind, include_extras=True).items()
    }
    for name, kind in {"texts": Texts, "stacks": Stacks, **TABLES}.items()
} | {"annotations": {"json": "u1"}}
"""The arrays of a snapshot and their dtypes, little endian; those of the devices one behind the other."""
MAX_CACHE_BYTES = 8 << 30
"""Bytes of all files in the cache folder; those not used for longest are removed."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 2)]
Stream = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class DeviceEntry(msgspec.Struct, frozen=True):
    """One device of a snapshot: its number, and how many rows of each of PARTS it has."""

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
    devices = [
        DeviceEntry(t.device, tuple(len(getattr(t, part)) for part in TABLES))  # type: ignore[arg-type]
        for t in snapshot.traces
    ]
    arrays = []
    for part, columns in DTYPES.items():
        if part in TABLES:
            owners = [getattr(t, part) for t in snapshot.traces]
        else:
            owners = [getattr(snapshot, part)]
        for name, dtype in columns.items():
            if part == "annotations":
                found = [
                    np.frombuffer(msgspec.json.encode(snapshot.annotations), np.uint8)
                ]
            else:
                found = [getattr(o, name) for o in owners]
            if len(found) == 1:
                whole = found[0]
            else:
                whole = np.concatenate([np.zeros(0, "<" + dtype), *found])
            arrays.append(whole.astype("<" + dtype, copy=False))
    return SnapshotAnswer(
        devices,
        list(snapshot.streams),
        list(snapshot.pools),
        snapshot.settings,
        list(snapshot.notes),
        snapshot.file_bytes,
    ), arrays


def unpack(
    answer: SnapshotAnswer, arrays: list[np.ndarray], name: str
) -> MemorySnapshot:
    """Return the snapshot of a description and its arrays. Raises FileError where they do not fit together."""
    wanted = [
        (part, column, np.dtype("<" + dtype))
        for part, columns in DTYPES.items()
        for column, dtype in columns.items()
    ]
    _check(len(arrays) == len(wanted), "arrays")
    found: dict[str, dict[str, np.ndarray]] = {part: {} for part in DTYPES}
    for (part, column, dtype), a in zip(wanted, arrays, strict=True):
        _check(a.ndim == 1 and a.dtype == dtype, f"{part}.{column}")
        a.flags.writeable = False
        found[part][column] = a
    texts = Texts(**found["texts"])
    stacks = Stacks(**found["stacks"])
    _check(answer.pools[:1] == [(0, 0)], "pools")
    for offsets, values in ((texts.start, texts.blob), (stacks.start, stacks.frames)):
        _check(
            len(offsets) > 0
            and offsets[0] == 0
            and offsets[-1] == len(values)
            and (np.diff(offsets) >= 0).all(),
            "offsets",
        )
    _check(len(stacks.line) == len(stacks.name) == len(stacks.file), "stacks")
    for numbers, top in (
        (stacks.file, len(texts)),
        (stacks.name, len(texts)),
        (stacks.frames, len(stacks.file)),
    ):
        _check_within(numbers, 0, top, "stacks")
    for i, part in enumerate(TABLES):
        rows = sum(d.rows[i] for d in answer.devices)
        _check(all(len(a) == rows for a in found[part].values()), f"rows of {part}")
    tops = {
        "stream": len(answer.streams),
        "stack": len(stacks),
        "context": len(texts),
        "metadata": len(texts),
        "pool": len(answer.pools),
    }
    traces: list[Trace] = []
    at = [0] * len(TABLES)
    for d in answer.devices:
        traces.append(
            _trace(
                d,
                {
                    part: {column: a[i : i + n] for column, a in found[part].items()}
                    for part, i, n in zip(TABLES, at, d.rows, strict=True)
                },
                tops,
            )
        )
        at = [i + n for i, n in zip(at, d.rows, strict=True)]
    annotations = decoded(
        found["annotations"]["json"].tobytes(), tuple[Annotation, ...]
    )
    return MemorySnapshot(
        name,
        tuple(traces),
        texts,
        stacks,
        tuple(answer.streams),
        tuple(answer.pools),
        annotations,
        answer.settings,
        tuple(answer.notes),
        answer.file_bytes,
    )


def _trace(
    device: DeviceEntry, parts: dict[str, dict[str, np.ndarray]], tops: dict[str, int]
) -> Trace:
    """One device's columns, checked. `tops`: the first number that is no place in the tables that all devices share."""
    m, count, _, _, blocks = device.rows
    lows = {
        "stack": -1,
        "context": -1,
        "metadata": -1,
        "allocation": -1,
        "pool": -1,
        "start": -1,
    }
    tops = {
        **tops,
        "allocation": count,
        "start": m,
        "end": m + 1,
        "freed": m + 1,
        "action": len(ACTIONS),
        "state": len(BLOCK_STATES),
        "type": len(SEGMENT_TYPES),
        "blocks": blocks + 1,
        "expandable": 2,
    }
    for part, columns in parts.items():
        for name, a in columns.items():
            if a.dtype != np.uint64:  # in which every number is legal
                _check_within(
                    a.view(np.uint8) if a.dtype == bool else a,
                    lows.get(name, 0),
                    tops.get(name, SIZE_LIMIT),
                    f"{part}.{name}",
                )
    a = parts["allocations"]
    _check(
        (a["end"] > a["start"]).all()
        and (a["freed"] >= a["end"]).all()
        and float(np.sum(a["size"], dtype=np.float64)) < SIZE_LIMIT,
        "allocations",
    )
    span_bytes = float(np.sum(parts["spans"]["size"], dtype=np.float64))
    _check(span_bytes < SPAN_LIMIT, "spans")
    _check(parts["segments"]["blocks"].sum(dtype=np.int64) == blocks, "segments.blocks")
    return Trace(
        device.device, **{part: TABLES[part](**parts[part]) for part in TABLES}
    )  # type: ignore[arg-type]


def _check(fine: Any, what: str) -> None:
    if not fine:
        raise FileError(f"damaged: {what}")


def _check_within(a: np.ndarray, low: int, top: int, what: str) -> None:
    """Raise FileError unless all numbers are in low to top - 1."""
    _check(not len(a) or (low <= int(a.min()) and int(a.max()) < top), what)


# -- the cache folder --------------------------------------------------------------------------------------------------


def columns_folder() -> Path | None:
    """Return the folder for columns, made if needed; None if it cannot be used: it must be the user's own."""
    try:
        path = cache_folder() / "snapshots" / "columns-v1"
        # What others could write into a folder stays in it when it is made private.
        if path.exists() and path.stat().st_mode & 0o022:
            return None
        make_private(path)
        s = path.lstat()
    except (OSError, RuntimeError):
        return None
    mine = (
        stat.S_ISDIR(s.st_mode) and s.st_uid == os.geteuid() and not s.st_mode & 0o022
    )
    return path if mine and os.access(path, os.W_OK | os.X_OK) else None


def cache_key(path: Path) -> str:
    """Return the name of a snapshot's columns. Raises OSError."""
    s = path.stat()
    return blake2b(
        f"{s.st_size} {s.st_mtime_ns} {path.resolve()}".encode(
            "utf-8", "surrogateescape"
        ),
        digest_size=16,
    ).hexdigest()


def load_cached(where: Path, key: str, name: str) -> MemorySnapshot | None:
    """Return the snapshot whose columns are in the cache folder, mapped, or None. Damaged columns are removed."""
    file = where / f"{key}.columns"
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(fd).st_size
        _check(size >= TAIL.size, "columns")
        room = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        length, magic = TAIL.unpack_from(room, size - TAIL.size)
        begin = size - TAIL.size - length
        _check(
            magic == MAGIC and begin >= 0, "columns"
        )  # else of another version, or not a whole one
        done = decoded(room[begin : begin + length], Done)
        snapshot = unpack(
            decoded(bytes(done.answer), SnapshotAnswer),
            arrays_of(done.columns, room),
            name,
        )
        os.utime(fd)  # used now
        return snapshot
    except (FileError, OSError):
        file.unlink(missing_ok=True)
        return None
    finally:
        os.close(fd)


def save(
    where: Path, key: str, answer: SnapshotAnswer, arrays: list[np.ndarray]
) -> None:
    """Write columns to the cache folder, and remove those that were not used for longest until the rest is small
    enough. Does nothing where that fails.
    """
    file = where / f"{key}.columns"
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)  # a link would be followed
        with output_file(file, private=True) as out:
            done = msgspec.json.encode(
                Done(
                    msgspec.Raw(msgspec.json.encode(answer)),
                    write_columns(out.file, arrays),
                )
            )
            out.file.write(done + TAIL.pack(len(done), MAGIC))
        used = {
            path: path.lstat() for path in where.iterdir()
        }  # also what was left half written
        total = sum(s.st_size for s in used.values())
        for path in sorted(used, key=lambda path: used[path].st_mtime):
            if total > MAX_CACHE_BYTES and path != file:
                path.unlink()
                total -= used[path].st_size
