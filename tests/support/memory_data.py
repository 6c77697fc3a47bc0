"""Memory snapshots as PyTorch makes them, and their meaning, worked out by entry."""

from __future__ import annotations

import random
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.snapshot.loading import from_pickled
from splatview_viewer.snapshot.loading.ranks import Rank, RankMemory, RankTable
from splatview_viewer.snapshot.model import ACTIONS

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot

MB = 1 << 20
HIGH = 0xFFFF_8001_0000_0000
"""An address of the range where Intel's drivers place memory."""


def frame(name: str, line: int = 1, file: str = "train.py") -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


def event(action: str, addr: int, size: int = 512, **fields: Any) -> dict[str, Any]:
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": 1000,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": [frame(action)],
        **fields,
    }


def block(
    address: int,
    size: int,
    state: str = "active_allocated",
    requested: int | None = None,
    **fields: Any,
) -> dict[str, Any]:
    if requested is None:
        requested = size
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": [frame("block")],
        **fields,
    }


def segment(
    address: int, blocks: list[dict[str, Any]], **fields: Any
) -> dict[str, Any]:
    def total(key: str, *states: str) -> int:
        return sum(b[key] for b in blocks if b["state"] in states)

    return {
        "device": 0,
        "address": address,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": total("size", "active_allocated"),
        "active_size": total("size", "active_allocated", "active_pending_free"),
        "requested_size": total("requested_size", "active_allocated"),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
        **fields,
    }


def snapshot(
    events: list[dict[str, Any]],
    segments: list[dict[str, Any]] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    return {
        "segments": segments or [],
        "device_traces": [events],
        "allocator_settings": {"max_split_size": -1},
        "external_annotations": [],
        **fields,
    }


def filled(
    address: int, size: int, live: list[tuple[int, int, list[Any]]], **fields: Any
) -> dict[str, Any]:
    """Return a segment of live blocks, with free ones between them.

    Args:
        address: The segment's address.
        size: Its bytes.
        live: Address, bytes (rounded up to 512) and frames of each live block.
        fields: Further fields of the segment.
    """
    blocks = []
    end = address
    for addr, requested, frames in sorted(live, key=itemgetter(0)):
        if addr > end:
            blocks.append(block(end, addr - end, "inactive", 0, frames=[]))
        rounded = -(-requested // 512) * 512
        blocks.append(block(addr, rounded, requested=requested, frames=frames))
        end = addr + rounded
    if address + size > end:
        blocks.append(block(end, address + size - end, "inactive", 0, frames=[]))
    return segment(address, blocks, **fields)


class Recorder:
    """Records what an allocator does; its segments stay to the end."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.live: dict[int, tuple[int, tuple[str, ...], int]] = {}
        self.segments: dict[int, tuple[int, int]] = {}
        self.time = 1_700_000_000_000_000

    def add(
        self,
        action: str,
        addr: int,
        size: int,
        frames: tuple[str, ...] = (),
        **fields: Any,
    ) -> None:
        """Add one event, a millisecond after the last."""
        self.time += 1000
        address_field = "device_free" if action == "oom" else "addr"
        self.events.append(
            {
                "action": action,
                address_field: addr,
                "size": size,
                "stream": 0,
                "time_us": self.time,
                "frames": [_frame(f) for f in frames],
                **fields,
            }
        )

    def segment(self, addr: int, size: int, stream: int = 0) -> None:
        """Take memory from the driver."""
        self.segments[addr] = (size, stream)
        self.add("segment_alloc", addr, size, stream=stream)

    def alloc(self, addr: int, size: int, *frames: str, **fields: Any) -> None:
        """Make an allocation.

        Frames come innermost first: "model.py:12 forward" or, for C++,
        "at::_ops::mul::call()".
        """
        self.live[addr] = (size, frames, fields.get("stream", 0))
        self.add("alloc", addr, size, frames, **fields)

    def free(self, addr: int, *frames: str) -> None:
        """Request a free and complete it."""
        size, _, stream = self.live.pop(addr)
        self.add("free_requested", addr, size, frames, stream=stream)
        self.add("free_completed", addr, size, frames, stream=stream)

    def oom(self, requested: int, device_free: int) -> None:
        """Add an allocation that failed."""
        self.add("oom", device_free, requested, ("train.py:1 step",))

    def snapshot(self) -> MemorySnapshot:
        """Return a snapshot of all events, with the present segments and blocks."""
        segments = []
        for start, (total, stream) in self.segments.items():
            live = []
            for addr, (size, frames, _) in self.live.items():
                if start <= addr < start + total:
                    live.append((addr, size, [_frame(f) for f in frames]))
            kind = "small" if total <= 2 * MB else "large"
            segments.append(
                filled(start, total, live, stream=stream, segment_type=kind)
            )
        return from_pickled(snapshot(self.events, segments), "by hand")


BACKWARD_PASS = (
    "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)",
    "torch::autograd::Engine::evaluate_function(int)",
)


def training() -> Recorder:
    """Record a training loop.

    It keeps a list of losses (the leak), a queue of 5 batches, and an optimizer's
    state.
    """
    r = Recorder()
    addr = iter(range(1 << 30, 1 << 40, 16 * MB))
    queue: list[int] = []
    for step in range(100):
        batch = next(addr)
        activation = next(addr)
        scratch = next(addr)
        r.alloc(batch, 2 * MB, "data.py:5 fetch", "train.py:9 main")
        queue.append(batch)
        if len(queue) > 5:
            r.free(queue.pop(0), "data.py:8 drop")
        r.alloc(activation, 8 * MB, "model.py:3 forward", "train.py:10 main")
        r.alloc(scratch, 4 * MB, *BACKWARD_PASS)
        r.free(scratch, *BACKWARD_PASS)
        r.free(activation, *BACKWARD_PASS)
        r.alloc(next(addr), 1000, "train.py:12 remember", "train.py:11 main")
        # Some parameters are first used late.
        if 30 <= step < 80:
            r.alloc(
                next(addr),
                10 * MB,
                "/x/site-packages/torch/optim/adam.py:178 _init_group",
                "train.py:14 main",
            )
        if step == 50:
            r.alloc(next(addr), 64 * MB, "cache.py:1 warm", "train.py:15 main")
    return r


def _frame(text: str) -> dict[str, Any]:
    location, _, name = text.partition(" ")
    file, colon, line = location.rpartition(":")
    if colon and line.isdigit():
        return frame(name, int(line), file)
    return frame(text, 0, "??")


def replay(
    events: list[dict[str, Any]], segments: list[dict[str, Any]]
) -> list[tuple[int, ...]]:
    """Compute the allocations of a trace, one entry after the other.

    The rules are those in `splatview_viewer.snapshot.model`.

    Returns:
        Address, size, start, end and moment of freeing of each allocation, sorted.
    """
    m = len(events)
    bands: list[list[int]] = []
    states: dict[int, tuple[str, list[int]]] = {}
    has_requests = any(e["action"] == "free_requested" for e in events)

    def add_band(e: dict[str, Any], start: int) -> list[int]:
        bands.append([e["addr"], e["size"], start, m, m])
        return bands[-1]

    for k, e in enumerate(events):
        state, band = states.get(e.get("addr", -1), ("gone", []))
        if e["action"] == "alloc":
            if state == "live":
                band[3] = k
                band[4] = k
            elif state == "asked":
                band[4] = k
            states[e["addr"]] = "live", add_band(e, k)
        elif e["action"] == "free_requested":
            if state == "asked":
                band[4] = k
            if state != "live":
                band = add_band(e, -1)
            band[3] = k
            states[e["addr"]] = "asked", band
        elif e["action"] in ("free_completed", "free"):
            requested_before = has_requests and e["action"] == "free_completed"
            if state == "gone" and requested_before:
                continue
            if state == "gone":
                band = add_band(e, -1)
            band[3] = min(band[3], k)
            band[4] = k
            states[e["addr"]] = "gone", band
    for b in chain.from_iterable(s["blocks"] for s in segments):
        state, _ = states.get(b["address"], ("gone", []))
        if b["state"] == "active_allocated" and state != "live":
            bands.append([b["address"], b["requested_size"], -1, m, m])
    return sorted(tuple(b) for b in bands)


def check_replay(data: dict[str, Any], trace: Any) -> None:
    """Check a trace against a replay of its entries, and its tables with each other."""
    events = data["device_traces"][trace.device]
    segments = [s for s in data["segments"] if s["device"] == trace.device]
    a = trace.allocations
    e = trace.events
    m = len(events)
    columns = (a.addr, a.size, a.start, a.end, a.freed)
    bands = zip(*(column.tolist() for column in columns), strict=True)
    assert sorted(bands) == replay(events, segments)

    index = np.flatnonzero(e.allocation >= 0)
    owner = e.allocation[index]
    assert (a.addr[owner] == e.addr[index]).all()
    is_start = a.start[owner] == index
    assert (is_start == (e.action[index] == ACTIONS.index("alloc"))).all()
    assert (is_start | (index == a.end[owner]) | (index == a.freed[owner])).all()

    from_trace = np.flatnonzero(a.start >= 0)
    earlier = len(a) - len(from_trace)
    assert (np.diff(a.start[from_trace]) > 0).all()
    assert (from_trace == np.arange(earlier, len(a))).all(), (
        "those from before the trace come first"
    )
    assert (np.diff(a.end[:earlier]) <= 0).all(), (
        "of them what stays longest lies lowest"
    )
    assert (e.allocation[a.start[from_trace]] == from_trace).all()

    blocks = trace.blocks
    is_live = blocks.allocation >= 0
    owner = blocks.allocation[is_live]
    assert (a.addr[owner] == blocks.addr[is_live]).all()
    assert (a.rounded[owner] == blocks.size[is_live]).all()
    assert (a.freed[owner] == m).all()


def small_snapshot(seed: int = 0, events: int = 120) -> MemorySnapshot:
    """Make a snapshot of one segment of 64 MiB.

    Its blocks of 1 MiB to 8 MiB come and go, and are of six stacks.
    """
    rng = random.Random(seed)
    r = Recorder()
    start = 0x7F00_0000_0000
    r.segment(start, 64 * MB)
    while len(r.events) < events:
        addr = start + rng.randrange(8) * 8 * MB
        k = rng.randrange(6)
        if addr in r.live:
            r.free(addr, "/home/me/train.py:99 <module>")
        else:
            r.alloc(
                addr,
                rng.randint(1, 8) * MB - 100,
                f"/home/me/train.py:{10 + k} step_{k}",
                "/home/me/train.py:99 <module>",
            )
    return r.snapshot()


def two_devices() -> MemorySnapshot:
    """Make a snapshot of two devices.

    On the first, an allocation of 8 MiB fails while 12 MiB are free in two pieces.
    """

    def entry(
        action: str, addr: int, size: int, time: int, **fields: Any
    ) -> dict[str, Any]:
        return event(
            action,
            addr * MB,
            size * MB,
            time_us=time,
            frames=[frame("step", time, "/home/me/train.py")],
            **fields,
        )

    first = [
        entry("segment_alloc", 64, 20, 1),
        entry("alloc", 64, 6, 2),
        entry("alloc", 70, 8, 3),
        entry("alloc", 78, 6, 4),
        entry("free_requested", 64, 6, 5),
        entry("free_completed", 64, 6, 5),
        entry("free_requested", 78, 6, 6),
        entry("free_completed", 78, 6, 6),
        entry("oom", 0, 8, 9, device_free=MB),
    ]
    del first[-1]["addr"]
    second = [entry("alloc", 512, 1, 3), entry("alloc", 520, 2, 4)]
    settings = {
        "expandable_segments": False,
        "max_split_size": -1,
        "roundup": {"1": 0, "2": 4},
    }
    return from_pickled(
        snapshot(
            [],
            [filled(64 * MB, 20 * MB, [(70 * MB, 8 * MB, [])])],
            device_traces=[first, second],
            allocator_settings=settings,
        ),
        "full.pickle",
    )


TORCH = "/usr/lib/python3/site-packages/torch/x.py"
MINE = frame("attention", 42, "/home/me/train.py")


def several() -> MemorySnapshot:
    """Make a snapshot of two devices with a bit of everything.

    It has a private pool, an OOM, texts, and memory from before the trace.
    """
    first = [
        event("free_requested", 0x900, 64, time_us=1),
        event("free_completed", 0x900, 64, time_us=2),
        event(
            "alloc",
            0x1000,
            1000,
            time_us=10,
            frames=[frame("mul", 3, TORCH), MINE],
            compile_context="(0/0)",
            user_metadata="it's \u00e9",
        ),
        event("alloc", 0x2000, 500, time_us=20, segment_pool_id=(0, 1), pool_id=(0, 1)),
        {**event("oom", 0, 2**64 - 512, time_us=30), "device_free": 12345},
        event("free_requested", 0x1000, 1000, time_us=40),
        event("free_completed", 0x1000, 1000, time_us=45),
    ]
    del first[4]["addr"]
    second = [event("alloc", HIGH, 7, stream=9, time_us=0, frames=[])]
    blocks = [block(0x2000, 512, requested=500), block(0x2200, 1536, "inactive", 0)]
    return from_pickled(
        snapshot(
            [],
            [
                segment(0x2000, blocks, segment_pool_id=(0, 1)),
                segment(HIGH, [block(HIGH, 512, requested=7)], device=1, stream=9),
            ],
            device_traces=[first, second],
            external_annotations=[
                {"stage": "START", "name": "step", "device": 0, "time_us": 5}
            ],
        ),
        "several",
    )


def rank_table(count: int) -> RankTable:
    """Return the list of a folder's snapshots; that of rank 1 cannot be read."""
    ranks = []
    for rank in range(count):
        memory = RankMemory(
            device=rank,
            events=1000 + rank,
            allocations=500,
            peak_bytes=(100 + count * rank % 37) * MB,
            peak_moment=700,
            reserved_bytes=150 * MB,
            end_bytes=50 * MB,
        )
        path = Path(f"rank{rank}.pickle")
        if rank == 1:
            ranks.append(Rank(path, rank, None, "truncated or damaged"))
        else:
            ranks.append(Rank(path, rank, memory))
    return RankTable(Path("snapshots"), tuple(ranks))
