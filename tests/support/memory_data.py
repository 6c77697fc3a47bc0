"""Memory snapshots for tests, as PyTorch makes them, and what they must come to, worked out entry by entry."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.snapshot.loading import from_pickled
from splatview_viewer.snapshot.model import ACTIONS

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot

MB = 1 << 20
HIGH = 0xFFFF_8001_0000_0000  # where Intel's drivers place memory


def frame(name: str, line: int = 1, file: str = "train.py") -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


def event(action: str, addr: int, size: int = 512, **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": 1000,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": [frame(action)],
        **more,
    }


def block(
    address: int,
    size: int,
    state: str = "active_allocated",
    requested: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": size if requested is None else requested,
        "state": state,
        "frames": [frame("block")],
        **more,
    }


def segment(address: int, blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    def total(key: str, *states: str) -> int:
        return sum(b[key] for b in blocks if b["state"] in states)

    live = ("active_allocated",)
    held = ("active_allocated", "active_pending_free")
    return {
        "device": 0,
        "address": address,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": total("size", *live),
        "active_size": total("size", *held),
        "requested_size": total("requested_size", *live),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
        **more,
    }


def snapshot(
    events: list[dict[str, Any]],
    segments: list[dict[str, Any]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    return {
        "segments": segments or [],
        "device_traces": [events],
        "allocator_settings": {"max_split_size": -1},
        "external_annotations": [],
        **more,
    }


def filled(
    address: int, size: int, live: list[tuple[int, int, list[Any]]], **more: Any
) -> dict[str, Any]:
    """A segment with live (address, size, frames), rounded to 512 bytes, and free blocks between them."""
    blocks = []
    at = address
    for addr, asked, frames in [
        *sorted(live, key=lambda b: b[0]),
        (address + size, 0, []),
    ]:
        if addr > at:
            blocks.append(block(at, addr - at, "inactive", 0, frames=[]))
        if asked:
            blocks.append(
                block(addr, -(-asked // 512) * 512, requested=asked, frames=frames)
            )
            at = addr + blocks[-1]["size"]
    return segment(address, blocks, **more)


class Recorder:
    """Takes down what an allocator does: events in their order, segments that stay to the end."""

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
        **more: Any,
    ) -> None:
        """One event, a millisecond after the last."""
        self.time += 1000
        where = {"device_free": addr} if action == "oom" else {"addr": addr}
        self.events.append(
            {
                "action": action,
                **where,
                "size": size,
                "stream": 0,
                "time_us": self.time,
                "frames": [_frame(f) for f in frames],
                **more,
            }
        )

    def segment(self, addr: int, size: int, stream: int = 0) -> None:
        """Memory from the driver."""
        self.segments[addr] = (size, stream)
        self.add("segment_alloc", addr, size, stream=stream)

    def alloc(self, addr: int, size: int, *frames: str, **more: Any) -> None:
        """An allocation. Frames innermost first: "model.py:12 forward" or, for C++, "at::_ops::mul::call()"."""
        self.live[addr] = (size, frames, more.get("stream", 0))
        self.add("alloc", addr, size, frames, **more)

    def free(self, addr: int, *frames: str) -> None:
        """Asked for and completed."""
        size, _, stream = self.live.pop(addr)
        self.add("free_requested", addr, size, frames, stream=stream)
        self.add("free_completed", addr, size, frames, stream=stream)

    def oom(self, asked: int, device_free: int) -> None:
        """An allocation that failed."""
        self.add("oom", device_free, asked, ("train.py:1 step",))

    def snapshot(self) -> MemorySnapshot:
        """All of it, with segments and blocks as they are now."""
        segments = []
        for start, (total, stream) in self.segments.items():
            here = [
                (a, size, [_frame(f) for f in frames])
                for a, (size, frames, _) in self.live.items()
                if start <= a < start + total
            ]
            segments.append(
                filled(
                    start,
                    total,
                    here,
                    stream=stream,
                    segment_type="small" if total <= 2 * MB else "large",
                )
            )
        return from_pickled(snapshot(self.events, segments), "by hand")


BACKWARD_PASS = (
    "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)",
    "torch::autograd::Engine::evaluate_function(int)",
)


def training() -> Recorder:
    """A loop that keeps a list of losses (the leak), a queue of 5 batches, and an optimizer's state."""
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
        if 30 <= step < 80:  # parameters that are first used late
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
    place, _, name = text.partition(" ")
    file, colon, line = place.rpartition(":")
    if colon and line.isdigit():
        return frame(name, int(line), file)
    return frame(text, 0, "??")


def replay(
    events: list[dict[str, Any]], segments: list[dict[str, Any]]
) -> list[tuple[int, ...]]:
    """(address, size, start, end, freed) of each allocation, sorted: by the rules in
    `splatview_viewer.snapshot.model`, one entry after the other.
    """
    m = len(events)
    bands: list[list[int]] = []
    now: dict[int, tuple[str, list[int]]] = {}
    has_requests = any(e["action"] == "free_requested" for e in events)

    def begin(e: dict[str, Any], start: int) -> list[int]:
        bands.append([e["addr"], e["size"], start, m, m])
        return bands[-1]

    for k, e in enumerate(events):
        state, band = now.get(e.get("addr", -1), ("gone", []))
        if e["action"] == "alloc":
            if state == "live":
                band[3] = k
                band[4] = k
            elif state == "asked":
                band[4] = k
            now[e["addr"]] = "live", begin(e, k)
        elif e["action"] == "free_requested":
            if state == "asked":
                band[4] = k
            if state != "live":
                band = begin(e, -1)
            band[3] = k
            now[e["addr"]] = "asked", band
        elif e["action"] in ("free_completed", "free"):
            requested_before = has_requests and e["action"] == "free_completed"
            if state == "gone" and requested_before:
                continue
            if state == "gone":
                band = begin(e, -1)
            band[3] = min(band[3], k)
            band[4] = k
            now[e["addr"]] = "gone", band
    for b in (b for s in segments for b in s["blocks"]):
        if (
            b["state"] == "active_allocated"
            and now.get(b["address"], ("gone",))[0] != "live"
        ):
            bands.append([b["address"], b["requested_size"], -1, m, m])
    return sorted(tuple(b) for b in bands)


def check_replay(data: dict[str, Any], trace: Any) -> None:
    """Whether a trace is what a replay of its entries makes of them, and its numbers fit together."""
    events = data["device_traces"][trace.device]
    segments = [s for s in data["segments"] if s["device"] == trace.device]
    a = trace.allocations
    e = trace.events
    m = len(events)
    bands = zip(
        a.addr.tolist(),
        a.size.tolist(),
        a.start.tolist(),
        a.end.tolist(),
        a.freed.tolist(),
        strict=True,
    )
    assert sorted(bands) == replay(events, segments)
    which = np.flatnonzero(e.allocation >= 0)
    of = e.allocation[which]
    assert (a.addr[of] == e.addr[which]).all()
    assert ((a.start[of] == which) == (e.action[which] == ACTIONS.index("alloc"))).all()
    assert (
        (which == a.start[of]) | (which == a.end[of]) | (which == a.freed[of])
    ).all()
    begun = np.flatnonzero(a.start >= 0)
    assert (np.diff(a.start[begun]) > 0).all()
    assert (begun == np.arange(len(a) - len(begun), len(a))).all(), (
        "those from before the trace come first"
    )
    assert (np.diff(a.end[: len(a) - len(begun)]) <= 0).all(), (
        "of them what stays longest lies lowest"
    )
    assert (e.allocation[a.start[begun]] == begun).all()
    blocks = trace.blocks
    of = blocks.allocation[blocks.allocation >= 0]
    held = blocks.allocation >= 0
    assert (a.addr[of] == blocks.addr[held]).all()
    assert (a.rounded[of] == blocks.size[held]).all()
    assert (a.freed[of] == m).all()


def small_snapshot(seed: int = 0, events: int = 120) -> MemorySnapshot:
    """A segment of 64 MiB with blocks of 1 MiB to 8 MiB that come and go, of six stacks."""
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
    """Two devices; on the first 8 MiB are asked for in vain while 12 MiB are free in two pieces."""

    def entry(
        action: str, addr: int, size: int, at: int, **more: Any
    ) -> dict[str, Any]:
        return event(
            action,
            addr * MB,
            size * MB,
            time_us=at,
            frames=[frame("step", at, "/home/me/train.py")],
            **more,
        )

    trace = [
        entry("segment_alloc", 64, 20, 1),
        entry("alloc", 64, 6, 2),
        entry("alloc", 70, 8, 3),
        entry("alloc", 78, 6, 4),
    ]
    for at, (addr, size) in enumerate([(64, 6), (78, 6)], 5):
        trace += [
            entry(action, addr, size, at)
            for action in ("free_requested", "free_completed")
        ]
    trace.append(entry("oom", 0, 8, 9, device_free=MB))
    del trace[-1]["addr"]
    other = [entry("alloc", 512, 1, 3), entry("alloc", 520, 2, 4)]
    settings = {
        "expandable_segments": False,
        "max_split_size": -1,
        "roundup": {"1": 0, "2": 4},
    }
    return from_pickled(
        snapshot(
            [],
            [filled(64 * MB, 20 * MB, [(70 * MB, 8 * MB, [])])],
            device_traces=[trace, other],
            allocator_settings=settings,
        ),
        "full.pickle",
    )


TORCH = "/usr/lib/python3/site-packages/torch/x.py"
MINE = frame("attention", 42, "/home/me/train.py")


def several() -> MemorySnapshot:
    """Two devices, a private pool, an OOM, texts, and memory from before the trace."""
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
