"""Small memory snapshots, as PyTorch makes them, for the tests of what shows them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from splatview.viewer_app.memory.loading import from_pickled

if TYPE_CHECKING:
    from splatview.viewer_app.memory.model import Snapshot

BASE = 0x7F00_0000_0000
STACKS = [[{"filename": "/home/me/train.py", "line": 10 + k, "name": f"step_{k}"},
           {"filename": "/home/me/train.py", "line": 99, "name": "<module>"}] for k in range(6)]


def small_snapshot(seed: int = 0, events: int = 120, *, oom: bool = False, pools: int = 1,
                   devices: int = 1) -> Snapshot:
    """What `pickled` makes, read."""
    return from_pickled(pickled(seed, events, oom=oom, pools=pools, devices=devices), f"small {seed}")


def pickled(seed: int = 0, events: int = 120, *, oom: bool = False, pools: int = 1, devices: int = 1) -> dict[str, Any]:
    """A snapshot as a dict: in each pool a segment of 64 MiB with blocks of 1 MiB to 8 MiB that come and go."""
    rng = random.Random(seed)
    segments: list[dict[str, Any]] = []
    traces: list[list[dict[str, Any]]] = []
    for device in range(devices):
        trace: list[dict[str, Any]] = []
        live: list[tuple[int, int, int, list[Any]]] = []  # pool, first MiB, MiB, stack
        for number in range(pools):
            trace.append(_entry("segment_alloc", number, _address(device, number), 64 << 20, STACKS[0], len(trace)))
        while len(trace) < events:
            pool, size, stack = rng.randrange(pools), rng.randint(1, 8), rng.choice(STACKS)
            first = _room(live, pool, size)
            if first is not None and rng.random() < 0.6:
                live.append((pool, first, size, stack))
                trace.append(_entry("alloc", pool, _address(device, pool, first), (size << 20) - 100, stack,
                                    len(trace)))
            elif live:
                pool, first, size, stack = live.pop(rng.randrange(len(live)))
                for action in ("free_requested", "free_completed"):
                    trace.append(_entry(action, pool, _address(device, pool, first), (size << 20) - 100, stack,
                                        len(trace)))
        if oom:
            trace.append({**_entry("oom", 0, 0, 64 << 20, STACKS[1], len(trace)), "device_free": 1 << 20})
            del trace[-1]["addr"]
        traces.append(trace)
        segments += [_segment(device, pool, [b for b in live if b[0] == pool]) for pool in range(pools)]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _address(device: int, pool: int, first: int = 0) -> int:
    return BASE + (device << 36) + (pool << 32) + (first << 20)


def _entry(action: str, pool: int, addr: int, size: int, frames: list[Any], number: int) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "pool_id": (0, pool), "frames": frames,
            "time_us": 1_700_000_000_000_000 + number * 1000}


def _room(live: list[tuple[int, int, int, list[Any]]], pool: int, size: int) -> int | None:
    """The first MiB of room in the segment of a pool."""
    at = 0
    for _, first, length, _ in sorted(b for b in live if b[0] == pool):
        if first - at >= size:
            return at
        at = first + length
    return at if 64 - at >= size else None


def _segment(device: int, pool: int, live: list[tuple[int, int, int, list[Any]]]) -> dict[str, Any]:
    blocks, at = [], 0
    for _, first, size, stack in [*sorted(live, key=lambda b: b[1]), (pool, 64, 0, [])]:
        if first > at:
            blocks.append({"address": _address(device, pool, at), "size": first - at << 20, "requested_size": 0,
                           "state": "inactive", "frames": []})
        if size:
            blocks.append({"address": _address(device, pool, first), "size": size << 20,
                           "requested_size": (size << 20) - 100, "state": "active_allocated", "frames": stack})
        at = first + size
    held = sum(b["size"] for b in blocks if b["state"] != "inactive")
    return {"device": device, "address": _address(device, pool), "total_size": 64 << 20, "allocated_size": held,
            "active_size": held, "requested_size": sum(b["requested_size"] for b in blocks), "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, pool), "is_expandable": False, "frames": [],
            "blocks": blocks}
