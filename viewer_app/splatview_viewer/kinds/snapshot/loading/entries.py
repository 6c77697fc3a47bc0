"""The entries of traces, the segments and their blocks: from the dictionaries of a pickle to columns.

What has a wrong type is refused by name; keys that are not known are passed over; what older files lack is filled.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.kinds.snapshot.loading.stacks import Interner, shown
from splatview_viewer.kinds.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    UNKNOWN_POOL,
    Blocks,
    Events,
    Segments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CHUNK = 4096
"""Events that are read together: few enough that the processor's cache holds them."""
ACTION = {name: i for i, name in enumerate(ACTIONS)}
STATE = {name: i for i, name in enumerate(BLOCK_STATES)} | {"active_awaiting_free": 2}
TYPE = {name: i for i, name in enumerate(SEGMENT_TYPES)}
OTHER, OOM = ACTION["other"], ACTION["oom"]
NO_CONTEXT = ("", "N/A")
MAX_TABLE = 2**15 - 1
MAX_DEVICES = 1024
"""Traces of one file, at most."""
COLUMNS = {"action": np.uint8, "addr": np.uint64, "size": np.uint64, "time_us": np.int64, "stream": np.int16,
           "pool": np.int16, "stack": np.int32, "context": np.int32, "metadata": np.int32}
LIMIT = 2**62
"""Sizes and times are smaller, so that sums of two do not overflow; but what was asked for in vain may be any size."""
TOP = 2**64
"""Addresses, and the ends of what lies there, are smaller."""
NOWHERE = object()


@dataclass
class Tables:
    """What all devices share."""

    interner: Interner = field(default_factory=Interner)
    streams: dict[int, int] = field(default_factory=dict)
    pools: dict[tuple[int, int], int] = field(default_factory=lambda: {(0, 0): 0})

    def stream(self, value: Any, where: str) -> int:
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise FileError(f"{where} is {shown(value)}, not a whole number of 64 bits")
        return self._number(self.streams, value, where)

    def pool(self, value: Any, where: str) -> int:
        if value is None:
            return UNKNOWN_POOL
        if type(value) not in (tuple, list) or len(value) != 2 or any(type(v) is not int or not 0 <= v < 2**64
                                                                    for v in value):
            raise FileError(f"{where} is {shown(value)}, not a pair of whole numbers")
        return self._number(self.pools, tuple(value), where)

    @staticmethod
    def _number(table: dict[Any, int], value: Any, where: str) -> int:
        number = table.setdefault(value, len(table))
        if number > MAX_TABLE:
            raise FileError(f"{where}: the {MAX_TABLE + 2:,}th different one; at most {MAX_TABLE + 1:,} can be read")
        return number

    def context(self, value: Any, where: str) -> int:
        if value is None or value in NO_CONTEXT:
            return -1
        return self._text(value, where)

    def metadata(self, value: Any, where: str) -> int:
        return -1 if value is None or value == "" else self._text(value, where)

    def _text(self, value: Any, where: str) -> int:
        if type(value) is not str:
            raise FileError(f"{where} is {shown(value)}, not a text")
        return self.interner.text(value)


def whole(value: Any, where: str, top: int = LIMIT) -> int:
    """A number that is whole and not negative. Raises FileError."""
    if type(value) is not int:
        raise FileError(f"{where} is {shown(value)}, not a whole number")
    if not 0 <= value < top:
        raise FileError(f"{where} is {shown(value)}; legal is 0 to {top - 1:,}")
    return value


def listed(value: Any, where: str) -> list[Any]:
    """A list, or none. Raises FileError."""
    if value is None:
        return []
    if type(value) not in (list, tuple):
        raise FileError(f"{where} is {shown(value)}, not a list")
    return value


class TraceReader:
    """Reads the entries of one device's trace."""

    def __init__(self, trace: list[Any], device: int, tables: Tables) -> None:
        self.trace, self.device, self.tables = trace, device, tables
        self.done = 0
        self._parts: list[dict[str, Any]] = []

    def step(self) -> None:
        """Read the next entries."""
        rows = self.trace[self.done: self.done + CHUNK]
        part = _Chunk(rows, self.done, self.device, self.tables).read()
        self._parts.append({"rows": len(rows), **part})
        self.done += len(rows)

    def finish(self, told: Callable[[int], None], *, consume: bool) -> Events:
        """The columns of all entries.

        Args:
            told: called with how many are read.
            consume: let go of the entries meanwhile: the list holds None where they were.
        """
        while self.done < len(self.trace):
            first = self.done
            self.step()
            if consume:
                self.trace[first: self.done] = repeat(None, self.done - first)
            told(self.done)
        columns: dict[str, np.ndarray] = {}
        for name, dtype in COLUMNS.items():
            columns[name] = out = np.empty(self.done, dtype)
            at = 0
            for part in self._parts:
                out[at: at + part["rows"]] = part.pop(name)
                at += part["rows"]
        return Events(**columns, allocation=np.full(self.done, -1, np.int32))


class _Chunk:
    """Some entries of a trace."""

    def __init__(self, rows: list[Any], first: int, device: int, tables: Tables) -> None:
        self.rows, self.first, self.device, self.tables = rows, first, device, tables
        self.columns: dict[Any, list[Any]] | None = None

    def where(self, i: int, key: str = "") -> str:
        return f"device_traces[{self.device}][{self.first + i}]" + (f"[{key!r}]" if key else "")

    def read(self) -> dict[str, np.ndarray | int]:
        """Each column: an array, or the one number in all its rows."""
        if set(map(type, self.rows)) != {dict}:
            i = next(i for i, e in enumerate(self.rows) if type(e) is not dict)
            raise FileError(f"{self.where(i)} is {shown(self.rows[i])}, not a mapping")
        # Mostly all entries have the same keys in one order: all values at once are quicker than key by key.
        keys = list(self.rows[0])
        if list(chain.from_iterable(self.rows)) == keys * len(self.rows):
            flat = list(chain.from_iterable(map(dict.values, self.rows)))
            self.columns = {key: flat[i::len(keys)] for i, key in enumerate(keys)}
        action = self._actions()
        t = self.tables
        addr, size = self._numbers("addr", TOP, action), self._numbers("size", TOP)
        for i in np.flatnonzero((action != OOM) & ((size >= LIMIT) | (addr + size < addr))).tolist():
            whole(int(size[i]), self.where(i, "size"))
            whole(int(addr[i]), self.where(i, "addr"), TOP - int(size[i]))
        return {"action": action, "addr": addr, "size": size, "time_us": self._numbers("time_us"),
                "stream": self._table("stream", 0, t.stream), "pool": self._table("pool_id", None, t.pool),
                "context": self._table("compile_context", None, t.context),
                "metadata": self._table("user_metadata", None, t.metadata),
                "stack": t.interner.stacks(self._values("frames", None), lambda i: self.where(i, "frames"))}

    def _values(self, key: str, missing: Any) -> list[Any]:
        if self.columns is not None:
            values = self.columns.get(key)
            return [missing] * len(self.rows) if values is None else values
        return [e.get(key, missing) for e in self.rows]

    def _actions(self) -> np.ndarray:
        values = self._values("action", NOWHERE)
        if set(map(type, values)) != {str}:
            i = next(i for i, v in enumerate(values) if type(v) is not str)
            raise FileError(f"{self.where(i)} has no action" if values[i] is NOWHERE else
                            f"{self.where(i, 'action')} is {shown(values[i])}, not a text")
        return np.fromiter(map(ACTION.get, values, repeat(OTHER)), np.uint8, len(values))

    def _numbers(self, key: str, top: int = LIMIT, action: np.ndarray | None = None) -> np.ndarray:
        values = self._values(key, 0)
        if action is not None:
            for i in np.flatnonzero(action == OOM).tolist():  # it has no address, but what the driver still had
                values[i] = self.rows[i].get("device_free", values[i])
        try:
            out = np.frombuffer(array("Q", values), np.uint64)  # refuses whatever is no whole number of 64 bits
            if int(out.max()) < top:
                return out
        except (TypeError, OverflowError):
            pass
        return np.array([whole(v, self.where(i, key), top) for i, v in enumerate(values)], np.uint64)

    def _table(self, key: str, missing: Any, number: Callable[[Any, str], int]) -> np.ndarray | int:
        """A column of few different values: each is looked at once."""
        values = self._values(key, missing)
        try:
            if type(values[0]) in (str, int, tuple, type(None)) and values.count(values[0]) == len(values):
                return number(values[0], self.where(0, key))
            numbers = {v: number(v, "") for v in set(values)}
            return np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))
        except (TypeError, FileError):  # lists instead of tuples; or something wrong, which is named
            return np.array([number(v, self.where(i, key)) for i, v in enumerate(values)], np.int32)


def read_segments(entries: list[Any], tables: Tables, devices: Iterable[int]) -> dict[int, tuple[Segments, Blocks]]:
    """The segments and blocks by device, in the order of their addresses; of `devices` also where there are none."""
    by_device: dict[int, list[tuple[int, str, dict[str, Any]]]] = {device: [] for device in devices}
    for i, s in enumerate(entries):
        where = f"segments[{i}]"
        if type(s) is not dict:
            raise FileError(f"{where} is {shown(s)}, not a mapping")
        device = whole(s.get("device", 0), f"{where}['device']", 2**15)
        top = TOP - whole(s.get("total_size"), f"{where}['total_size']")
        by_device.setdefault(device, []).append((whole(s.get("address"), f"{where}['address']", top), where, s))
    return {device: _segments(sorted(rows, key=itemgetter(0)), tables) for device, rows in sorted(by_device.items())}


def _segments(rows: list[tuple[int, str, dict[str, Any]]], tables: Tables) -> tuple[Segments, Blocks]:
    table: list[tuple[Any, ...]] = []
    blocks: list[tuple[int, ...]] = []
    frames: list[Any] = []
    block_frames: list[Any] = []
    names: list[str] = []
    starts = [0]
    for address, where, s in rows:
        sizes = [whole(s.get(key, 0), f"{where}[{key!r}]") for key in ("allocated_size", "active_size",
                                                                      "requested_size")]
        kind = s.get("segment_type", "")
        pool = tables.pool(s.get("segment_pool_id"), f"{where}['segment_pool_id']")
        table.append((address, s["total_size"], *sizes, tables.stream(s.get("stream", 0), f"{where}['stream']"),
                      max(pool, 0), TYPE.get(kind, 2) if type(kind) is str else 2, s.get("is_expandable") is True))
        frames.append(s.get("frames"))
        at = address
        for j, b in enumerate(listed(s.get("blocks"), f"{where}['blocks']")):
            inner = f"{where}['blocks'][{j}]"
            row, stack = _block(b, inner, at)
            at = row[0] + row[1]
            blocks.append(row)
            block_frames.append(stack)
            names.append(inner)
        starts.append(len(blocks))
    columns = list(zip(*table, strict=True)) or [()] * 9
    addr = np.array(columns[0], np.uint64)
    total, allocated, active, requested = (np.array(c, np.int64) for c in columns[1:5])
    interner = tables.interner
    stack = interner.stacks(frames, lambda i: f"{rows[i][1]}['frames']")
    segments = Segments(addr, total, allocated, active, requested, np.array(columns[5], np.int16),
                        np.array(columns[6], np.int16), np.array(columns[7], np.uint8), np.array(columns[8], bool),
                        stack, np.array(starts, np.int32))
    b = np.array(blocks, np.uint64).reshape(-1, 4)
    block_addr, size, block_requested = b[:, 0].copy(), *(b[:, i].astype(np.int64) for i in (1, 2))
    block_stack = interner.stacks(block_frames, lambda i: f"{names[i]}['frames']")
    return segments, Blocks(block_addr, size, block_requested, b[:, 3].astype(np.uint8), block_stack,
                            np.full(len(b), -1, np.int32))


def _block(b: Any, where: str, at: int) -> tuple[tuple[int, int, int, int], Any]:
    """Address, size, requested size and state of a block, and its frames. `at`: where it begins if it does not say."""
    if type(b) is not dict:
        raise FileError(f"{where} is {shown(b)}, not a mapping")
    size = whole(b.get("size"), f"{where}['size']")
    state = b.get("state", "inactive")
    if type(state) is not str:
        raise FileError(f"{where}['state'] is {shown(state)}, not a text")
    frames, requested = b.get("frames"), b.get("requested_size")
    if requested is None or frames is None:  # as files of before 2023 say it
        old = listed(b.get("history"), f"{where}['history']")
        last = old[0] if old and type(old[0]) is dict else {}
        requested = last.get("real_size", size) if requested is None else requested
        frames = last.get("frames") if frames is None else frames
    return (whole(b.get("address", at), f"{where}['address']", TOP - size), size,
            whole(requested, f"{where}['requested_size']"), STATE.get(state, 3)), frames
