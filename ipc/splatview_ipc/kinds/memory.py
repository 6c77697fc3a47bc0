"""Rules for the frames of samples of a process's memory.

Tensors:

samples    (N, 13) float64, at most MEMORY_ROWS, the oldest first, with the columns
           MEMORY_COLUMNS; each of the older rows stands for several samples

Metadata:

device     "cuda:0", or "cpu" while only the host's memory is known
gpu        its name
total      its bytes of memory
hz         samples a second
snapshot   the name of the newest full snapshot
           (`splatview_ipc.control.memory_snapshots`), "" before the first one
snapshots  the number of full snapshots
trouble    why less is measured than could be
"""

from __future__ import annotations

from splatview_ipc.kinds.rules import (
    INT64_MAX,
    Meta,
    MetaRules,
    Rules,
    Tensors,
    check_extent,
    check_meta,
    check_tensors,
)

MEMORY_ROWS = 4096
"""The maximum number of rows of a frame of kind memory."""
MEMORY_COLUMNS = (
    "time",
    "step",
    "allocated",
    "low",
    "peak",
    "active",
    "requested",
    "reserved",
    "inactive_split",
    "host",
    "allocations",
    "retries",
    "ooms",
)
"""time: seconds since the epoch, of the row's last sample. step: the caller's, -1
before the first. Bytes, as PyTorch's allocator counts them: allocated, at that time,
the minimum since the previous row (low) and the maximum (peak); and the maximum since
the previous row of active, requested, reserved, inactive_split. host: the maximum of
resident bytes of the process. Counts since the process began: allocations, retries (of
cudaMalloc, after cached memory was released), ooms."""

_TENSOR_RULES: Rules = {"samples": (("float64",), ("rows", len(MEMORY_COLUMNS)))}
_META_RULES: MetaRules = {
    "device": (str, 0),
    "gpu": (str, 0),
    "snapshot": (str, 0),
    "trouble": (str, 0),
    "total": (int, INT64_MAX),
    "snapshots": (int, INT64_MAX),
}


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless tensors and metadata make a frame of memory samples."""
    extents = check_tensors("a frame of memory", tensors, _TENSOR_RULES, ("samples",))
    check_extent("rows", extents["rows"], MEMORY_ROWS, 1)
    check_meta(meta, _META_RULES)
