"""A memory snapshot as columns of numbers. Read from files of PyTorch's by `loading`.

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

import functools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import numpy as np
from msgspec import Meta

from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

P = ParamSpec("P")
T = TypeVar("T")
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
    "annotate",
    "user_defined",
    "free",
    "other",
)
"""Kinds of events; `Events.action` holds the place in this list. "free" stands for both frees in some old files."""
BLOCK_STATES = ("inactive", "active_allocated", "active_pending_free", "other")
SEGMENT_TYPES = ("large", "small", "other")
NO_STACK = -1
UNKNOWN_POOL = -1
SIZE_LIMIT = 2**62
"""Sizes and times are smaller, so that sums of two do not overflow; but what was asked for in vain may be any size."""
SPAN_LIMIT = 2**61
"""The sizes of all reserved ranges of a device are together less."""
MIDDLE_ADDRESS = 1 << 63  # the first address in the upper half
HOST_DEVICE = -1
"""The device of pinned host memory. Where a file has several such traces, their devices are -1, -2 and so on."""


def signed(addr: np.ndarray) -> np.ndarray:
    """Return addresses uint64 less MIDDLE, int64: in the same order, and with differences that have a sign."""
    return (addr.astype(np.uint64, copy=False) ^ np.uint64(MIDDLE_ADDRESS)).view(
        np.int64
    )


def unsigned(addr: np.ndarray) -> np.ndarray:
    """Undo `signed`."""
    return addr.view(np.uint64) ^ np.uint64(MIDDLE_ADDRESS)


U1 = Annotated[np.ndarray, "u1"]
B1 = Annotated[np.ndarray, "b1"]
I2 = Annotated[np.ndarray, "i2"]
I4 = Annotated[np.ndarray, "i4"]
I8 = Annotated[np.ndarray, "i8"]
U8 = Annotated[np.ndarray, "u8"]


@dataclass(frozen=True, eq=False)
class Texts:
    """Many different texts in one array of bytes."""

    blob: U1
    """UTF-8"""
    start: I8
    """(n + 1,): where each text begins, and the end."""

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, index: int) -> str:
        """The text of this number; "" for negative ones, which stand for none."""
        if index < 0:
            return ""
        return (
            self.blob[self.start[index] : self.start[index + 1]]
            .tobytes()
            .decode("utf-8", "replace")
        )

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))


@dataclass(frozen=True)
class StackFrame:
    """One line of a stack."""

    file: str
    line: int
    name: str


@dataclass(frozen=True)
class Stacks:
    """Interned stacks. Frames: F of them, all different; stacks: S of them, all different."""

    file: I4
    """(F,): the number of the file's name in `Snapshot.texts`."""
    line: I4
    name: I4
    """(F,): the number of the function's name in `Snapshot.texts`."""
    start: I8
    """(S + 1,): where each stack begins in `frames`."""
    frames: I4
    """The frames of all stacks, innermost first."""

    def __len__(self) -> int:
        return len(self.start) - 1

    def frames_of(self, stack: int) -> np.ndarray:
        """The frames' numbers of a stack, innermost first; none for NO_STACK."""
        if stack >= 0:
            return self.frames[self.start[stack] : self.start[stack + 1]]
        return self.frames[:0]


@dataclass(frozen=True)
class ColumnTable:
    """Rows, in columns of one length."""

    addr: U8

    def __len__(self) -> int:
        return len(self.addr)


@dataclass(frozen=True)
class Events(ColumnTable):
    """The trace of one device; M rows. `addr` of an oom: what the driver still had (`device_free`)."""

    action: U1
    """A place in ACTIONS."""
    size: U8
    """Bytes requested; only of an oom 2^62 or more."""
    time_us: I8
    """Microseconds since the epoch; 0 where the file says none."""
    stream: I2
    """A place in `Snapshot.streams`."""
    pool: I2
    """A place in `Snapshot.pools`, or UNKNOWN_POOL."""
    stack: I4
    """NO_STACK where there is none."""
    context: I4
    metadata: I4
    """`compile_context` and `user_metadata`, numbers in `Snapshot.texts`; -1: none."""
    allocation: I4
    """The allocation that it begins, or asks to end, or ends; -1: none."""


@dataclass(frozen=True)
class Allocations(ColumnTable):
    """Allocations of one device; A rows, in the order of their ids."""

    size: I8
    """Bytes requested: the height of its band."""
    rounded: I8
    """Bytes of its block; 0: not known."""
    start: I4
    """The event that allocated it; -1: before the trace."""
    end: I4
    """The event that asked to free it (that freed it, where nothing else is told); M: still live."""
    freed: I4
    """The event that completed the free; M: none did."""
    stream: I2
    pool: I2
    """Told by its events or by the segment that it lies in."""
    stack: I4
    """Where it was allocated; NO_STACK where that is not known."""


@dataclass(frozen=True)
class Spans(ColumnTable):
    """Memory that was reserved, and when: one row for every range that was got from the driver at once."""

    size: I8
    start: I4
    """The event that reserved it; -1: before the trace."""
    end: I4
    """The event that gave it back; M: still there."""
    stream: I2
    pool: I2


@dataclass(frozen=True)
class Segments(ColumnTable):
    """The segments of one device as they were when the snapshot was taken."""

    total: I8
    """Bytes"""
    allocated: I8
    active: I8
    requested: I8
    stream: I2
    pool: I2
    type: U1
    """A place in SEGMENT_TYPES."""
    expandable: B1
    stack: I4
    blocks: I4
    """Number of its blocks."""


@dataclass(frozen=True)
class Blocks(ColumnTable):
    """The blocks of these segments, one behind the other."""

    size: I8
    """Rounded bytes"""
    requested: I8
    state: U1
    """A place in BLOCK_STATES."""
    stack: I4
    allocation: I4
    """The allocation that it holds; -1: none."""


@dataclass(frozen=True)
class Trace:
    """Everything about one device."""

    device: int
    """The GPU's index, or HOST_DEVICE and below for pinned host memory."""
    events: Events
    allocations: Allocations
    spans: Spans
    segments: Segments
    blocks: Blocks

    @property
    def moment_count(self) -> int:
        """M + 1."""
        return len(self.events) + 1


@dataclass(frozen=True)
class Annotation:
    """A remark of the program about itself (`external_annotations`): a profiler's record, an optimizer's step."""

    name: str = ""
    stage: str = ""
    """"START", "END" or whatever it says."""
    device: Annotated[int, Meta(ge=-1, lt=2**15)] = 0
    time_us: Annotated[int, Meta(ge=0, lt=SIZE_LIMIT)] = 0


@dataclass(frozen=True, eq=False)
class MemorySnapshot:
    """A snapshot. Its arrays are read-only, and may lie in a file that is mapped."""

    name: str
    """The file's name."""
    traces: tuple[Trace, ...]
    """One for each device that has events or segments, in the order of the devices; pinned host memory is last."""
    texts: Texts
    stacks: Stacks
    streams: tuple[int, ...]
    """The values of `cudaStream_t` that occur."""
    pools: tuple[tuple[int, int], ...]
    """The ids of memory pools that occur; the first is (0, 0), the default one. Others are private: of CUDA graphs, or
    of torch.cuda.MemPool."""
    annotations: tuple[Annotation, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    """`allocator_settings`, in words."""
    notes: tuple[str, ...] = ()
    """Remarks: entries that could not be read, allocations whose beginning is not known."""
    file_bytes: int = 0
    """The file's size when it is not compressed."""
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Answers of functions marked `kept`, made under `lock`. They do not refer to the snapshot."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def frame(self, frame_id: int) -> StackFrame:
        s = self.stacks
        return StackFrame(
            self.texts[int(s.file[frame_id])],
            int(s.line[frame_id]),
            self.texts[int(s.name[frame_id])],
        )

    def stack(self, stack_id: int) -> list[StackFrame]:
        """The frames of a stack, innermost first."""
        return [self.frame(int(f)) for f in self.stacks.frames_of(stack_id)]


def live_mask(trace: Trace, moment: int) -> np.ndarray:
    """bool (A,): which allocations are live at a moment."""
    a = trace.allocations
    return (a.start < moment) & (a.end >= moment)


def bytes_at_moments(
    moments: int, start: np.ndarray, end: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """int64 (M + 1,): the bytes at each moment of what is there at the moments start < k <= end."""
    change = np.zeros(moments + 1, np.int64)
    np.add.at(
        change, start.astype(np.intp) + 1, size
    )  # indices of any other type take twice as long
    np.subtract.at(change, end.astype(np.intp) + 1, size)
    return np.cumsum(change[:-1])


def live_bytes(trace: Trace) -> np.ndarray:
    """int64 (M + 1,): the bytes live at each moment."""
    a = trace.allocations
    return bytes_at_moments(trace.moment_count, a.start, a.end, a.size)


def peak_moment(trace: Trace) -> int:
    """The moment with most live bytes; the first of them."""
    return int(np.argmax(live_bytes(trace)))


def cached(function: Callable[P, T]) -> Callable[P, T]:
    """Keep what a function of a snapshot, or of a snapshot and one of its traces, answers as long as the snapshot."""

    @functools.wraps(function)
    def keeping(*args: P.args, **named: P.kwargs) -> T:
        snapshot: Any = args[0]
        key = (function, *(trace.device for trace in args[1:]))  # type: ignore[attr-defined]
        if key not in snapshot.cache:
            with snapshot.lock:
                if key not in snapshot.cache:
                    snapshot.cache[key] = function(*args, **named)
        return snapshot.cache[key]

    return keeping


def address_text(address: int) -> str:
    """ "0x7f2c40000000"."""
    return f"{address:#x}"


def device_text(device: int) -> str:
    """ "GPU 0", "pinned host memory", "pinned host memory 2"."""
    if device >= 0:
        return f"GPU {device}"
    return "pinned host memory" + (f" {-device}" if device < HOST_DEVICE else "")


def device_name(device: int) -> str:
    """Return the name by which a device is chosen: "0", "host", "host2"."""
    if device >= 0:
        return str(device)
    return "host" + (str(-device) if device < HOST_DEVICE else "")


def find_device(snapshot: MemorySnapshot, name: str) -> int:
    """Return the index in `Snapshot.traces` of the device of this name. Raises ViewerError where there is none."""
    names = [device_name(trace.device) for trace in snapshot.traces]
    if name.strip().lower() in names:
        return names.index(name.strip().lower())
    raise ViewerError(
        f"device {name[:40]!r} is not in the snapshot; it has {', '.join(names)}"
    )


def pool_text(pool: tuple[int, int] | None) -> str:
    """ "default pool", "private pool (0, 3)", "pool not known"."""
    if pool is None:
        return "pool not known"
    if tuple(pool) == (0, 0):
        return "default pool"
    return f"private pool ({pool[0]}, {pool[1]})"


def stream_text(stream: int) -> str:
    """ "default stream" for 0, "stream 7", "stream 0x55d0c1a2f0" for what is a pointer."""
    if stream == 0:
        return "default stream"
    return f"stream {stream}" if 0 < stream < 65536 else f"stream {stream:#x}"
