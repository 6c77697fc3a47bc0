"""A GPU's allocator that does what a test says: for publishing memory on a machine without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from support.memory_data import block, event, frame, segment, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30


class Allocator:
    """Stands where torch calls CUDA's. What its methods are called with, it keeps."""

    def __init__(self, gpus: int = 2) -> None:
        self.is_initialized = True
        """Whether CUDA is in use."""
        self.current = 0
        self.allocated = [0] * gpus
        self.peak = [0] * gpus
        self.reserved = [0] * gpus
        self.ooms = 0
        self.recorded: list[Any] = []
        self.recording = False
        self.observers: list[Callable[[int, int, int, int], None]] = []
        self.snapshots = 0
        self._queued: list[Callable[[], None]] = []

    def install(self, put: Callable[..., None]) -> Allocator:
        """`put(object, name, value)`: as setattr."""
        put(torch.cuda, "is_initialized", lambda: self.is_initialized)
        put(torch.cuda, "current_device", lambda: self.current)
        put(torch.cuda, "device_count", lambda: len(self.allocated))
        put(
            torch.cuda,
            "get_device_properties",
            lambda i: SimpleNamespace(name=f"GPU {i}", total_memory=80 * GIB),
        )
        put(
            torch.cuda,
            "_lazy_call",
            lambda call: call() if self.is_initialized else self._queued.append(call),
        )
        put(torch._C, "_cuda_memoryStats", self.stats)
        put(torch._C, "_cuda_isHistoryEnabled", lambda: self.recording)
        put(torch._C, "_cuda_attach_out_of_memory_observer", self.observers.append)
        put(torch.cuda.memory, "_record_memory_history", self.record)
        put(torch.cuda.memory, "_snapshot", self.snapshot)
        return self

    def initialize(self) -> None:
        """The trainer uses CUDA for the first time."""
        for call in self._queued:
            call()
        self.is_initialized = True

    def allocate(self, size: int, gpu: int = 0) -> None:
        self.allocated[gpu] += size
        self.peak[gpu] = max(self.peak[gpu], self.allocated[gpu])
        self.reserved[gpu] = max(self.reserved[gpu], self.allocated[gpu])

    def fail(self, size: int = GIB) -> None:
        """An allocation fails."""
        self.ooms += 1
        for observer in self.observers:
            observer(0, size, 80 * GIB, 5)

    def record(self, enabled: Any, **more: Any) -> None:
        self.recorded.append((enabled, more))
        self.recording = enabled is not None

    def stats(self, gpu: int) -> dict[str, Any]:
        def of(current: int, peak: int) -> dict[str, Any]:
            return {
                "all": {
                    "current": current,
                    "peak": peak,
                    "allocated": peak,
                    "freed": peak - current,
                }
            }

        allocated = of(self.allocated[gpu], self.peak[gpu])
        reserved = of(self.reserved[gpu], self.reserved[gpu])
        return {
            "allocated_bytes": allocated,
            "active_bytes": allocated,
            "requested_bytes": allocated,
            "reserved_bytes": reserved,
            "inactive_split_bytes": of(0, 0),
            "allocation": of(1, 2),
            "num_alloc_retries": 0,
            "num_ooms": self.ooms,
        }

    def snapshot(self) -> dict[str, Any]:
        """Of one live allocation that the trace saw."""
        self.snapshots += 1
        frames = [frame("step", 7)]
        trace = [
            event("alloc", 512, 4000, time_us=1_700_000_000_000_000, frames=frames)
        ]
        return snapshot(
            [],
            [
                segment(
                    512,
                    [block(512, 4096, requested=4000, frames=frames)],
                    segment_type="small",
                )
            ],
            device_traces=[trace, []],
        )
