"""An allocator of a GPU that a test drives, for publishing memory without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from support.memory_data import block, event, frame, segment, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30


def _statistic(current: int, peak: int) -> dict[str, Any]:
    freed = peak - current
    return {
        "all": {"current": current, "peak": peak, "allocated": peak, "freed": freed}
    }


class Allocator:
    """Replaces CUDA's allocator in torch, and keeps the arguments of its calls."""

    def __init__(self, gpus: int = 2) -> None:
        self.is_initialized = True
        """CUDA is in use."""
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
        """Install the allocator by `put(object, name, value)`, which is as setattr."""
        put(torch.cuda, "is_initialized", self._get_initialized)
        put(torch.cuda, "current_device", self._get_current)
        put(torch.cuda, "device_count", self._count_gpus)
        put(torch.cuda, "get_device_properties", self._properties)
        put(torch.cuda, "_lazy_call", self._call_when_initialized)
        put(torch._C, "_cuda_memoryStats", self.stats)
        put(torch._C, "_cuda_isHistoryEnabled", self._get_recording)
        put(torch._C, "_cuda_attach_out_of_memory_observer", self.observers.append)
        put(torch.cuda.memory, "_record_memory_history", self.record)
        put(torch.cuda.memory, "_snapshot", self.snapshot)
        return self

    def _get_initialized(self) -> bool:
        return self.is_initialized

    def _count_gpus(self) -> int:
        return len(self.allocated)

    def _get_current(self) -> int:
        return self.current

    def _get_recording(self) -> bool:
        return self.recording

    def _properties(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(name=f"GPU {gpu}", total_memory=80 * GIB)

    def _call_when_initialized(self, call: Callable[[], None]) -> None:
        if self.is_initialized:
            call()
        else:
            self._queued.append(call)

    def initialize(self) -> None:
        """Begin to use CUDA, as a trainer does some time after its start."""
        for call in self._queued:
            call()
        self.is_initialized = True

    def allocate(self, size: int, gpu: int = 0) -> None:
        self.allocated[gpu] += size
        self.peak[gpu] = max(self.peak[gpu], self.allocated[gpu])
        self.reserved[gpu] = max(self.reserved[gpu], self.allocated[gpu])

    def fail(self, size: int = GIB) -> None:
        """Let an allocation fail."""
        self.ooms += 1
        for observer in self.observers:
            observer(0, size, 80 * GIB, 5)

    def record(self, enabled: Any, **options: Any) -> None:
        self.recorded.append((enabled, options))
        self.recording = enabled is not None

    def stats(self, gpu: int) -> dict[str, Any]:
        allocated = _statistic(self.allocated[gpu], self.peak[gpu])
        reserved = _statistic(self.reserved[gpu], self.reserved[gpu])
        return {
            "allocated_bytes": allocated,
            "active_bytes": allocated,
            "requested_bytes": allocated,
            "reserved_bytes": reserved,
            "inactive_split_bytes": _statistic(0, 0),
            "allocation": _statistic(1, 2),
            "num_alloc_retries": 0,
            "num_ooms": self.ooms,
        }

    def snapshot(self) -> dict[str, Any]:
        """Make a snapshot of one live allocation that the trace saw."""
        self.snapshots += 1
        frames = [frame("step", 7)]
        time_us = 1_700_000_000_000_000
        trace = [event("alloc", 512, 4000, time_us=time_us, frames=frames)]
        blocks = [block(512, 4096, requested=4000, frames=frames)]
        segments = [segment(512, blocks, segment_type="small")]
        return snapshot([], segments, device_traces=[trace, []])
