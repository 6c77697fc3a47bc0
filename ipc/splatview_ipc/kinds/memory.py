"""Rules of samples of a process's memory.

"samples" (N, 13), float64, at most MEMORY_ROWS, the oldest first, in the order of MEMORY_COLUMNS; older rows stand for
several samples each. meta "device": "cuda:0", or "cpu" while only the host's memory is known; "gpu": its name, "total":
its bytes; "hz"; "snapshot": the name of the newest full snapshot (`splatview_ipc.control.memory_snapshots`), "" before
there is one; "snapshots": their count; "trouble": why there is less than there could be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.kinds import Spec

MEMORY_ROWS = 4096
"""The most rows of a frame of kind memory."""
MEMORY_COLUMNS = ("time", "step", "allocated", "low", "peak", "active", "requested", "reserved", "inactive_split",
                  "host", "allocations", "retries", "ooms")
"""time: seconds since the epoch, of the row's last sample. step: the caller's, -1 before the first. Bytes, as PyTorch's
allocator counts them: allocated, at that time, the least since the row before (low) and the most (peak); and the most
since the row before of active, requested, reserved, inactive_split. host: the most resident bytes of the process.
Counts since the process began: allocations, retries (of cudaMalloc, after cached memory was given back), ooms."""


def check(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    if set(tensors) != {"samples"}:
        raise ValueError(f"a memory frame holds 'samples' alone, not {sorted(tensors)}")
    dtype, shape = tensors["samples"]
    if dtype != "float64" or len(shape) != 2 or shape[1] != len(MEMORY_COLUMNS) or not 1 <= shape[0] <= MEMORY_ROWS:
        raise ValueError(f"samples are {dtype} of shape {shape}, not float64 of shape "
                         f"(1 to {MEMORY_ROWS}, {len(MEMORY_COLUMNS)})")
    for name, kind in (("device", str), ("gpu", str), ("snapshot", str), ("trouble", str), ("total", int),
                       ("snapshots", int)):
        if type(meta.get(name, kind())) is not kind:
            raise ValueError(f"{name!r} is {meta[name]!r}, not of type {kind.__name__}")
