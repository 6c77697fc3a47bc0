"""A memory snapshot as columns of numbers. `loading` reads one from PyTorch's files.

Words, used everywhere below:

event       one entry of a device's trace, numbered from 0 in the order of the trace; M
            events.
moment      the state between two events: moment k is the state after the first k events,
            0 <= k <= M. Event e leads from moment e to moment e + 1.
allocation  memory that was handed out once: from its `alloc` to the request to free it.
            Its id is its index in the order in which bands are stacked: what was there
            before the trace first, of that what stays longest lowest; then in the order
            in which they were allocated. It is live at the moments `start < k <= end`.
addr        an address, uint64.
size        the requested bytes. `rounded` is what the allocator took for it; 0: not known.
live bytes  the sum of the sizes of what is live: PyTorch's `requested_bytes` of blocks
            that are `active_allocated`.
segment     memory that the allocator got from the driver. reserved bytes: the sum of all
            segments.
stack       where in the program something happened: frames, innermost first, as PyTorch
            lists them.

Schema: torch/cuda/memory.py (`_snapshot`) and torch/cuda/_memory_viz.py of PyTorch.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, ParamSpec, TypeVar

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
"""Kinds of events; `Events.action` holds indices into this tuple.

"free" stands for both frees in some old files.
"""
BLOCK_STATES = ("inactive", "active_allocated", "active_pending_free", "other")
SEGMENT_TYPES = ("large", "small", "other")
NO_STACK = -1
UNKNOWN_POOL = -1
SIZE_LIMIT = 2**62
"""Sizes and times are smaller, so that sums of two do not overflow. The size of a request
that failed may be larger."""
SPAN_LIMIT = 2**61
"""The sizes of all reserved ranges of a device are together less."""
MIDDLE_ADDRESS = 1 << 63
"""The first address in the upper half."""
HOST_DEVICE = -1
"""The device of pinned host memory. Where a file has several such traces, their devices are
-1, -2 and so on."""


def signed(addr: np.ndarray) -> np.ndarray:
    """Return addresses uint64 less MIDDLE_ADDRESS, int64.

    The order stays, and differences have a sign.
    """
    return (addr.astype(np.uint64, copy=False) ^ np.uint64(MIDDLE_ADDRESS)).view(
        np.int64
    )


def unsigned(addr: np.ndarray) -> np.ndarray:
    """Return the addresses uint64 that `signed` returned as int64."""
    return addr.view(np.uint64) ^ np.uint64(MIDDLE_ADDRESS)


U1 = Annotated[np.ndarray, "u1"]
B1 = Annotated[np.ndarray, "b1"]
I2 = Annotated[np.ndarray, "i2"]
I4 = Annotated[np.ndarray, "i4"]
I8 = Annotated[np.ndarray, "i8"]
U8 = Annotated[np.ndarray, "u8"]


@dataclass(frozen=True, eq=False)
class Texts:
    """Different texts in one array of bytes."""

    blob: U1
    """Bytes of all texts, in UTF-8."""
    start: I8
    """(n + 1,): the offset at which each text begins, and the end."""

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, index: int) -> str:
        """Return the text of this index; "" for negative ones, which stand for none."""
        if index < 0:
            return ""
        encoded = self.blob[self.start[index] : self.start[index + 1]].tobytes()
        return encoded.decode("utf-8", "replace")

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
    """Interned stacks: F different frames, and S different stacks of them."""

    file: I4
    """(F,): index of the file's name in `MemorySnapshot.texts`."""
    line: I4
    name: I4
    """(F,): index of the function's name in `MemorySnapshot.texts`."""
    start: I8
    """(S + 1,): the index in `frames` at which each stack begins, and the end."""
    frames: I4
    """Ids of the frames of all stacks, innermost first."""

    def __len__(self) -> int:
        return len(self.start) - 1

    def frames_of(self, stack: int) -> np.ndarray:
        """Return the ids of a stack's frames, innermost first; none for NO_STACK."""
        if stack >= 0:
            return self.frames[self.start[stack] : self.start[stack + 1]]
        return self.frames[:0]


@dataclass(frozen=True)
class ColumnTable:
    """Rows as columns of one length."""

    addr: U8

    def __len__(self) -> int:
        return len(self.addr)


@dataclass(frozen=True)
class Events(ColumnTable):
    """The trace of one device; M rows.

    `addr` of an oom is the memory that the driver still had (`device_free`).
    """

    action: U1
    """Index into ACTIONS."""
    size: U8
    """Bytes requested; 2^62 or more for an oom only."""
    time_us: I8
    """Microseconds since the epoch; 0 where the file has none."""
    stream: I2
    """Index into `MemorySnapshot.streams`."""
    pool: I2
    """Index into `MemorySnapshot.pools`, or UNKNOWN_POOL."""
    stack: I4
    """Id of a stack; NO_STACK where there is none."""
    context: I4
    metadata: I4
    """`compile_context` and `user_metadata`, indices into `MemorySnapshot.texts`; -1: none."""
    allocation: I4
    """Id of the allocation that the event begins, asks to end, or ends; -1: none."""


@dataclass(frozen=True)
class Allocations(ColumnTable):
    """Allocations of one device; A rows, in the order of their ids."""

    size: I8
    """Bytes requested: the height of the allocation's band."""
    rounded: I8
    """Bytes of the block; 0: not known."""
    start: I4
    """The event that allocated it; -1: before the trace."""
    end: I4
    """The event that asked to free it, or that freed it where no request is recorded; M: still
    live."""
    freed: I4
    """The event that completed the free; M: there is none."""
    stream: I2
    pool: I2
    """From its events, or from the segment that it lies in."""
    stack: I4
    """Stack of the allocation; NO_STACK where it is not known."""


@dataclass(frozen=True)
class Spans(ColumnTable):
    """Reserved memory over time: one row for every range got from the driver at once."""

    size: I8
    start: I4
    """The event that reserved it; -1: before the trace."""
    end: I4
    """The event that returned it to the driver; M: still reserved."""
    stream: I2
    pool: I2


@dataclass(frozen=True)
class Segments(ColumnTable):
    """The segments of one device as they were when the snapshot was taken."""

    total: I8
    """Bytes of the segment, of its allocated and its active blocks, and those requested."""
    allocated: I8
    active: I8
    requested: I8
    stream: I2
    pool: I2
    type: U1
    """Index into SEGMENT_TYPES."""
    expandable: B1
    stack: I4
    blocks: I4
    """Number of blocks."""


@dataclass(frozen=True)
class BlockTable(ColumnTable):
    """The blocks of the segments, one segment after the other."""

    size: I8
    """Rounded bytes"""
    requested: I8
    state: U1
    """Index into BLOCK_STATES."""
    stack: I4
    allocation: I4
    """Id of the allocation that the block holds; -1: none."""


@dataclass(frozen=True)
class Trace:
    """The history of one device's memory: events, allocations, segments."""

    device: int
    """The GPU's index, or HOST_DEVICE and below for pinned host memory."""
    events: Events
    allocations: Allocations
    spans: Spans
    segments: Segments
    blocks: BlockTable

    @property
    def moment_count(self) -> int:
        """M + 1, one more than there are events."""
        return len(self.events) + 1


@dataclass(frozen=True)
class Annotation:
    """A remark of the program (`external_annotations`): a profiler's record, a step."""

    name: str = ""
    stage: str = ""
    """"START", "END" or another word of the file."""
    device: Annotated[int, Meta(ge=-1, lt=2**15)] = 0
    time_us: Annotated[int, Meta(ge=0, lt=SIZE_LIMIT)] = 0


@dataclass(frozen=True, eq=False)
class MemorySnapshot:
    """A memory snapshot. Its arrays are read-only, and may lie in a mapped file."""

    name: str
    """The file's name."""
    traces: tuple[Trace, ...]
    """One for each device that has events or segments, in the order of the devices; pinned
    host memory is last."""
    texts: Texts
    stacks: Stacks
    streams: tuple[int, ...]
    """The values of `cudaStream_t` that occur."""
    pools: tuple[tuple[int, int], ...]
    """The ids of memory pools that occur; the first is (0, 0), the default one. Others are
    private: of CUDA graphs, or of torch.cuda.MemPool."""
    annotations: tuple[Annotation, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    """`allocator_settings` as texts."""
    notes: tuple[str, ...] = ()
    """Remarks for the user: entries that could not be read, allocations whose beginning is
    not known."""
    file_bytes: int = 0
    """Bytes of the pickle, not compressed."""
    cache: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Results of functions marked `cached`, made under `lock`. They do not refer to the
    snapshot."""
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def frame(self, frame_id: int) -> StackFrame:
        """Return one line of a stack by its id."""
        stacks = self.stacks
        return StackFrame(
            file=self.texts[int(stacks.file[frame_id])],
            line=int(stacks.line[frame_id]),
            name=self.texts[int(stacks.name[frame_id])],
        )

    def pool(self, index: int) -> tuple[int, int] | None:
        """Return the id of a pool; None for UNKNOWN_POOL."""
        if index == UNKNOWN_POOL:
            return None
        return self.pools[index]

    def stack(self, stack_id: int) -> list[StackFrame]:
        """Return the frames of a stack, innermost first."""
        return [self.frame(int(f)) for f in self.stacks.frames_of(stack_id)]


def live_mask(trace: Trace, event_index: int) -> np.ndarray:
    """Return which allocations are live at a moment, bool (A,)."""
    allocations = trace.allocations
    return (allocations.start < event_index) & (allocations.end >= event_index)


def bytes_at_moments(
    moment_count: int, start: np.ndarray, end: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Return the sum of sizes at each moment, int64 (M + 1,).

    Row i counts at the moments start[i] < k <= end[i].
    """
    change = np.zeros(moment_count + 1, np.int64)
    # Indices of any other type than intp take twice as long.
    np.add.at(change, start.astype(np.intp) + 1, size)
    np.subtract.at(change, end.astype(np.intp) + 1, size)
    return np.cumsum(change[:-1])


def live_bytes(trace: Trace) -> np.ndarray:
    """Return the bytes that are live at each moment, int64 (M + 1,)."""
    allocations = trace.allocations
    return bytes_at_moments(
        trace.moment_count, allocations.start, allocations.end, allocations.size
    )


def reserved_bytes(trace: Trace) -> np.ndarray:
    """Return the bytes that the allocator had from the driver at each moment.

    int64 (M + 1,).
    """
    spans = trace.spans
    return bytes_at_moments(trace.moment_count, spans.start, spans.end, spans.size)


class Peak(NamedTuple):
    """Live bytes of a device: the most, and those at the end."""

    peak_bytes: int
    """Most live bytes, those after `peak_moment` events."""
    peak_moment: int
    """The first of the moments with most live bytes."""
    end_bytes: int
    """Live bytes at the end."""


def measure_peak(trace: Trace) -> Peak:
    """Return the most live bytes of a device, and those at the end."""
    live = live_bytes(trace)
    moment = int(live.argmax())
    return Peak(int(live[moment]), moment, int(live[-1]))


def peak_moment(trace: Trace) -> int:
    """Return the first of the moments with most live bytes."""
    return measure_peak(trace).peak_moment


def cached(function: Callable[P, T]) -> Callable[P, T]:
    """Keep a function's results as long as the snapshot, its first argument, lives.

    The second argument, if any, is one of the snapshot's traces.
    """

    @functools.wraps(function)
    def cached_function(*args: P.args, **named: P.kwargs) -> T:
        snapshot: Any = args[0]
        key = (function, *(trace.device for trace in args[1:]))  # type: ignore[attr-defined]
        if key not in snapshot.cache:
            with snapshot.lock:
                if key not in snapshot.cache:
                    snapshot.cache[key] = function(*args, **named)
        return snapshot.cache[key]

    return cached_function


def address_text(address: int) -> str:
    """Return an address for users: "0x7f2c40000000"."""
    return f"{address:#x}"


EMPTY_SNAPSHOT = (
    "it holds no events and no segments of any device; was memory recorded "
    "(torch.cuda.memory._record_memory_history) before it was taken?"
)
"""The error message about a snapshot without traces, after its name."""


def busiest_device(snapshot: MemorySnapshot) -> int:
    """Return the index in `MemorySnapshot.traces` of the GPU with most events.

    Pinned host memory where there is no GPU.
    """

    def activity(index: int) -> tuple[bool, int, int]:
        trace = snapshot.traces[index]
        return trace.device >= 0, len(trace.events), len(trace.segments)

    return max(range(len(snapshot.traces)), key=activity)


def device_text(device: int) -> str:
    """Return "GPU 0", "pinned host memory" or "pinned host memory 2"."""
    if device >= 0:
        return f"GPU {device}"
    if device == HOST_DEVICE:
        return "pinned host memory"
    return f"pinned host memory {-device}"


def device_name(device: int) -> str:
    """Return the name by which a device is chosen: "0", "host", "host2"."""
    if device >= 0:
        return str(device)
    if device == HOST_DEVICE:
        return "host"
    return f"host{-device}"


def find_device(snapshot: MemorySnapshot, name: str) -> int:
    """Return the index in `MemorySnapshot.traces` of the device of this name.

    Raises:
        ViewerError: the snapshot has no such device.
    """
    names = [device_name(trace.device) for trace in snapshot.traces]
    normalized = name.strip().lower()
    if normalized not in names:
        raise ViewerError(
            f"device {name[:40]!r} is not in the snapshot; it has {', '.join(names)}"
        )
    return names.index(normalized)


def pool_text(pool: tuple[int, int] | None) -> str:
    """Return "default pool", "private pool (0, 3)" or "pool not known"."""
    if pool is None:
        return "pool not known"
    if tuple(pool) == (0, 0):
        return "default pool"
    return f"private pool ({pool[0]}, {pool[1]})"


def stream_text(stream: int) -> str:
    """Return "default stream", "stream 7", or "stream 0x55d0c1a2f0" for a pointer."""
    if stream == 0:
        return "default stream"
    if 0 < stream < 65536:
        return f"stream {stream}"
    return f"stream {stream:#x}"
