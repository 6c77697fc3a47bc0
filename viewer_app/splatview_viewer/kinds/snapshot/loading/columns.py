"""A snapshot as one file of columns, which is mapped and not read.

    0     MAGIC, then three uint64: where the header begins, how long it is, how long the file is; then its BLAKE2b
    64    the arrays, each at a multiple of 64 bytes
    ...   the header: JSON; "arrays" says where each begins, its dtype and its length

The header is written last, so that a file that is not whole is known as such. Whatever is read is checked: a file in
a cache folder comes from outside, and numbers that are used as places in arrays must be places there.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from dataclasses import fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.kinds.snapshot.loading.entries import LIMIT
from splatview_viewer.kinds.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    Allocations,
    Annotation,
    Blocks,
    Events,
    Segments,
    Snapshot,
    Spans,
    Stacks,
    Texts,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"splatview.mem.2\n"
HEAD = struct.Struct("<16sQQQ16s")
ALIGN = 64
MAX_HEADER = 64 << 20
DTYPES: dict[str, dict[str, str]] = {
    "stacks": {"file": "i4", "line": "i4", "name": "i4", "start": "i8", "frames": "i4"},
    "texts": {"blob": "u1", "start": "i8"},
    "events": {"action": "u1", "addr": "u8", "size": "u8", "time_us": "i8", "stream": "i2", "pool": "i2", "stack": "i4",
               "context": "i4", "metadata": "i4", "allocation": "i4"},
    "allocations": {"addr": "u8", "size": "i8", "rounded": "i8", "start": "i4", "end": "i4", "freed": "i4",
                    "stream": "i2", "pool": "i2", "stack": "i4"},
    "spans": {"addr": "u8", "size": "i8", "start": "i4", "end": "i4", "stream": "i2", "pool": "i2"},
    "segments": {"addr": "u8", "total": "i8", "allocated": "i8", "active": "i8", "requested": "i8", "stream": "i2",
                 "pool": "i2", "type": "u1", "expandable": "?", "stack": "i4", "block_start": "i4"},
    "blocks": {"addr": "u8", "size": "i8", "requested": "i8", "state": "u1", "stack": "i4", "allocation": "i4"},
}
"""The arrays of each part of a snapshot and their dtypes, little endian."""
PARTS = {"events": Events, "allocations": Allocations, "spans": Spans, "segments": Segments, "blocks": Blocks}


class DamagedError(FileError):
    """No file of columns, or a damaged one."""


def write(snapshot: Snapshot, fd: int, told: Callable[[float], None]) -> None:
    """Write a snapshot to the beginning of an empty file.

    Args:
        told: called with how far it is, 0 to 1.
    """
    arrays = [("texts", name, getattr(snapshot.texts, name)) for name in DTYPES["texts"]]
    arrays += [("stacks", name, getattr(snapshot.stacks, name)) for name in DTYPES["stacks"]]
    for i, trace in enumerate(snapshot.traces):
        for part in PARTS:
            arrays += [(f"{i}.{part}", name, getattr(getattr(trace, part), name)) for name in DTYPES[part]]
    total = sum(a.nbytes for _, _, a in arrays) or 1
    table: dict[str, list[Any]] = {}
    at, done = ALIGN, 0
    for part, name, a in arrays:
        dtype = np.dtype(DTYPES[part.rpartition(".")[2]][name]).newbyteorder("<")
        _write_all(fd, np.ascontiguousarray(a, dtype).data.cast("B") if a.size else b"", at)
        table[f"{part}.{name}"] = [at, dtype.str, len(a)]
        at += -(-a.size * dtype.itemsize // ALIGN) * ALIGN
        done += a.nbytes
        told(done / total)
    header = json.dumps({
        "arrays": table, "devices": [t.device for t in snapshot.traces], "streams": snapshot.streams,
        "pools": snapshot.pools, "settings": snapshot.settings, "notes": snapshot.notes,
        "file_bytes": snapshot.file_bytes,
        "annotations": [[a.name, a.stage, a.device, a.time_us] for a in snapshot.annotations]}).encode()
    _write_all(fd, header, at)
    _write_all(fd, HEAD.pack(MAGIC, at, len(header), at + len(header), blake2b(header, digest_size=16).digest()), 0)


def _write_all(fd: int, data: Any, at: int) -> None:
    while len(data):
        n = os.pwrite(fd, data[:1 << 26], at)
        data, at = data[n:], at + n


def read(fd: int, name: str) -> Snapshot:
    """The snapshot in a file of columns, mapped: its arrays are read-only. The file may be closed and removed then.

    Raises:
        DamagedError: it is none, is damaged, or of another version.
    """
    size = os.fstat(fd).st_size
    if size < HEAD.size:
        raise DamagedError(f"{size} bytes are no file of columns")
    with_map = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
    try:
        return _Reader(with_map, size).snapshot(name)
    except DamagedError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OverflowError,
            struct.error) as e:
        raise DamagedError(f"damaged: {type(e).__name__}: {e}") from None


class _Reader:
    def __init__(self, data: mmap.mmap, size: int) -> None:
        magic, at, length, total, digest = HEAD.unpack_from(data, 0)
        if magic != MAGIC or total != size or length > MAX_HEADER or at + length != size:
            raise DamagedError("no file of columns of this version, or not a whole one")
        header = data[at: at + length]
        if blake2b(header, digest_size=16).digest() != digest:
            raise DamagedError("damaged: the header is not the one that was written")
        self.data, self.end = data, at
        self.header: dict[str, Any] = json.loads(header)

    def array(self, part: str, name: str) -> np.ndarray:
        at, dtype, n = self.header["arrays"][f"{part}.{name}"]
        # not by newbyteorder(): where a dtype is not NumPy's own object, ufunc.at takes 100 times as long
        want = np.dtype("<" + DTYPES[part.rpartition(".")[2]][name])
        if dtype != want.str or type(at) is not int or type(n) is not int or at % ALIGN or not 0 <= n < 2**40 or (
                not HEAD.size <= at <= self.end - n * want.itemsize):
            raise DamagedError(f"damaged: {part}.{name} at {at!r} of {n!r} {dtype!r}")
        return np.frombuffer(self.data, want, n, at) if n else np.zeros(0, want)

    def part(self, part: str) -> dict[str, np.ndarray]:
        return {name: self.array(part, name) for name in DTYPES[part.rpartition(".")[2]]}

    def snapshot(self, name: str) -> Snapshot:
        h = self.header
        texts, stacks = Texts(**self.part("texts")), Stacks(**self.part("stacks"))
        streams = tuple(_checked_int(s) for s in h["streams"])
        pools = tuple((_checked_int(a), _checked_int(b)) for a, b in h["pools"])
        _offsets(texts.start, len(texts.blob), "texts.start")
        _offsets(stacks.start, len(stacks.frames), "stacks.start")
        for a, label in ((stacks.file, "stacks.file"), (stacks.name, "stacks.name")):
            _within(a, 0, len(texts), label)
        _within(stacks.frames, 0, len(stacks.file), "stacks.frames")
        if len({len(stacks.file), len(stacks.line), len(stacks.name)}) != 1 or pools[0] != (0, 0):
            raise DamagedError("damaged: frames or pools")
        traces: list[Trace] = []
        for i, device in enumerate(h["devices"]):
            parts = {p: self.part(f"{i}.{p}") for p in PARTS}
            self._check(parts, len(texts), len(stacks), len(streams), len(pools))
            traces.append(Trace(_checked_int(device), **{p: PARTS[p](**parts[p]) for p in PARTS}))  # type: ignore[arg-type]
        annotations = tuple(Annotation(str(a), str(s), _checked_int(d), _checked_int(t))
                            for a, s, d, t in h["annotations"])
        if type(h["settings"]) is not dict:
            raise DamagedError("damaged: settings")
        return Snapshot(name, tuple(traces), texts, stacks, streams, pools, annotations, h["settings"],
                        tuple(str(n) for n in h["notes"]), _checked_int(h["file_bytes"]))

    def _check(self, parts: dict[str, dict[str, np.ndarray]], texts: int, stacks: int, streams: int,
               pools: int) -> None:
        m, count = len(parts["events"]["action"]), len(parts["allocations"]["addr"])
        sizes = {name: (0, LIMIT) for name in ("size", "rounded", "time_us", "total", "allocated", "active",
                                              "requested")}
        every = {**sizes, "stream": (0, streams), "stack": (-1, stacks), "context": (-1, texts),
                 "metadata": (-1, texts), "allocation": (-1, count), "pool": (-1, pools), "start": (-1, m),
                 "end": (0, m + 1), "freed": (0, m + 1), "action": (0, len(ACTIONS)),
                 "state": (0, len(BLOCK_STATES)), "type": (0, len(SEGMENT_TYPES))}
        for part, columns in parts.items():
            n = len(columns["addr"])
            for name, a in columns.items():
                if name == "block_start":
                    _offsets(a, len(parts["blocks"]["addr"]), name)
                    a = a[1:]
                elif name == "expandable":
                    _within(a.view(np.uint8), 0, 2, name)
                elif a.dtype != np.uint64:  # in which every number is legal
                    _within(a, *every[name], f"{part}.{name}")
                if len(a) != n:
                    raise DamagedError(f"damaged: {part}.{name} has {len(a)} rows, not {n}")
        a = parts["allocations"]
        if bool((a["end"] <= a["start"]).any()) or bool((a["freed"] < a["end"]).any()):
            raise DamagedError("damaged: an allocation ends before it begins")
        if float(np.sum(a["size"], dtype=np.float64)) >= LIMIT:
            raise DamagedError("damaged: sizes")


def _checked_int(value: Any) -> int:
    if type(value) is not int or not -(2**64) < value < 2**64:
        raise DamagedError(f"damaged: {str(value)[:40]!r} is not a whole number")
    return value


def _within(a: np.ndarray, low: int, high: int, label: str) -> None:
    """Whether all numbers are in low to high - 1."""
    if len(a) and not (low <= int(a.min()) and int(a.max()) < high):
        raise DamagedError(f"damaged: {label} has numbers outside {low} to {high - 1}")


def _offsets(a: np.ndarray, end: int, label: str) -> None:
    if len(a) == 0 or int(a[0]) != 0 or int(a[-1]) != end or bool((np.diff(a) < 0).any()):
        raise DamagedError(f"damaged: {label}")


for _part, _class in {**PARTS, "stacks": Stacks}.items():
    assert set(DTYPES[_part]) == {f.name for f in fields(_class)}, _part
