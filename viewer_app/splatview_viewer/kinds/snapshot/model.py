"""What a memory snapshot is, as columns of numbers. Read from files of PyTorch's by `viewer_app.memory.loading`.

Words, used everywhere below:

event       one entry of a device's trace, numbered from 0 in the order of the trace; M events.
moment      the state between two events: moment k is the state after the first k events, 0 <= k <= M. Event e leads
            from moment e to moment e + 1.
allocation  memory that was handed out once: from its `alloc` to the request to free it. Its number (id) is its place
            in the order in which bands are stacked: what was there before the trace first, of that what stays longest
            lowest; then in the order in which they were allocated. It is live at the moments `start < k <= end`.
addr        an address, uint64.
size        what was requested, in bytes. `rounded` is what the allocator took for it; 0: not known.
live bytes  the sum of the sizes of what is live: PyTorch's `requested_bytes` of blocks that are `active_allocated`.
segment     memory that the allocator got from the driver. reserved bytes: the sum of all segments.
stack       where in the program something happened: frames, innermost first, as PyTorch lists them.

Schema: torch/cuda/memory.py (`_snapshot`) and torch/cuda/_memory_viz.py of PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
           "segment_unmap", "snapshot", "oom", "annotate", "user_defined", "free", "other")
"""What an event can be; `Events.action` holds the place in this list. "free" is how some old files say both frees."""
BLOCK_STATES = ("inactive", "active_allocated", "active_pending_free", "other")
SEGMENT_TYPES = ("large", "small", "other")
NO_STACK = -1
UNKNOWN_POOL = -1
LIMIT = 2**62
"""Sizes and times are smaller, so that sums of two do not overflow; but what was asked for in vain may be any size."""
MIDDLE = 1 << 63  # the first address in the upper half


def signed(addr: np.ndarray) -> np.ndarray:
    """Return addresses uint64 less MIDDLE, int64: in the same order, and with differences that have a sign."""
    return (addr.astype(np.uint64, copy=False) ^ np.uint64(MIDDLE)).view(np.int64)


def unsigned(addr: np.ndarray) -> np.ndarray:
    """Undo `signed`."""
    return addr.view(np.uint64) ^ np.uint64(MIDDLE)


class Texts:
    """Many different texts in one array of bytes."""

    def __init__(self, blob: np.ndarray, start: np.ndarray) -> None:
        """blob: uint8, UTF-8. start: int64 (n + 1,), where each text begins, and the end."""
        self.blob = blob
        self.start = start

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, index: int) -> str:
        """The text of this number; "" for negative ones, which stand for none."""
        if index < 0:
            return ""
        return self.blob[self.start[index]: self.start[index + 1]].tobytes().decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True)
class Frame:
    """One line of a stack."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Stacks:
    """Interned stacks. Frames: F of them, all different; stacks: S of them, all different."""

    file: np.ndarray
    """int32 (F,): the number of the file's name in `Snapshot.texts`."""
    line: np.ndarray
    """int32 (F,)"""
    name: np.ndarray
    """int32 (F,): the number of the function's name in `Snapshot.texts`."""
    start: np.ndarray
    """int64 (S + 1,): where each stack begins in `frames`."""
    frames: np.ndarray
    """int32: the frames of all stacks, innermost first."""

    def __len__(self) -> int:
        return len(self.start) - 1

    def of(self, stack: int) -> np.ndarray:
        """The frames' numbers of a stack, innermost first; none for NO_STACK."""
        return self.frames[self.start[stack]: self.start[stack + 1]] if stack >= 0 else self.frames[:0]


@dataclass(frozen=True)
class Events:
    """The trace of one device; M rows."""

    action: np.ndarray
    """uint8: a place in ACTIONS."""
    addr: np.ndarray
    """Of an oom, what the driver still had (`device_free`)."""
    size: np.ndarray
    """uint64, bytes requested; only of an oom 2^62 or more."""
    time_us: np.ndarray
    """int64, microseconds since the epoch; 0 where the file says none."""
    stream: np.ndarray
    """int16: a place in `Snapshot.streams`."""
    pool: np.ndarray
    """int16: a place in `Snapshot.pools`, or UNKNOWN_POOL."""
    stack: np.ndarray
    """int32, or NO_STACK."""
    context: np.ndarray
    """int32: `compile_context`, a number in `Snapshot.texts`; -1: none."""
    metadata: np.ndarray
    """int32: `user_metadata`, likewise."""
    allocation: np.ndarray
    """int32: the allocation that it begins, or asks to end, or ends; -1: none."""

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True)
class Allocations:
    """What was allocated on one device; A rows, in the order of their ids."""

    addr: np.ndarray
    size: np.ndarray
    """int64, bytes requested: the height of its band."""
    rounded: np.ndarray
    """int64, bytes of its block; 0: not known."""
    start: np.ndarray
    """int32: the event that allocated it; -1: before the trace."""
    end: np.ndarray
    """int32: the event that asked to free it (that freed it, where nothing else is told); M: still live."""
    freed: np.ndarray
    """int32: the event that completed the free; M: none did."""
    stream: np.ndarray
    """int16"""
    pool: np.ndarray
    """int16, told by its events or by the segment that it lies in."""
    stack: np.ndarray
    """int32: where it was allocated; NO_STACK where that is not known."""

    def __len__(self) -> int:
        return len(self.addr)


@dataclass(frozen=True)
class Spans:
    """Memory that was reserved, and when: one row for every range that was got from the driver at once."""

    addr: np.ndarray
    size: np.ndarray
    """int64"""
    start: np.ndarray
    """int32: the event that reserved it; -1: before the trace."""
    end: np.ndarray
    """int32: the event that gave it back; M: still there."""
    stream: np.ndarray
    pool: np.ndarray

    def __len__(self) -> int:
        return len(self.addr)


@dataclass(frozen=True)
class Segments:
    """The segments of one device as they were when the snapshot was taken."""

    addr: np.ndarray
    total: np.ndarray
    """int64, bytes"""
    allocated: np.ndarray
    active: np.ndarray
    requested: np.ndarray
    stream: np.ndarray
    pool: np.ndarray
    type: np.ndarray
    """uint8: a place in SEGMENT_TYPES."""
    expandable: np.ndarray
    """bool"""
    stack: np.ndarray
    block_start: np.ndarray
    """int32 (n + 1,): which of the blocks are a segment's."""

    def __len__(self) -> int:
        return len(self.addr)


@dataclass(frozen=True)
class Blocks:
    """The blocks of these segments, one behind the other."""

    addr: np.ndarray
    size: np.ndarray
    """int64, rounded bytes"""
    requested: np.ndarray
    state: np.ndarray
    """uint8: a place in BLOCK_STATES."""
    stack: np.ndarray
    allocation: np.ndarray
    """int32: the allocation that it holds; -1: none."""

    def __len__(self) -> int:
        return len(self.addr)


@dataclass(frozen=True)
class Trace:
    """Everything about one device."""

    device: int
    events: Events
    allocations: Allocations
    spans: Spans
    segments: Segments
    blocks: Blocks

    @property
    def moments(self) -> int:
        """M + 1."""
        return len(self.events) + 1


@dataclass(frozen=True)
class Annotation:
    """What the program said about itself (`external_annotations`): a profiler's record, an optimizer's step."""

    name: str
    stage: str
    """"START", "END" or whatever it says."""
    device: int
    time_us: int


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A snapshot. Its arrays are read-only, and may lie in a file that is mapped."""

    name: str
    """What people call it: the file's name."""
    traces: tuple[Trace, ...]
    """One for each device that has events or segments, in the order of the devices."""
    texts: Texts
    stacks: Stacks
    streams: tuple[int, ...]
    """The values of `cudaStream_t` that occur."""
    pools: tuple[tuple[int, int], ...]
    """The ids of memory pools that occur; the first is (0, 0), the default one. Others are private: of CUDA graphs, or
    of torch.cuda.MemPool."""
    annotations: tuple[Annotation, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    """`allocator_settings`, as JSON can hold it."""
    notes: tuple[str, ...] = ()
    """What should be known: entries that could not be read, allocations whose beginning is not known."""
    file_bytes: int = 0
    """The file's size when it is not compressed."""

    def frame(self, number: int) -> Frame:
        s = self.stacks
        return Frame(self.texts[int(s.file[number])], int(s.line[number]), self.texts[int(s.name[number])])

    def stack(self, number: int) -> list[Frame]:
        """The frames of a stack, innermost first."""
        return [self.frame(int(f)) for f in self.stacks.of(number)]
