"""Columns of the entries of a trace, and of segments and blocks."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.snapshot.loading.schema import (
    ADDRESS_END,
    BlockEntry,
    SegmentEntry,
    TraceEntry,
    convert_value,
    error_text,
)
from splatview_viewer.snapshot.model import (
    ACTIONS,
    BLOCK_STATES,
    SEGMENT_TYPES,
    SIZE_LIMIT,
    BlockTable,
    Events,
    Segments,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.snapshot.loading.bounds import Budget
    from splatview_viewer.snapshot.loading.interning import Tables

CHUNK = 4096
"""Events that are read together: few enough that the processor's cache holds them."""
ACTION = {name: i for i, name in enumerate(ACTIONS)}
STATE = {name: i for i, name in enumerate(BLOCK_STATES)} | {"active_awaiting_free": 2}
TYPE = {name: i for i, name in enumerate(SEGMENT_TYPES)}
OOM = ACTION["oom"]
COLUMNS = {
    "action": np.uint8,
    "addr": np.uint64,
    "size": np.uint64,
    "time_us": np.int64,
    "stream": np.int16,
    "pool": np.int16,
    "stack": np.int32,
    "context": np.int32,
    "metadata": np.int32,
}
"""Columns of `Events` that are read from entries, and their dtypes."""


def read_events(
    trace: list[Any],
    trace_name: str,
    tables: Tables,
    budget: Budget,
    on_read: Callable[[int], None],
) -> Events:
    """Read the columns of all entries of one device's trace.

    Args:
        trace_name: the trace's name in an error.
        on_read: called with how many entries are read.

    Raises:
        FileError: an entry is none, or the file names the same values too often.
    """
    columns = {name: np.empty(len(trace), dtype) for name, dtype in COLUMNS.items()}
    for first in range(0, len(trace), CHUNK):
        rows = trace[first : first + CHUNK]
        budget.check_entries(rows, trace_name)
        for name, values in _read_chunk(rows, trace_name, first, tables).items():
            columns[name][first : first + len(rows)] = values
        on_read(first + len(rows))
    return Events(**columns, allocation=np.full(len(trace), -1, np.int32))


def _read_chunk(
    rows: list[Any], trace_name: str, first: int, tables: Tables
) -> dict[str, np.ndarray]:
    """Return the columns of some entries. Raises FileError.

    Args:
        first: index of the first of them in the trace, for errors.
    """
    entries = _convert_entries(rows, trace_name, first)
    action = _index_column(entries, "action", _action_index)
    size, addr = _sizes_and_addresses(entries, action == OOM, trace_name, first)
    stacks = tables.stacks(
        [entry.frames for entry in entries],
        lambda i: f"{trace_name}[{first + i}].frames",
    )
    return {
        "action": action,
        "size": size,
        "addr": addr,
        "time_us": np.array([entry.time_us for entry in entries], np.int64),
        "stream": _index_column(entries, "stream", tables.stream),
        "pool": _index_column(entries, "pool_id", tables.pool),
        "context": _index_column(entries, "compile_context", tables.text),
        "metadata": _index_column(entries, "user_metadata", tables.text),
        "stack": stacks,
    }


def _action_index(name: str) -> int:
    """Return the index of an action in ACTIONS."""
    return ACTION.get(name, ACTION["other"])


def _convert_entries(rows: list[Any], trace_name: str, first: int) -> list[TraceEntry]:
    """Return some entries of a trace as objects. Raises FileError."""
    try:
        return msgspec.convert(rows, list[TraceEntry])
    except msgspec.ValidationError:
        # One by one, so that the error names the entry.
        return [
            convert_value(row, TraceEntry, f"{trace_name}[{first + i}]")
            for i, row in enumerate(rows)
        ]


def _index_column(
    entries: list[TraceEntry], attribute: str, index_of: Callable[[Any], int]
) -> np.ndarray:
    """Return the indices of an attribute's values, int32. Few of them are different."""
    values = list(map(attrgetter(attribute), entries))
    indices = {value: index_of(value) for value in dict.fromkeys(values)}
    return np.fromiter(map(indices.__getitem__, values), np.int32, len(values))


def _sizes_and_addresses(
    entries: list[TraceEntry], is_oom: np.ndarray, trace_name: str, first: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the sizes and addresses of entries, uint64. Raises FileError.

    The address of an oom is the memory that the driver still had.
    """
    addresses = [entry.addr for entry in entries]
    for i in np.flatnonzero(is_oom).tolist():
        device_free = entries[i].device_free
        if device_free is not None:
            addresses[i] = device_free
    try:
        size = np.array([entry.size for entry in entries], np.uint64)
        addr = np.array(addresses, np.uint64)
    except OverflowError:
        raise FileError(
            f"{trace_name}: a number is more than 2^64 in entry {first} or one of those "
            "after it"
        ) from None
    last = np.uint64(ADDRESS_END - 1)
    is_too_large = size > np.where(is_oom, last, np.uint64(SIZE_LIMIT - 1))
    is_too_high = addr > np.where(is_oom, last, last - size)
    is_invalid = is_too_large | is_too_high
    if is_invalid.any():
        i = int(is_invalid.argmax())
        raise FileError(
            f"{trace_name}[{first + i}]: {size[i]:,} bytes at {addr[i]:#x}; sizes are less "
            "than 2^62, and what has an address ends at 2^64"
        )
    return size, addr


def read_segments(
    entries: list[SegmentEntry], tables: Tables
) -> tuple[Segments, BlockTable]:
    """Read the segments and blocks of one device, in the order of their addresses.

    Raises:
        FileError: one of them is none.
    """
    rows = sorted(entries, key=attrgetter("address"))
    blocks = [block for row in rows for block in row.blocks or ()]
    for row in rows:
        _check_end(row.address, row.total_size)
    for block in blocks:
        _check_end(block.address, block.size)
    pools = [max(tables.pool(row.segment_pool_id), 0) for row in rows]
    stacks = tables.stacks(
        [row.frames for row in rows],
        lambda i: f"frames of the segment at {rows[i].address:#x}",
    )
    segments = Segments(
        addr=np.array([row.address for row in rows], np.uint64),
        total=np.array([row.total_size for row in rows], np.int64),
        allocated=np.array([row.allocated_size for row in rows], np.int64),
        active=np.array([row.active_size for row in rows], np.int64),
        requested=np.array([row.requested_size for row in rows], np.int64),
        stream=np.array([tables.stream(row.stream) for row in rows], np.int16),
        pool=np.array(pools, np.int16),
        type=np.array([_segment_type(row) for row in rows], np.uint8),
        expandable=np.array([row.is_expandable is True for row in rows], bool),
        stack=stacks,
        blocks=np.array([len(row.blocks or ()) for row in rows], np.int32),
    )
    return segments, _read_blocks(blocks, tables)


def _segment_type(row: SegmentEntry) -> int:
    """Return the index of a segment's type in SEGMENT_TYPES."""
    if type(row.segment_type) is not str:
        return TYPE["other"]
    return TYPE.get(row.segment_type, TYPE["other"])


def _check_end(address: int, size: int) -> None:
    """Raise FileError for memory that ends beyond the address space."""
    if address + size > ADDRESS_END:
        raise FileError(
            f"a segment or block at {error_text(address)} of {size:,} bytes: it ends "
            "beyond 2^64"
        )


def _read_blocks(rows: list[BlockEntry], tables: Tables) -> BlockTable:
    """Return the columns of blocks. Raises FileError."""
    stacks = tables.stacks(
        [row.frames for row in rows],
        lambda i: f"frames of the block at {rows[i].address:#x}",
    )
    requested = [
        row.size if row.requested_size is None else row.requested_size for row in rows
    ]
    states = [STATE.get(row.state, STATE["other"]) for row in rows]
    return BlockTable(
        addr=np.array([row.address for row in rows], np.uint64),
        size=np.array([row.size for row in rows], np.int64),
        requested=np.array(requested, np.int64),
        state=np.array(states, np.uint8),
        stack=stacks,
        allocation=np.full(len(rows), -1, np.int32),
    )
